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
fn backlog_threads_in_the_fair_class_wait_for_real_time_programs() {
    assert_eq!(desktop().says("backlog"), "ok: no threads poll it");
    let fair = || desktop().thread(41, "backlog_napi/2", 0, 0, "2").thread(42, "backlog_napi/0", 0, 0, "0");
    assert_eq!(fair().says("backlog"), "note: in the fair class: backlog_napi/2");
    let beside = fair().thread(801, "CPU 0/KVM", 1, 47, "2-3");
    let says = "warning: in the fair class: backlog_napi/2, beside CPU 0/KVM (47)";
    assert_eq!(beside.says("backlog"), says);
    let raised = desktop().thread(41, "backlog_napi/2", 1, 50, "2");
    assert_eq!(raised.says("backlog"), "ok: polled by real-time threads");
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

/// The desktop with PREEMPT_RT, as of Linux `release`.
fn real_time(release: &str) -> Tree {
    let version = format!("Linux version {release} (gcc 12) #1 SMP PREEMPT_RT\n");
    desktop().with(&[("/proc/version", version.as_str()), ("/proc/sys/kernel/osrelease", release)])
}

#[test]
fn the_softirq_lock_is_that_of_preempt_rt_until_a_kernel_does_without() {
    assert_eq!(desktop().severity("softirq-lock"), Severity::Ok);
    let old = real_time("6.1.0-18-amd64");
    assert_eq!(
        old.says("softirq-lock"),
        "note: threads wait for the holder of their processor's softirq lock"
    );
    let old = old.thread(801, "CPU 0/KVM", 1, 47, "2-3");
    let says =
        "warning: threads wait for the holder of their processor's softirq lock, also for CPU 0/KVM (47)";
    assert_eq!(old.says("softirq-lock"), says);
    let switch = "/proc/sys/net/core/rtnet_prio";
    let partitioned = "threads of priorities below 47 wait for the holder of one softirq lock";
    let old = old.with(&[(switch, "47\n")]);
    assert_eq!(old.says("softirq-lock"), format!("note: {partitioned}"));
    let old = old.with(&[(switch, "48\n")]);
    assert!(old.says("softirq-lock").ends_with("also for CPU 0/KVM (47)"), "{}", old.says("softirq-lock"));
    assert_eq!(old.with(&[(switch, "0\n")]).says("softirq-lock"), says);
    let new = |option: &str| real_time("6.18.2").with(&[("/boot/config-6.18.2", option)]);
    assert_eq!(new("CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n").severity("softirq-lock"), Severity::Note);
    let without = new("# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n");
    assert_eq!(without.says("softirq-lock"), "ok: this kernel has none");
    let unreadable = real_time("6.18.2").find("softirq-lock");
    assert_eq!(unreadable.severity, Severity::Unknown);
    assert!(unreadable.summary.contains("/boot/config-6.18.2"), "{}", unreadable.summary);
}

#[test]
fn threaded_napi_that_is_off_is_worse_beside_real_time_programs() {
    let tree = real_time("6.1.0-18-amd64");
    assert_eq!(tree.says("napi"), "note: off for eth0");
    let tree = tree.thread(801, "CPU 0/KVM", 1, 47, "2-3");
    assert_eq!(tree.says("napi"), "warning: off for eth0 beside CPU 0/KVM (47)");
}

#[test]
fn packets_passed_to_the_pool_are_counted_by_device() {
    assert_eq!(desktop().says("rps"), "ok: none are passed to processors of pools (2-3)");
    let queue = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    assert_eq!(desktop().with(&[(queue, "3\n")]).severity("rps"), Severity::Ok);
    let finding = desktop().with(&[(queue, "f\n")]).find("rps");
    assert_eq!((finding.severity, finding.summary.as_str()), (Severity::Warning, "those of eth0 are"));
    let fix = format!("for f in {queue}; do echo 3 > $f; done");
    assert_eq!(finding.fix.as_deref(), Some(fix.as_str()));
    assert_eq!(finding.changes.len(), 1);
    let broken = desktop().with(&[(queue, "four\n")]).find("rps");
    assert_eq!(broken.severity, Severity::Unknown);
}

#[test]
fn vhost_threads_are_held_against_the_vcpus_of_their_own_vm() {
    let vm = |policy, priority| {
        desktop()
            .thread(900, "CPU 0/KVM", 1, 47, "2-3")
            .thread(950, "CPU 0/KVM", 0, 0, "0-3")
            .thread(951, "vhost-950", 0, 0, "0-3")
            .thread(901, "vhost-900", policy, priority, "2-3")
    };
    let fair = vm(0, 0).find("vhost");
    assert_eq!(fair.summary, "in the fair class: vhost-900 beside CPU 0/KVM (47)");
    assert_eq!(fair.fix.as_deref(), Some("for t in 901; do chrt -f -p 48 $t; done"));
    assert_eq!(vm(1, 46).says("vhost"), "note: less urgent than a vCPU: vhost-900 beside CPU 0/KVM (47)");
    assert_eq!(vm(1, 48).says("vhost"), "ok: as urgent as the vCPUs of their VMs");
    assert_eq!(desktop().says("vhost"), "ok: none belongs to a VM with real-time vCPUs");
}

#[test]
fn threads_that_make_socket_calls_are_held_against_what_is_more_urgent_beside_them() {
    let with = |policy, priority, cpus: &str| {
        desktop().thread(900, "CPU 0/KVM", 1, 47, "2-3").thread(901, "sockets relay", policy, priority, cpus)
    };
    let fair = with(0, 0, "0-3").find("sockets");
    assert_eq!(
        (fair.severity, fair.summary.as_str()),
        (Severity::Warning, "in the fair class: sockets relay")
    );
    assert!(
        fair.fix.as_deref().is_some_and(|fix| fix.starts_with("for t in 901; do chrt -f -p 60 $t; done"))
    );
    let below = with(1, 46, "2").find("sockets");
    assert_eq!(below.summary, "sockets relay (46) may wait for CPU 0/KVM (47)");
    assert_eq!(below.fix.as_deref(), Some("for t in 901; do chrt -f -p 48 $t; done"));
    assert_eq!(with(1, 46, "1").says("sockets"), "ok: nothing on their processors is more urgent");
    assert_eq!(with(1, 48, "2").says("sockets"), "ok: nothing on their processors is more urgent");
    assert_eq!(desktop().says("sockets"), "ok: no guest has sockets of this host");
}

#[test]
fn interrupt_threads_of_one_priority_are_named() {
    let one = desktop().thread(60, "irq/30-eth0-rx-0", 1, 50, "2").thread(61, "irq/31-eth0-rx-1", 1, 50, "3");
    assert_eq!(one.says("irq-threads"), "note: irq/30-eth0-rx-0 (50), irq/31-eth0-rx-1 (50)");
    let two = one.thread(62, "irq/32-eth1", 1, 50, "2-3");
    let says = "note: irq/30-eth0-rx-0 (50), irq/31-eth0-rx-1 (50), irq/32-eth1 (50); devices of one \
                priority wait for each other";
    assert_eq!(two.says("irq-threads"), says);
}
