//! Which files and cgroups a journal may name. A line that names others was not written by a run.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use punctual_linux::os::net::DEVICES;

/// Below these are the parameters of the kernel that a run changes: the real-time limit, and what the
/// doctor's checks propose.
const PARAMETERS: [&str; 10] = [
    "/proc/irq",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/watchdog_cpumask",
    "/proc/sys/net/core/rtnet_prio",
    "/sys/devices/system/cpu",
    "/sys/devices/virtual/workqueue",
    "/sys/kernel/debug/sched",
    "/sys/kernel/mm",
    "/sys/module/kvm/parameters",
];

/// Is it a parameter of the kernel that a run changes?
///
/// # Errors
/// It is not.
pub(super) fn check_parameter(path: &Path) -> io::Result<()> {
    let is_known = PARAMETERS.iter().any(|known| path.starts_with(known)) || is_device_parameter(path);
    if is_plain(path) && is_known {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "no run changes this file"))
}

/// Is it a file of a network device that a run changes: the switch of threaded NAPI, or a queue's mask?
fn is_device_parameter(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(DEVICES) else { return false };
    let names: Option<Vec<&str>> = below
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match names.as_deref() {
        Some([_, "threaded"]) => true,
        Some([_, "queues", queue, "rps_cpus"]) => queue.starts_with("rx-"),
        Some([_, "queues", queue, "xps_cpus"]) => queue.starts_with("tx-"),
        _ => false,
    }
}

/// Writes a parameter of the kernel that is there.
pub(super) fn write_parameter(path: &Path, value: &str) -> io::Result<()> {
    check_parameter(path)?;
    let mut file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(value.as_bytes())
}

/// What the cgroups of the run with this process are called: that of what it starts, and those of what it
/// attaches to.
pub(crate) fn group_names(run: i32) -> (String, String) {
    (format!("punctual-{run}"), format!("punctual-{run}-attached"))
}

/// The process of the run that a cgroup belongs to, by the group's path.
pub(super) fn run_of_group(group: &str) -> Option<i32> {
    group.split('/').find_map(|name| {
        let rest = name.strip_prefix("punctual-")?;
        rest.split_once('-').map_or(rest, |(run, _)| run).parse().ok()
    })
}

/// What the cgroup with the isolated partitions of the run with this process is called.
pub(crate) fn partitions_name(run: i32) -> String {
    format!("punctual-{run}-isolated")
}

/// Is `directory` a cgroup that a run may have made below `mount`, or in one that it made?
pub(super) fn is_group_of_run(mount: &Path, directory: &Path) -> bool {
    let is_of_run = |name: &OsStr| name.to_str().is_some_and(|name| run_of_group(name).is_some());
    is_plain(directory) && directory.strip_prefix(mount).is_ok_and(|below| below.iter().any(is_of_run))
}

/// Is it absolute, without `..`?
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_that_runs_change_are_written() {
        for path in [
            "/proc/sys/kernel/sched_rt_runtime_us",
            "/proc/sys/net/core/rtnet_prio",
            "/proc/irq/7/smp_affinity_list",
            "/sys/class/net/eth0/threaded",
            "/sys/class/net/eth0/queues/rx-0/rps_cpus",
            "/sys/class/net/eth0/queues/tx-11/xps_cpus",
        ] {
            check_parameter(Path::new(path)).expect("runs change it");
        }
        for path in [
            "/etc/shadow",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/net/core/bpf_jit_enable",
            "/sys/kernel/uevent_helper",
            "/proc/irq/../sys/kernel/core_pattern",
            "proc/irq/7/smp_affinity_list",
            "/sys/kernel/mm/../uevent_helper",
            "/sys/class/net/eth0/mtu",
            "/sys/class/net/eth0/device/remove",
            "/sys/class/net/eth0/device/threaded",
            "/sys/class/net/../threaded",
            "/sys/class/net/eth0/queues/../rps_cpus",
            "/sys/class/net/eth0/queues/rx-0/../../threaded",
        ] {
            assert!(check_parameter(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn groups_of_runs_are_told_by_their_names() {
        assert_eq!(run_of_group("/machine.slice/vm/punctual-77-attached/unit0"), Some(77));
        assert_eq!(run_of_group("/punctual-77/domain0"), Some(77));
        assert_eq!(run_of_group("/punctual.slice/punctual-exporter"), None);
        let mount = Path::new("/sys/fs/cgroup");
        assert!(is_group_of_run(mount, Path::new("/sys/fs/cgroup/punctual-77")));
        assert!(is_group_of_run(mount, Path::new("/sys/fs/cgroup/a/punctual-77-attached")));
        assert!(is_group_of_run(mount, Path::new("/sys/fs/cgroup/punctual-77-isolated/pool0/started")));
        for other in ["/sys/fs/cgroup", "/sys/fs/cgroup/machine.slice", "/tmp/punctual-77"] {
            assert!(!is_group_of_run(mount, Path::new(other)), "{other}");
        }
        assert!(!is_group_of_run(mount, Path::new("/sys/fs/cgroup/punctual-77/..")));
    }
}
