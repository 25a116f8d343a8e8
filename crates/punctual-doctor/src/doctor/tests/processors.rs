//! Tests of the checks of the pool's processors.

use super::*;

#[test]
fn pools_must_leave_a_processor_and_have_theirs_online() {
    let of = |pool: &str| {
        desktop().findings(pool).findings.into_iter().find(|f| f.id == "processors").expect("there")
    };
    assert_eq!(of("0-3").severity, Severity::Critical);
    let absent = of("3-4");
    assert_eq!(absent.summary, "this machine has processors 0-3; pools ask for 4 as well");
    assert_eq!(absent.fix, None, "no command adds a processor");
    let offline = desktop()
        .with(&[("/sys/devices/system/cpu/online", "0-2\n"), ("/sys/devices/system/cpu/cpu3/online", "0\n")])
        .findings("2-3");
    let offline = offline.findings.into_iter().find(|f| f.id == "processors").expect("there");
    assert_eq!(offline.summary, "processors 3 of pools are not online");
    assert_eq!(offline.fix.as_deref(), Some("echo 1 > /sys/devices/system/cpu/cpu3/online"));
}

#[test]
fn no_command_names_processors_that_are_not_there_or_leaves_a_list_empty() {
    let machine = desktop().thread(50, "spinner", 1, 10, "0-3");
    for pool in ["0-3", "0-7", "3-7"] {
        for finding in machine.findings(pool).findings {
            let fix = finding.fix.unwrap_or_default();
            let beyond = ["4", "5", "6", "7"]
                .iter()
                .any(|cpu| fix.contains(&format!("-{cpu}")) || fix.contains(&format!("cpu{cpu}/")));
            let is_empty = fix.contains("-pc  ") || fix.contains("echo  >");
            assert!(!beyond && !is_empty, "{pool}: {}: {fix}", finding.id);
            assert!(!fix.contains("=0-3") && !fix.ends_with(",0-3"), "{pool}: {}: {fix}", finding.id);
        }
    }
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
    assert_eq!(
        stolen(20_000).says("steal"),
        "warning: 0.990 % of the time of the pool's processors since boot"
    );
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
    let fix = "for c in 2 3; do for s in state1 state2; do \
               echo 1 > /sys/devices/system/cpu/cpu$c/cpuidle/$s/disable; done; done";
    assert_eq!(desktop().find("idle-states").fix.as_deref(), Some(fix));
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
    assert_eq!(isolated.says("nohz-full"), "note: not tickless: 2");
    assert_eq!(isolated.severity("rcu-nocbs"), Severity::Ok, "2 by itself, 3 by nohz_full");
    let nobody = desktop().with(&[("/sys/devices/system/cpu/nohz_full", "  (null)\n")]);
    assert_eq!(nobody.says("nohz-full"), "note: not tickless: 2-3");
    let all = desktop().with(&[("/proc/cmdline", "rcu_nocbs")]);
    assert_eq!(all.severity("rcu-nocbs"), Severity::Ok);
    let wrong = desktop().with(&[("/proc/cmdline", "rcu_nocbs=x")]);
    assert_eq!(wrong.severity("rcu-nocbs"), Severity::Unknown);
}

#[test]
fn throttled_processors_are_counted() {
    let hot = desktop().with(&[("/sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "12")]);
    assert_eq!(hot.says("thermal"), "warning: 12 times since boot");
}
