//! Tests of permissions, throttling and limits.

use super::*;

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
    let share =
        |tree: &Tree| fair_server(Root::new(tree.0.path()), [2, 3].into_iter().collect()).expect("a machine");
    assert_eq!(share(&desktop()), None);
    assert_eq!(share(&new().without("/sys/kernel/debug/sched")), Some((50_000_000, 1_000_000_000)));
    assert_eq!(share(&server("30000000")), Some((30_000_000, 1_000_000_000)));
    assert_eq!(share(&server("0")), None);
}

#[test]
fn a_hierarchy_mounted_with_favordynmods_is_ok() {
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
