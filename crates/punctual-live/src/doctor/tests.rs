//! Each check on made-up trees of machines that are not this one.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A tree of files that stands for a machine.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Tree(TempDir::new().expect("a directory"));
        files.iter().for_each(|(path, text)| tree.set(path, text));
        tree
    }

    fn set(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    fn with(self, files: &[(&str, &str)]) -> Self {
        files.iter().for_each(|(path, text)| self.set(path, text));
        self
    }

    fn without(self, path: &str) -> Self {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was there");
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn thread(self, tid: u32, name: &str, policy: u32, priority: u32, cpus: &str) -> Self {
        let kernel = if name.contains('/') || name == "watchdogd" { 0x0020_0000 } else { 0 };
        let zeros = ["0"; 30].join(" ");
        let stat = format!("{tid} ({name}) S 2 0 0 0 -1 {kernel} {zeros} {priority} {policy} 0 0 0\n");
        let at = format!("/proc/{tid}/task/{tid}");
        self.set(&format!("{at}/stat"), &stat);
        self.set(&format!("{at}/status"), &format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n"));
        self
    }

    fn findings(&self, pool: &str) -> Findings {
        let pool = (!pool.is_empty()).then(|| Cpus::parse_list(pool, 0).expect("processors"));
        examine(Root::new(self.0.path()), pool).expect("a machine")
    }

    fn find(&self, id: &str) -> Finding {
        self.findings("2-3")
            .findings
            .into_iter()
            .find(|finding| finding.id == id)
            .expect("a check of that name")
    }

    fn severity(&self, id: &str) -> Severity {
        self.find(id).severity
    }

    /// Severity and summary.
    fn says(&self, id: &str) -> String {
        let finding = self.find(id);
        format!("{}: {}", finding.severity.name(), finding.summary)
    }
}

/// A desktop of four processors with everything as a distribution leaves it; pools get 2 and 3.
fn desktop() -> Tree {
    let tree = Tree::new(&[
        ("/sys/devices/system/cpu/online", "0-3\n"),
        ("/sys/devices/system/cpu/isolated", "\n"),
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
        ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n"),
        ("/proc/version", "Linux version 6.1.0-18-amd64 (gcc 12) #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1\n"),
        ("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
        ("/boot/config-6.1.0-18-amd64", "# CONFIG_RT_GROUP_SCHED is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n"),
        ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc msr\n"),
        ("/proc/self/status", "Name:\tpunctual\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n"),
        (
            "/proc/self/limits",
            "Max locked memory         8388608              8388608              bytes     \n\
             Max realtime priority     0                    0                    \n\
             Max realtime timeout      unlimited            unlimited            us        \n",
        ),
        ("/proc/self/cgroup", "0::/user.slice/session-1.scope\n"),
        (
            "/proc/self/mountinfo",
            "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        ),
        ("/proc/self/timerslack_ns", "50000\n"),
        ("/sys/fs/cgroup/user.slice/session-1.scope/cgroup.controllers", "memory pids\n"),
        ("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
        ("/proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
        ("/proc/sys/kernel/sched_rt_period_us", "1000000\n"),
        ("/proc/sys/kernel/numa_balancing", "0\n"),
        ("/proc/sys/kernel/watchdog", "1\n"),
        ("/proc/sys/kernel/nmi_watchdog", "1\n"),
        ("/proc/sys/kernel/watchdog_cpumask", "0-3\n"),
        ("/proc/uptime", "1000.00 3000.00\n"),
        (
            "/proc/stat",
            "cpu  4000 0 0 4000 0 0 0 0 0 0\ncpu0 1000 0 0 1000 0 0 0 0 0 0\ncpu1 1000 0 0 1000 0 0 0 0 0 0\n\
             cpu2 1000 0 0 1000 0 0 0 0 0 0\ncpu3 1000 0 0 1000 0 0 0 0 0 0\n",
        ),
        (
            "/proc/interrupts",
            "           CPU0       CPU1       CPU2       CPU3\n\
             \x20 1:          9          0          0          0   IO-APIC   1-edge      i8042\n\
             \x2030:          0          0      50000        200  PCI-MSI 524288-edge      eth0\n\
             \x2031:          0          0          0          7  PCI-MSI 524289-edge      \n\
             LOC:    1000000    1000000    1000000    1000000   Local timer interrupts\n",
        ),
        ("/proc/irq/1/smp_affinity_list", "0-3\n"),
        ("/proc/irq/1/effective_affinity_list", "0\n"),
        ("/proc/irq/30/smp_affinity_list", "0-3\n"),
        ("/proc/irq/30/effective_affinity_list", "2\n"),
        ("/proc/irq/31/smp_affinity_list", "0-3\n"),
        ("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t1000\t0\t-2\n"),
        ("/sys/class/net/lo/threaded", "0\n"),
        ("/sys/class/net/eth0/threaded", "0\n"),
        ("/sys/class/net/eth0/device/vendor", "0x8086\n"),
        ("/sys/devices/virtual/workqueue/cpumask", "f\n"),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n"),
        ("/sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
        ("/sys/module/kvm_intel/parameters/nested", "Y\n"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        ("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
        ("/sys/kernel/mm/ksm/run", "0\n"),
        ("/sys/kernel/debug/sched/preempt", "none (voluntary) full\n"),
    ]);
    for cpu in 0..4 {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}");
        let siblings =
            if cpu % 2 == 0 { format!("{cpu}-{}\n", cpu + 1) } else { format!("{}-{cpu}\n", cpu - 1) };
        tree.set(&format!("{directory}/topology/thread_siblings_list"), &siblings);
        tree.set(&format!("{directory}/cpufreq/scaling_governor"), "powersave\n");
        tree.set(&format!("{directory}/thermal_throttle/core_throttle_count"), "0\n");
        for (state, name, latency) in [(0, "POLL", 0), (1, "C1E", 10), (2, "C6", 133)] {
            let state = format!("{directory}/cpuidle/state{state}");
            tree.set(&format!("{state}/name"), name);
            tree.set(&format!("{state}/latency"), &latency.to_string());
            tree.set(&format!("{state}/disable"), "0\n");
        }
    }
    let tree = (0..4)
        .fold(tree, |tree, cpu| tree.thread(20 + cpu, &format!("ksoftirqd/{cpu}"), 0, 0, &cpu.to_string()));
    tree.thread(30, "migration/2", 1, 99, "2").thread(700, "bash", 0, 0, "0-3")
}

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

const DESKTOP: [(&str, Severity); 20] = [
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
    let document = include_str!("../../../../docs/doctor.md");
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
fn pools_must_leave_a_processor_and_have_theirs_online() {
    let of = |pool: &str| {
        desktop().findings(pool).findings.into_iter().find(|f| f.id == "processors").expect("there")
    };
    assert_eq!(of("0-3").severity, Severity::Critical);
    let missing = of("3-4");
    assert_eq!(missing.summary, "processors 4 of pools are not online");
    assert_eq!(missing.fix.as_deref(), Some("echo 1 > /sys/devices/system/cpu/cpu4/online"));
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
    assert_eq!(file("/proc/irq/31/smp_affinity_list"), None, "nobody has requested it");
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
fn changes_are_carried_out_by_whoever_remembers_them() {
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
fn throttling_is_off_without_a_limit_and_only_admission_where_linux_removed_it() {
    let unlimited = desktop().with(&[("/proc/sys/kernel/sched_rt_runtime_us", "-1")]);
    assert_eq!(unlimited.severity("rt-throttling"), Severity::Ok);
    assert_eq!(desktop().says("rt-throttling"), "warning: real-time threads may run 950 ms of every 1 s");
    let config = "/boot/config-6.12.1";
    let new = || desktop().with(&[("/proc/sys/kernel/osrelease", "6.12.1")]);
    assert_eq!(new().severity("rt-throttling"), Severity::Warning, "the configuration is not known");
    let removed = new().with(&[(config, "# CONFIG_RT_GROUP_SCHED is not set\n")]);
    assert_eq!(removed.severity("rt-throttling"), Severity::Note);
    let by_group = new().with(&[(config, "CONFIG_RT_GROUP_SCHED=y\n")]);
    assert_eq!(by_group.severity("rt-throttling"), Severity::Warning);
    let switched_off = by_group.with(&[("/proc/cmdline", "rt_group_sched=0")]);
    assert_eq!(switched_off.severity("rt-throttling"), Severity::Note);
    let nonsense = desktop().with(&[("/proc/sys/kernel/sched_rt_runtime_us", "lots")]);
    let expected = "unknown: /proc/sys/kernel/sched_rt_runtime_us: holds \"lots\", expected a whole number";
    assert_eq!(nonsense.says("rt-throttling"), expected);
}

#[test]
fn the_fair_server_is_read_from_linux_6_12_on_where_debugfs_is_there() {
    assert_eq!(desktop().says("fair-server"), "ok: Linux 6.1 has none");
    let new = || desktop().with(&[("/proc/sys/kernel/osrelease", "6.12.1")]);
    let unmounted = new().without("/sys/kernel/debug/sched").find("fair-server");
    assert_eq!(unmounted.severity, Severity::Unknown);
    assert_eq!(unmounted.fix.as_deref(), Some("mount -t debugfs none /sys/kernel/debug"));
    let server = |runtime: &str| {
        let tree = new();
        for cpu in 2..4 {
            tree.set(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), runtime);
            tree.set(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/period"), "1000000000\n");
        }
        tree
    };
    let expected = "warning: ordinary threads may take 50 ms of every 1 s from real-time threads on 2-3";
    assert_eq!(server("50000000").says("fair-server"), expected);
    assert_eq!(server("50000000").find("fair-server").changes.len(), 2);
    assert_eq!(server("0").says("fair-server"), "ok: switched off");
}

#[test]
fn a_hierarchy_that_favours_moves_keeps_nobody_waiting() {
    let mount = |options: &str| {
        let line = format!("35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 {options}\n");
        desktop().with(&[("/proc/self/mountinfo", &line)])
    };
    assert_eq!(mount("rw,nsdelegate,favordynmods").severity("cgroup-moves"), Severity::Ok);
    let plain = mount("rw,nsdelegate").find("cgroup-moves");
    assert_eq!(plain.severity, Severity::Note);
    assert_eq!(plain.fix.as_deref(), Some("mount -o remount,favordynmods /sys/fs/cgroup"));
    assert!(plain.changes.is_empty());
    let old = mount("rw").with(&[("/proc/sys/kernel/osrelease", "5.15.0")]).find("cgroup-moves");
    assert_eq!((old.severity, old.fix), (Severity::Note, None));
    let none = desktop().with(&[("/proc/self/mountinfo", "30 20 0:26 / / rw - ext4 /dev/sda rw\n")]);
    assert_eq!(none.severity("cgroup-moves"), Severity::Unknown);
}

/// The desktop with cgroups of version 1, this process in the group given.
fn version_1(group: &str) -> Tree {
    desktop().with(&[
        ("/proc/self/cgroup", &format!("3:cpuset:{group}\n2:cpu,cpuacct:{group}\n0::/\n")),
        (
            "/proc/self/mountinfo",
            "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             31 20 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        ),
        ("/sys/fs/cgroup/cpu/cpu.rt_runtime_us", "950000"),
        ("/sys/fs/cgroup/cpu/cpu.rt_period_us", "1000000"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
        ("/sys/fs/cgroup/cpu/box/cpu.rt_runtime_us", "0"),
        ("/sys/fs/cgroup/cpu/box/cpu.rt_period_us", "1000000"),
        ("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000"),
        ("/sys/fs/cgroup/cpu/box/cpu.stat", "nr_periods 9\nnr_throttled 4\n"),
        ("/sys/fs/cgroup/cpuset/box/cpuset.effective_cpus", "0-2"),
    ])
}

#[test]
fn a_cgroup_of_version_1_without_real_time_runtime_is_critical() {
    assert_eq!(version_1("/").severity("rt-group"), Severity::Ok);
    let boxed = version_1("/box").find("rt-group");
    assert_eq!(boxed.severity, Severity::Critical);
    assert_eq!(boxed.fix.as_deref(), Some("echo $$ > /sys/fs/cgroup/cpu/cgroup.procs"));
    let some = version_1("/box").with(&[("/sys/fs/cgroup/cpu/box/cpu.rt_runtime_us", "100000")]);
    assert_eq!(
        some.says("rt-group"),
        "warning: real-time threads of this cgroup may run 100 ms of every 1 s"
    );
    let without = version_1("/box").without("/sys/fs/cgroup/cpu/box/cpu.rt_runtime_us");
    assert_eq!(without.severity("rt-group"), Severity::Ok);
}

#[test]
fn a_cgroup_of_version_2_with_the_cpu_controller_is_critical_where_groups_schedule_real_time() {
    let group = "/sys/fs/cgroup/user.slice/session-1.scope/cgroup.controllers";
    let with =
        |config: &str| desktop().with(&[(group, "cpu memory"), ("/boot/config-6.1.0-18-amd64", config)]);
    assert_eq!(with("CONFIG_RT_GROUP_SCHED=y").severity("rt-group"), Severity::Critical);
    assert_eq!(with("# CONFIG_RT_GROUP_SCHED is not set").severity("rt-group"), Severity::Ok);
    let unreadable = with("").without("/boot/config-6.1.0-18-amd64");
    let expected = "unknown: /proc/config.gz or /boot/config-6.1.0-18-amd64: no such file";
    assert_eq!(unreadable.says("rt-group"), expected);
}

#[test]
fn a_quota_is_found_in_this_cgroup_and_above_it() {
    assert_eq!(version_1("/").severity("cpu-quota"), Severity::Ok);
    let expected = "warning: /sys/fs/cgroup/cpu/box has the quota 50000, reached 4 times";
    assert_eq!(version_1("/box").says("cpu-quota"), expected);
    let above = desktop().with(&[("/sys/fs/cgroup/user.slice/cpu.max", "20000 100000")]).find("cpu-quota");
    assert_eq!(above.severity, Severity::Warning);
    assert_eq!(above.fix.as_deref(), Some("echo max > /sys/fs/cgroup/user.slice/cpu.max"));
}

#[test]
fn a_cgroup_that_is_outside_what_is_mounted_is_unknown() {
    let outside = desktop().with(&[("/proc/self/cgroup", "0::/../other\n")]);
    let expected = "unknown: /proc/self/cgroup: /../other is above what is mounted at /sys/fs/cgroup";
    assert_eq!(outside.says("cpu-quota"), expected);
    // A container sees its own part of the hierarchy as the root of the mount.
    let part = desktop().with(&[
        ("/proc/self/mountinfo", "35 24 0:30 /user.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("/sys/fs/cgroup/session-1.scope/cpu.max", "20000 100000"),
    ]);
    assert_eq!(part.severity("cpu-quota"), Severity::Warning);
}

#[test]
fn processors_outside_the_cpuset_are_critical_and_a_narrow_affinity_is_not() {
    let narrow = |tree: Tree| {
        tree.with(&[("/proc/self/status", "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0\n")])
    };
    let boxed = narrow(version_1("/box")).find("affinity");
    assert_eq!(boxed.severity, Severity::Critical);
    assert_eq!(boxed.summary, "the pool's processors 3 are outside the cpuset of this cgroup");
    assert_eq!(boxed.fix.as_deref(), Some("echo 0-3 > /sys/fs/cgroup/cpuset/box/cpuset.cpus"));
    let wide = narrow(version_1("/")).with(&[("/sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-3")]);
    assert_eq!(wide.severity("affinity"), Severity::Note);
    assert_eq!(narrow(desktop()).severity("affinity"), Severity::Unknown);
}

#[test]
fn permissions_come_from_capabilities_or_limits() {
    let user = |limits: &str| {
        desktop().with(&[
            ("/proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n"),
            ("/proc/self/limits", limits),
        ])
    };
    let none = user("Max realtime priority     0  0\nMax locked memory  8388608 8388608 bytes\n");
    assert_eq!(none.severity("privilege"), Severity::Critical);
    assert_eq!(none.says("memory-lock"), "note: at most 8192 KiB can be locked");
    let some = user("Max realtime priority     95  95\nMax locked memory  unlimited unlimited bytes\n");
    assert_eq!(some.severity("privilege"), Severity::Note);
    assert_eq!(some.severity("memory-lock"), Severity::Ok);
    let timed = user("Max realtime timeout      200000  200000  us\n").find("rt-time");
    assert_eq!(timed.severity, Severity::Critical);
}

#[test]
fn siblings_outside_the_pool_are_told_from_those_inside() {
    assert_eq!(desktop().says("smt"), "warning: the pool's processors 2-3 share cores with each other");
    let outside = |pool: &str| {
        let findings = desktop().findings(pool).findings;
        findings.into_iter().find(|f| f.id == "smt").expect("there")
    };
    assert_eq!(outside("3").summary, "2 outside the pools share cores with processors of pools");
    assert_eq!(outside("3").fix.as_deref(), Some("echo 0 > /sys/devices/system/cpu/cpu2/online"));
    // A sibling that is switched off takes nothing away.
    let off = desktop().with(&[("/sys/devices/system/cpu/online", "0-1,3")]).findings("3");
    assert!(off.findings.iter().any(|f| f.id == "smt" && f.severity == Severity::Ok));
}

#[test]
fn steal_is_judged_by_its_share_of_the_pool_alone() {
    let stolen = |ticks: u64| {
        let line = |cpu: usize, steal: u64| format!("cpu{cpu} 500000 0 0 500000 0 0 0 {steal} 0 0\n");
        let text = line(0, 900_000) + &line(1, 0) + &line(2, ticks) + &line(3, 0);
        desktop().with(&[("/proc/stat", &text)])
    };
    assert_eq!(stolen(0).says("steal"), "ok: none since boot");
    assert_eq!(stolen(100).severity("steal"), Severity::Ok);
    assert_eq!(stolen(400).severity("steal"), Severity::Note);
    assert_eq!(stolen(20_000).says("steal"), "warning: 0.990 % of the pool's processors since boot");
    assert_eq!(desktop().with(&[("/proc/stat", "cpu2 1 2\n")]).severity("steal"), Severity::Unknown);
}

#[test]
fn a_guest_without_frequencies_of_its_own_says_so() {
    let mut guest = desktop().with(&[
        ("/proc/cpuinfo", "flags\t\t: fpu hypervisor tsc\n"),
        ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n"),
    ]);
    for cpu in 2..4 {
        guest = guest.without(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq"));
    }
    assert_eq!(guest.severity("hypervisor"), Severity::Note);
    assert_eq!(guest.severity("clocksource"), Severity::Ok);
    let expected = "unknown: /sys/devices/system/cpu/cpu2/cpufreq/scaling_governor: no such file";
    assert_eq!(guest.says("governor"), expected);
    let arm = desktop().with(&[("/proc/cpuinfo", "processor : 0\nFeatures : fp asimd\n")]);
    assert_eq!(arm.severity("hypervisor"), Severity::Unknown);
}

#[test]
fn an_idle_state_counts_when_it_is_enabled_and_the_latency_limit_permits_it() {
    assert_eq!(desktop().says("idle-states"), "warning: C6 takes 133 us to leave");
    let disabled = desktop().with(&[
        ("/sys/devices/system/cpu/cpu2/cpuidle/state2/disable", "1"),
        ("/sys/devices/system/cpu/cpu3/cpuidle/state2/disable", "1"),
    ]);
    assert_eq!(disabled.says("idle-states"), "note: C1E takes 10 us to leave");
    let limited = desktop().with(&[("/dev/cpu_dma_latency", "\0\0\0\0")]);
    assert_eq!(limited.severity("idle-states"), Severity::Ok);
}

#[test]
fn isolation_by_boot_parameters_is_recognised() {
    let isolated = desktop().with(&[
        ("/sys/devices/system/cpu/isolated", "2-3\n"),
        ("/sys/devices/system/cpu/nohz_full", "3\n"),
        ("/proc/cmdline", "isolcpus=domain,2-3 nohz_full=3 rcu_nocbs=2"),
    ]);
    assert_eq!(isolated.severity("isolcpus"), Severity::Ok);
    assert_eq!(isolated.says("nohz-full"), "note: not without a tick on 2");
    assert_eq!(isolated.severity("rcu-nocbs"), Severity::Ok, "2 by itself, 3 by nohz_full");
    let nobody = desktop().with(&[("/sys/devices/system/cpu/nohz_full", "  (null)\n")]);
    assert_eq!(nobody.says("nohz-full"), "note: not without a tick on 2-3");
    let all = desktop().with(&[("/proc/cmdline", "rcu_nocbs")]);
    assert_eq!(all.severity("rcu-nocbs"), Severity::Ok);
    let wrong = desktop().with(&[("/proc/cmdline", "rcu_nocbs=x")]);
    assert_eq!(wrong.severity("rcu-nocbs"), Severity::Unknown);
}

#[test]
fn interrupts_on_the_pool_are_counted_by_where_they_go_now() {
    let expected = "warning: 1 go there, taken 50200 times since boot (50 a second), most often 30 (eth0)";
    assert_eq!(desktop().says("irqs"), expected);
    let quiet = desktop().with(&[("/proc/uptime", "100000.0 1.0")]);
    assert_eq!(quiet.severity("irqs"), Severity::Note);
    let moved = desktop().with(&[("/proc/irq/30/effective_affinity_list", "1")]);
    assert_eq!(moved.severity("irqs"), Severity::Ok);
}

#[test]
fn irqbalance_is_recognised_by_its_name() {
    assert_eq!(desktop().severity("irqbalance"), Severity::Ok);
    let running = desktop().thread(555, "irqbalance", 0, 0, "0-3");
    assert_eq!(running.says("irqbalance"), "warning: running as process 555");
}

#[test]
fn real_time_threads_count_when_they_may_run_on_the_pool() {
    let tree = desktop()
        .thread(60, "irq/30-eth0", 1, 50, "0-3")
        .thread(61, "irq/31-ahci", 1, 50, "0")
        .thread(62, "watchdogd", 1, 50, "2")
        .thread(63, "punctual-live", 1, 90, "2-3");
    assert_eq!(tree.says("irq-threads"), "note: irq/30-eth0 (50)");
    assert_eq!(tree.says("rt-threads"), "note: of the kernel: watchdogd (50)");
    let tree = tree.thread(801, "pipewire", 1, 88, "0-3").thread(802, "dl", 6, 0, "3");
    let finding = tree.find("rt-threads");
    assert_eq!(finding.summary, "programs: pipewire (88), dl (deadline)");
    assert_eq!(finding.fix.as_deref(), Some("for t in 801 802; do taskset -pc 0-1 $t; done"));
}

#[test]
fn threaded_napi_in_the_fair_class_is_worse_than_none() {
    assert_eq!(desktop().says("napi"), "note: off for eth0");
    let threaded = || desktop().with(&[("/sys/class/net/eth0/threaded", "1")]);
    let fair = threaded().thread(40, "napi/eth0-1", 0, 0, "0-3");
    assert_eq!(fair.says("napi"), "warning: in the fair class, behind every vCPU: napi/eth0-1");
    assert_eq!(threaded().thread(40, "napi/eth0-1", 1, 50, "0-3").severity("napi"), Severity::Ok);
}

#[test]
fn a_kernel_with_preempt_rt_is_ok_but_wants_its_softirq_threads_looked_at() {
    let rt = desktop().with(&[
        ("/sys/kernel/realtime", "1\n"),
        ("/proc/version", "Linux version 6.1.0-18-rt-amd64 (gcc 12) #1 SMP PREEMPT_RT Debian 6.1.76-1\n"),
    ]);
    assert_eq!(rt.says("preemption"), "ok: PREEMPT_RT");
    assert_eq!(rt.severity("ksoftirqd"), Severity::Warning);
    let raised = rt.thread(22, "ksoftirqd/2", 1, 1, "2").thread(23, "ksoftirqd/3", 1, 1, "3");
    assert_eq!(raised.says("ksoftirqd"), "ok: ksoftirqd/2 (1), ksoftirqd/3 (1)");
}

#[test]
fn the_preemption_model_comes_from_where_it_can_be_read() {
    let hidden = || desktop().without("/sys/kernel/debug/sched");
    assert_eq!(desktop().says("preemption"), "warning: voluntary");
    assert_eq!(hidden().says("preemption"), "warning: voluntary", "by the configuration");
    let booted = hidden().with(&[("/proc/cmdline", "preempt=full")]);
    assert_eq!(booted.says("preemption"), "note: full; interrupts and softirqs still come first");
    let built = hidden().with(&[("/proc/version", "Linux version 5.4 #1 SMP PREEMPT Debian")]);
    assert_eq!(built.severity("preemption"), Severity::Note);
    let unknown = hidden().without("/boot/config-6.1.0-18-amd64");
    assert_eq!(unknown.severity("preemption"), Severity::Unknown);
}

#[test]
fn a_packed_configuration_is_read() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"CONFIG_PREEMPT_LAZY=y\n").expect("memory");
    let tree = desktop().without("/sys/kernel/debug/sched").without("/boot/config-6.1.0-18-amd64");
    fs::write(tree.path("/proc/config.gz"), packed.finish().expect("memory")).expect("a file");
    assert_eq!(tree.says("preemption"), "note: lazy; interrupts and softirqs still come first");
    fs::write(tree.path("/proc/config.gz"), b"\x1f\x8b nonsense").expect("a file");
    assert_eq!(tree.severity("preemption"), Severity::Unknown);
}

#[test]
fn versions_of_linux_say_what_they_brought() {
    let release = |text: &str| desktop().with(&[("/proc/sys/kernel/osrelease", text)]);
    assert_eq!(release("3.10.0-el7").severity("kernel-version"), Severity::Warning);
    assert_eq!(release("5.10.0").severity("kernel-version"), Severity::Ok);
    assert_eq!(release("6.6.1").severity("kernel-version"), Severity::Note);
    assert!(release("6.18.4").find("kernel-version").summary.contains("fair server"));
    assert_eq!(release("rolling").severity("kernel-version"), Severity::Unknown);
}

#[test]
fn slow_clocks_and_polling_vcpus_are_warnings() {
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let slow = desktop().with(&[(clock, "hpet")]).find("clocksource");
    assert_eq!((slow.severity, slow.summary.as_str()), (Severity::Warning, "hpet is slow to read"));
    let expected = "warning: a vCPU that halts polls for up to 200 us at its own expense";
    assert_eq!(desktop().says("halt-poll"), expected);
    let without = desktop()
        .without("/sys/module/kvm")
        .without("/sys/module/kvm_intel")
        .with(&[("/sys/module/x/y", "")]);
    assert_eq!(without.says("halt-poll"), "ok: KVM is not loaded");
    assert_eq!(without.severity("nested"), Severity::Ok);
    let slack = desktop().with(&[("/proc/self/timerslack_ns", "1")]);
    assert_eq!(slack.severity("timer-slack"), Severity::Ok);
}

#[test]
fn lockup_detectors_count_where_they_look() {
    assert_eq!(desktop().says("watchdog"), "note: the soft and the hard one are on for 2-3");
    let elsewhere = desktop().with(&[("/proc/sys/kernel/watchdog_cpumask", "0-1")]);
    assert_eq!(elsewhere.severity("watchdog"), Severity::Ok);
    let off = desktop().with(&[("/proc/sys/kernel/watchdog", "0"), ("/proc/sys/kernel/nmi_watchdog", "0")]);
    assert_eq!(off.severity("watchdog"), Severity::Ok);
    let soft = desktop().without("/proc/sys/kernel/nmi_watchdog");
    assert_eq!(soft.says("watchdog"), "note: the soft one is on for 2-3");
}

#[test]
fn memory_that_moves_is_found() {
    let both = desktop().with(&[("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer never")]);
    assert_eq!(both.says("huge-pages"), "warning: always, at a page fault always");
    let none = desktop().without("/sys/kernel/mm/transparent_hugepage");
    assert_eq!(none.severity("huge-pages"), Severity::Ok);
    assert_eq!(desktop().with(&[("/sys/kernel/mm/ksm/run", "1")]).severity("ksm"), Severity::Warning);
    let used = desktop().with(&[("/proc/swaps", "Filename Type Size Used Priority\n/a b file 1000 12 -2\n")]);
    assert_eq!(used.says("swap"), "warning: 1 areas, 12 KiB used");
    let numa = |nodes: &str| {
        desktop()
            .with(&[("/proc/sys/kernel/numa_balancing", "1"), ("/sys/devices/system/node/online", nodes)])
    };
    assert_eq!(numa("0").severity("numa-balancing"), Severity::Ok);
    assert_eq!(numa("0-1").severity("numa-balancing"), Severity::Warning);
}

#[test]
fn throttled_processors_are_counted() {
    let hot = desktop().with(&[("/sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "12")]);
    assert_eq!(hot.says("thermal"), "warning: 12 times since boot");
}

#[test]
fn the_machine_that_runs_the_tests_can_be_examined() {
    let findings = examine(Root::new("/"), None).expect("a Linux machine");
    assert_eq!(findings.findings.len(), checks().count());
    let kernel = findings.findings.iter().find(|finding| finding.id == "kernel-version").expect("there");
    assert_ne!(kernel.severity, Severity::Unknown, "{}", kernel.summary);
}
