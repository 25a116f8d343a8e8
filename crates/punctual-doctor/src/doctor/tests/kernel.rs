//! Tests of the kernel's settings and of memory.

use super::*;

#[test]
fn a_kernel_with_preempt_rt_is_ok_but_its_softirq_threads_in_the_fair_class_are_not() {
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
fn what_kvm_counts_is_read_from_debugfs_and_each_reason_against_it_is_named() {
    let counter = "/sys/kernel/debug/kvm/directed_yield_attempted";
    let there = || desktop().with(&[(counter, "0\n")]);
    assert_eq!(there().says("kvm-hints"), "ok: they can be read");
    let ple = "/sys/module/kvm_intel/parameters/ple_gap";
    assert_eq!(there().with(&[(ple, "128\n")]).says("kvm-hints"), "ok: they can be read");
    let deaf = there().with(&[(ple, "0\n")]).find("kvm-hints");
    assert_eq!(deaf.summary, "they can be read; no vCPU exits because it spins");
    assert_eq!(deaf.readings.len(), 2);
    // As svm_vm_init in Linux arch/x86/kvm/svm/svm.c.
    let [count, threshold] =
        ["count", "thresh"].map(|name| format!("/sys/module/kvm_amd/parameters/pause_filter_{name}"));
    let svm = there().with(&[(&count, "3000\n"), (&threshold, "0\n")]);
    assert_eq!(svm.says("kvm-hints"), "ok: they can be read; no vCPU exits because it spins");
    let svm = there().with(&[(&count, "3000\n"), (&threshold, "128\n")]);
    assert_eq!(svm.says("kvm-hints"), "ok: they can be read");
    let lockdown = ("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let locked = "note: none: the kernel is locked down, so that no program reads counters of debugfs";
    assert_eq!(there().with(&[lockdown]).says("kvm-hints"), locked);
    let free = ("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    assert_eq!(there().with(&[free]).severity("kvm-hints"), Severity::Ok);
    let other = there().without(counter).with(&[("/sys/kernel/debug/kvm/exits", "0\n")]);
    assert_eq!(other.says("kvm-hints"), "note: this kernel's KVM has no directed_yield_attempted");
    assert_eq!(desktop().says("kvm-hints"), "note: none: KVM has no /sys/kernel/debug/kvm");
    let unmounted = desktop().without("/sys/kernel/debug/sched").find("kvm-hints");
    assert_eq!(unmounted.summary, "none: debugfs is not mounted");
    assert_eq!(unmounted.fix.as_deref(), Some("mount -t debugfs none /sys/kernel/debug"));
    let without = desktop().without("/sys/kernel/debug");
    assert_eq!(without.says("kvm-hints"), "note: none: the kernel has no debugfs");
    assert_eq!(desktop().without("/sys/module/kvm").says("kvm-hints"), "ok: KVM is not loaded");
}

#[test]
fn a_scheduler_in_the_kernel_needs_a_kernel_that_takes_one_and_has_none() {
    let (state, ops) = ("/sys/kernel/sched_ext/state", "/sys/kernel/sched_ext/root/ops");
    let new = ("/proc/sys/kernel/osrelease", "7.2.12-cloud");
    let there = || desktop().with(&[(state, "disabled\n"), new, ("/sys/kernel/btf/vmlinux", "btf")]);
    assert_eq!(there().says("sched-ext"), "ok: a run may load one (`--enforce sched-ext`)");
    let without = |tree: Tree| tree.says("sched-ext");
    let absent = "note: none: this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)";
    assert_eq!(without(desktop()), absent);
    let used = there().with(&[(state, "enabled\n"), (ops, "lavd_1.0.12\n")]);
    assert_eq!(without(used), "note: none: another scheduler is loaded: `lavd_1.0.12`");
    let old = there().with(&[("/proc/sys/kernel/osrelease", "6.12.9")]);
    assert_eq!(without(old), "note: none: Linux 6.12 is older than 6.13");
    let rt = there().with(&[("/sys/kernel/realtime", "1\n")]);
    assert_eq!(without(rt), "note: none: a kernel with PREEMPT_RT takes no BPF program with a timer");
    let bare = there().without("/sys/kernel/btf");
    assert!(without(bare).contains("CONFIG_DEBUG_INFO_BTF"));
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
fn memory_that_moves_is_found() {
    let both = desktop().with(&[("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer never")]);
    assert_eq!(both.says("huge-pages"), "warning: enabled: always; defrag: always");
    let none = desktop().without("/sys/kernel/mm/transparent_hugepage");
    assert_eq!(none.severity("huge-pages"), Severity::Ok);
    assert_eq!(desktop().with(&[("/sys/kernel/mm/ksm/run", "1")]).severity("ksm"), Severity::Warning);
    let used = desktop().with(&[("/proc/swaps", "Filename Type Size Used Priority\n/a b file 1000 12 -2\n")]);
    assert_eq!(used.says("swap"), "warning: 1 area, 12 KiB used");
    let numa = |nodes: &str| {
        desktop()
            .with(&[("/proc/sys/kernel/numa_balancing", "1"), ("/sys/devices/system/node/online", nodes)])
    };
    assert_eq!(numa("0").severity("numa-balancing"), Severity::Ok);
    assert_eq!(numa("0-1").severity("numa-balancing"), Severity::Warning);
}
