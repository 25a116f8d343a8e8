//! Tests of the report as a whole: which checks there are, what each says, what a run may change.

use std::collections::BTreeSet;

use super::*;

/// Those of a desktop's checks that are not as `expected`.
fn surprises(tree: &Tree, expected: &[(&str, Severity)]) -> Vec<String> {
    let expected = |finding: &&Finding| {
        let known = expected.iter().find(|(id, _)| *id == finding.id);
        finding.severity != known.map_or(Severity::Ok, |(_, severity)| *severity)
    };
    let findings = tree.findings("2-3").findings;
    findings
        .iter()
        .filter(expected)
        .map(|f| format!("{} {}: {}", f.id, f.severity.name(), f.summary))
        .collect()
}

const DESKTOP: [(&str, Severity); 22] = [
    ("rt-throttling", Severity::Warning),
    ("cgroup-moves", Severity::Note),
    ("smt", Severity::Warning),
    ("governor", Severity::Warning),
    ("turbo", Severity::Note),
    ("idle-states", Severity::Warning),
    ("isolcpus", Severity::Note),
    ("nohz-full", Severity::Note),
    ("rcu-nocbs", Severity::Note),
    ("irqs", Severity::Warning),
    ("napi", Severity::Note),
    ("ksoftirqd", Severity::Note),
    ("workqueues", Severity::Note),
    ("watchdog", Severity::Note),
    ("preemption", Severity::Warning),
    ("timer-slack", Severity::Note),
    ("halt-poll", Severity::Warning),
    ("nested", Severity::Note),
    ("kvm-hints", Severity::Note),
    ("sched-ext", Severity::Note),
    ("huge-pages", Severity::Note),
    ("swap", Severity::Note),
];

#[test]
fn a_desktop_as_it_is_installed_is_judged_check_by_check() {
    assert_eq!(surprises(&desktop(), &DESKTOP), Vec::<String>::new());
}

#[test]
fn an_empty_machine_has_nothing_but_unknowns_with_a_file_and_a_reason() {
    let tree = Tree::new(&[("/sys/devices/system/cpu/online", "0-3")]);
    for finding in tree.findings("2-3").findings {
        match finding.id {
            // Judged by the list of processors alone.
            "processors" => assert_eq!(finding.severity, Severity::Ok),
            // Kernels without the option do not have the file.
            "nohz-full" => assert_eq!(finding.severity, Severity::Note),
            id => {
                assert_eq!(finding.severity, Severity::Unknown, "{id}: {}", finding.summary);
                assert!(finding.summary.contains('/'), "{id}: {}", finding.summary);
                assert!(finding.changes.is_empty(), "{id}");
            }
        }
    }
    let error = examine(Root::new(tree.path("/nowhere")), None).expect_err("no machine");
    assert_eq!(error.to_string(), "/sys/devices/system/cpu/online: no such file");
}

#[test]
fn every_check_has_a_name_of_its_own_and_says_why_and_where_from() {
    let ids: BTreeSet<&str> = checks().map(|check| check.id).collect();
    assert_eq!(ids.len(), checks().count());
    for check in checks() {
        for text in [check.title, check.why, check.source, check.judged] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: {text:?}", check.id);
        }
    }
}

#[test]
fn every_check_is_in_the_document() {
    let document = include_str!("../../../../../docs/doctor.md");
    for Check { id, title, judged, .. } in checks() {
        let row = format!("| `{id}` | {title} | {judged} |\n");
        assert!(document.contains(&row), "docs/doctor.md lacks\n{row}");
    }
}

#[test]
fn without_a_host_file_pools_have_all_processors_but_the_first() {
    assert_eq!(desktop().findings("").pool, [1, 2, 3]);
    let single = Tree::new(&[("/sys/devices/system/cpu/online", "0")]).findings("");
    assert_eq!(single.pool, [0]);
    assert_eq!(
        single.findings.iter().find(|f| f.id == "processors").map(|f| f.severity),
        Some(Severity::Critical)
    );
}

#[test]
fn a_change_says_what_is_written_and_what_puts_it_back() {
    let changes = reversible_changes(&desktop().findings("2-3"));
    let file = |path: &str| {
        changes.iter().find_map(|change| match change {
            Change::SetFile { path: of, value, restore, .. } if of.to_str() == Some(path) => {
                Some((value.as_str(), restore.as_str()))
            }
            _ => None,
        })
    };
    assert_eq!(file("/proc/sys/kernel/sched_rt_runtime_us"), Some(("-1", "950000")));
    assert_eq!(file("/proc/irq/30/smp_affinity_list"), Some(("0-1", "0-3")));
    assert_eq!(file("/proc/irq/1/smp_affinity_list"), None, "it does not go to a pool");
    assert_eq!(file("/proc/irq/31/smp_affinity_list"), None, "no driver has requested it");
    assert_eq!(file("/sys/devices/virtual/workqueue/cpumask"), Some(("3", "f")));
    assert_eq!(file("/sys/kernel/mm/transparent_hugepage/enabled"), Some(("madvise", "always")));
    assert_eq!(file("/sys/kernel/debug/sched/preempt"), Some(("full", "voluntary")));
    assert_eq!(
        file("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"),
        Some(("performance", "powersave"))
    );
    assert_eq!(file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"), None);
}

/// Writes down what it is asked to do.
#[derive(Default)]
struct Journal(Vec<String>);

impl Apply for Journal {
    fn set_file(&mut self, path: &std::path::Path, value: &str, restore: &str) -> std::io::Result<()> {
        self.0.push(format!("{} {restore} {value}", path.display()));
        Ok(())
    }

    fn hold_open(&mut self, path: &std::path::Path, value: i32) -> std::io::Result<()> {
        self.0.push(format!("{} held with {value}", path.display()));
        Ok(())
    }

    fn set_thread_priority(&mut self, tid: u32, name: &str, priority: u32) -> std::io::Result<()> {
        self.0.push(format!("{name} {tid} {priority}"));
        Ok(())
    }
}

#[test]
fn changes_are_carried_out_through_apply() {
    let tree = desktop()
        .with(&[("/sys/class/net/eth0/threaded", "1"), ("/dev/cpu_dma_latency", "\0\u{10}\0\0")])
        .thread(40, "napi/eth0-1", 0, 0, "0-3");
    let mut journal = Journal::default();
    for change in reversible_changes(&tree.findings("2-3")) {
        change.carry_out(&mut journal).expect("nothing fails");
        assert!(!change.why().is_empty());
    }
    for expected in [
        "/sys/module/kvm/parameters/halt_poll_ns 200000 0",
        "/dev/cpu_dma_latency held with 0",
        "napi/eth0-1 40 50",
    ] {
        assert!(journal.0.iter().any(|done| done == expected), "{expected} is not in {:?}", journal.0);
    }
}

#[test]
fn the_machine_that_runs_the_tests_can_be_examined() {
    let findings = examine(Root::new("/"), None).expect("a Linux machine");
    assert_eq!(findings.findings.len(), checks().count());
    let kernel = findings.findings.iter().find(|finding| finding.id == "kernel-version").expect("there");
    assert_ne!(kernel.severity, Severity::Unknown, "{}", kernel.summary);
}
