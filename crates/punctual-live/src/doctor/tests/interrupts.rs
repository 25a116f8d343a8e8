//! Tests of interrupts and of threads that compete with vCPUs.

use super::*;

#[test]
fn interrupts_on_the_pool_are_counted_by_where_they_go_now() {
    let expected = "warning: sent to processors of pools: 1, taken 50200 times since boot (50 a second), \
                    most often 30 (eth0)";
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
fn lockup_detectors_count_where_they_look() {
    assert_eq!(desktop().says("watchdog"), "note: the soft and the hard detector are on for 2-3");
    let elsewhere = desktop().with(&[("/proc/sys/kernel/watchdog_cpumask", "0-1")]);
    assert_eq!(elsewhere.severity("watchdog"), Severity::Ok);
    let off = desktop().with(&[("/proc/sys/kernel/watchdog", "0"), ("/proc/sys/kernel/nmi_watchdog", "0")]);
    assert_eq!(off.severity("watchdog"), Severity::Ok);
    let soft = desktop().without("/proc/sys/kernel/nmi_watchdog");
    assert_eq!(soft.says("watchdog"), "note: the soft detector is on for 2-3");
}
