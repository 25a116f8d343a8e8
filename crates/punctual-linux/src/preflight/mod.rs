//! What must be true before the first change.

mod error;

use std::fs;
use std::path::PathBuf;

use crate::os::sched::{self, Attributes};
use crate::os::{cgroup, proc};

pub use error::Error;

/// The kernel's limit for real-time threads.
pub const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// The period of that limit.
pub const RT_PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

/// Does this process run as root?
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Parses a list of processors as the kernel writes it: `0-3,7`. `None` when it is none.
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; a hostile list must not fill memory.
        if first > last || last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The processors that are online.
pub fn online() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_cpu_list(&text).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0])
}

/// Checks the processors that pools want and returns those that are left for everything else.
///
/// # Errors
/// One of them is offline or forbidden to this process, or nothing would be left for the rest of the machine
/// and `starve` is not set.
pub fn processors(wanted: &[usize], starve: bool) -> Result<Vec<usize>, Error> {
    let online = online();
    let allowed = sched::affinity(0).unwrap_or_else(|_| online.clone());
    for &processor in wanted {
        if !online.contains(&processor) {
            return Err(Error::Offline { processor, online });
        }
        if !allowed.contains(&processor) {
            return Err(Error::Forbidden { processor, allowed });
        }
    }
    let left: Vec<usize> = online.iter().copied().filter(|cpu| !wanted.contains(cpu)).collect();
    if left.is_empty() && !starve {
        return Err(Error::NoProcessorLeft(online));
    }
    Ok(if left.is_empty() { online } else { left })
}

/// Processors as people write them.
pub fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// May this process use real-time priorities? Tried on a thread of its own, which then ends.
///
/// # Errors
/// It may not, for one of several reasons.
pub fn real_time() -> Result<(), Error> {
    let tried = || sched::set_attributes(0, &Attributes::fifo(1));
    let thread = std::thread::Builder::new().spawn(tried).map_err(|_| Error::NoThread)?;
    let error = match thread.join() {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error,
        Err(_) => return Err(Error::NoThread),
    };
    if let Some((group, 0)) = rt_group() {
        return Err(Error::NoRtRuntime(group));
    }
    Err(match error.raw_os_error() {
        Some(libc::EPERM) => Error::NotPermitted,
        _ => Error::RealTime(error),
    })
}

/// This process's group of the version 1 `cpu` controller and its real-time runtime in us, if it has one.
pub fn rt_group() -> Option<(String, i64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|c| c == "cpu").then(|| path.to_owned())
    })?;
    let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let path = mounts.iter().map(|mount| format!("{mount}{group}/cpu.rt_runtime_us"));
    let text = path.into_iter().find_map(|path| fs::read_to_string(path).ok())?;
    Some((group, text.trim().parse().ok()?))
}

/// Can threads be parked? Returns where cgroup version 2 is mounted. Nothing is made: it would outlast a
/// `kill -9`.
///
/// # Errors
/// cgroup version 2 is missing, read-only or too old.
pub fn parking() -> Result<PathBuf, Error> {
    let mount = cgroup::mount().map_err(Error::NoCgroups)?;
    if let Err(e) = rustix::fs::access(&mount, rustix::fs::Access::WRITE_OK) {
        return Err(Error::CgroupsReadOnly { mount, source: e.into() });
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if kernel_version(&release).is_none_or(|version| version < FREEZER_SINCE) {
        return Err(Error::OldKernel(release.trim().to_owned()));
    }
    Ok(mount)
}

/// The first Linux with `cgroup.freeze` (5.2, `kernel/cgroup/freezer.c`) and `pidfd_open(2)` (5.3).
const FREEZER_SINCE: (u32, u32) = (5, 3);

/// Major and minor of a kernel's release: `6.18.5+deb` is (6, 18).
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// How long real-time threads may run in a period, in us; -1: without a limit. `None` where the kernel has no
/// limit (Linux 7.2).
pub fn rt_runtime_us() -> Option<i64> {
    fs::read_to_string(RT_RUNTIME).ok()?.trim().parse().ok()
}

/// The kernel's limit for real-time threads, if it binds: (runtime, period) in us.
pub fn rt_limit() -> Option<(i64, i64)> {
    let period = fs::read_to_string(RT_PERIOD).ok()?.trim().parse().ok()?;
    let runtime = rt_runtime_us()?;
    (runtime >= 0 && runtime < period).then_some((runtime, period))
}

/// May this process watch and change `tid`?
///
/// # Errors
/// It is gone, or belongs to another user.
pub fn thread(tid: i32) -> Result<(), Error> {
    for file in ["stat", "schedstat"] {
        fs::File::open(format!("/proc/{tid}/{file}")).map_err(|source| {
            if proc::is_gone(&source) {
                Error::ThreadGone(tid)
            } else {
                Error::ThreadUnreadable { thread: tid, source }
            }
        })?;
    }
    let same = sched::attributes(tid).and_then(|now| sched::set_attributes(tid, &now));
    same.map_err(|source| Error::ThreadForbidden { thread: tid, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels_have_a_major_and_a_minor() {
        assert_eq!(kernel_version("6.18.5-cloud+deb\n"), Some((6, 18)));
        assert_eq!(kernel_version("5.2"), Some((5, 2)));
        assert_eq!(kernel_version("unknown"), None);
    }

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list(""), Some(vec![]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("0-99999999999"), None);
        assert_eq!(parse_cpu_list("a"), None);
    }

    #[test]
    fn a_pool_of_all_processors_is_refused_unless_told() {
        let all = online();
        let error = processors(&all, false).expect_err("nothing would be left").to_string();
        assert!(error.contains("--starve"), "{error}");
        assert_eq!(processors(&all, true).expect("it is wanted"), all);
    }

    #[test]
    fn a_processor_that_is_not_there_is_named() {
        let error = processors(&[60_000], false).expect_err("no machine has it").to_string();
        assert!(error.contains("60000"), "{error}");
    }
}
