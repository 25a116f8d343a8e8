//! Scheduling attributes and affinity of threads: `sched_setattr(2)`, `sched_setaffinity(2)`.

#![expect(unsafe_code, reason = "sched_setattr(2)")]

use std::io;

use serde::{Deserialize, Serialize};

/// A thread's scheduling policy with its parameters (Linux `include/uapi/linux/sched/types.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The policy's number (`SCHED_OTHER` 0, `SCHED_FIFO` 1, ...).
    pub policy: u32,
    /// Flags, `SCHED_FLAG_RESET_ON_FORK` among them.
    pub flags: u64,
    /// -20 to 19; under other policies than the fair ones, what the thread has when it is fair again.
    pub nice: i32,
    /// For `SCHED_FIFO` and `SCHED_RR`: 1 to 99, larger is more urgent.
    pub priority: u32,
    /// For `SCHED_DEADLINE`: the budget. For the fair policies the slice that the thread asked for, 0 for the
    /// kernel's own (Linux 6.12, `__setparam_fair` in `kernel/sched/syscalls.c`).
    pub runtime_ns: u64,
    /// For `SCHED_DEADLINE`: the relative deadline.
    pub deadline_ns: u64,
    /// For `SCHED_DEADLINE`: the period.
    pub period_ns: u64,
}

/// `SCHED_OTHER`.
pub const OTHER: u32 = 0;
/// `SCHED_FIFO`.
pub const FIFO: u32 = 1;
/// `SCHED_RR`.
pub const RR: u32 = 2;
/// `SCHED_IDLE`.
pub const IDLE: u32 = 5;
/// `SCHED_DEADLINE`.
pub const DEADLINE: u32 = 6;
/// `SCHED_EXT`: a scheduler that is loaded as a BPF program. Without one, as `SCHED_OTHER`.
pub const EXT: u32 = 7;

impl Attributes {
    /// `SCHED_FIFO` at `priority`, inherited by children.
    pub const fn fifo(priority: u32) -> Attributes {
        Attributes { policy: FIFO, flags: 0, nice: 0, priority, runtime_ns: 0, deadline_ns: 0, period_ns: 0 }
    }

    /// `SCHED_OTHER` at nice 0.
    pub const fn other() -> Attributes {
        Attributes { policy: OTHER, ..Attributes::fifo(0) }
    }

    /// `SCHED_IDLE`: only time that no other thread wants.
    pub const fn idle() -> Attributes {
        Attributes { policy: IDLE, ..Attributes::fifo(0) }
    }

    /// `SCHED_EXT`.
    pub const fn ext() -> Attributes {
        Attributes { policy: EXT, ..Attributes::fifo(0) }
    }

    /// `SCHED_DEADLINE` with implicit deadline. The kernel wants `SCHED_FLAG_RESET_ON_FORK` for threads that
    /// fork.
    pub const fn deadline(runtime_ns: u64, period_ns: u64) -> Attributes {
        let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        Attributes {
            policy: DEADLINE,
            flags,
            runtime_ns,
            deadline_ns: period_ns,
            period_ns,
            ..Attributes::fifo(0)
        }
    }

    /// Have both the same policy and, in it, the same priority?
    pub fn is_same_class(&self, other: &Attributes) -> bool {
        (self.policy, self.priority) == (other.policy, other.priority)
    }

    /// The policy's name as in `chrt(1)`.
    pub fn policy_name(&self) -> &'static str {
        match self.policy {
            0 => "SCHED_OTHER",
            1 => "SCHED_FIFO",
            2 => "SCHED_RR",
            3 => "SCHED_BATCH",
            5 => "SCHED_IDLE",
            6 => "SCHED_DEADLINE",
            7 => "SCHED_EXT",
            _ => "unknown",
        }
    }
}

/// Size of the kernel's structure in its first version, which every kernel takes.
const SIZE: u32 = size_of::<libc::sched_attr>() as u32;

/// Reads the attributes of thread `tid` (0: the calling thread).
///
/// # Errors
/// As `sched_getattr(2)`: `ESRCH` when the thread is gone.
pub fn attributes(tid: i32) -> io::Result<Attributes> {
    let mut raw = read_raw(tid)?;
    // The kernel tells the nice value with the attributes of fair threads alone (`get_params` in Linux
    // `kernel/sched/syscalls.c`).
    let nice = rustix::process::getpriority_process(pid(tid))?;
    let is_fair = !matches!(raw.sched_policy, FIFO | RR | DEADLINE);
    if is_fair && raw.sched_runtime == default_slice_ns() {
        raw.sched_runtime = 0;
    }
    Ok(Attributes {
        policy: raw.sched_policy,
        flags: raw.sched_flags,
        nice,
        priority: raw.sched_priority,
        runtime_ns: raw.sched_runtime,
        deadline_ns: raw.sched_deadline,
        period_ns: raw.sched_period,
    })
}

/// The slice of fair threads that asked for none, which the kernel tells like one that was asked for. Setting
/// it would fix it: the thread would keep it when the machine's slice changes. 0 where the kernel tells no
/// slices (before Linux 6.12).
fn default_slice_ns() -> u64 {
    static SLICE_NS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let ask = || {
        set_attributes(0, &Attributes::other()).ok()?;
        Some(read_raw(0).ok()?.sched_runtime)
    };
    // A thread of its own asks for none, whatever the caller has.
    let thread = || std::thread::Builder::new().name("fair slice".into()).spawn(ask);
    *SLICE_NS.get_or_init(|| thread().ok().and_then(|thread| thread.join().ok().flatten()).unwrap_or(0))
}

fn read_raw(tid: i32) -> io::Result<libc::sched_attr> {
    let mut raw = to_raw(&Attributes::other());
    // SAFETY: the kernel writes at most SIZE bytes to `raw`, which is that large and plain data.
    let code = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut raw, SIZE, 0u32) };
    if code == 0 { Ok(raw) } else { Err(io::Error::last_os_error()) }
}

/// What the calling thread used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its processor time in ns, to 2 us, up to when it came to its processor or the last tick there.
    pub ran_ns: u64,
    /// How often it gave up its processor by itself: it slept, or was stopped by a signal or a freezer.
    pub sleeps: u64,
}

/// What the calling thread used so far; nothing where the kernel does not say.
pub fn usage() -> Usage {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to `raw`, which is plain data and valid when it is all zero.
    let raw = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, raw.as_mut_ptr());
        raw.assume_init()
    };
    let ns = |time: libc::timeval| (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1_000;
    Usage { ran_ns: ns(raw.ru_utime) + ns(raw.ru_stime), sleeps: raw.ru_nvcsw as u64 }
}

/// Sets the attributes of thread `tid` (0: the calling thread).
///
/// # Errors
/// As `sched_setattr(2)`: `EPERM` without CAP_SYS_NICE or where the cgroup has no real-time runtime, `EBUSY`
/// when `SCHED_DEADLINE` is not admitted, `ESRCH` when the thread is gone.
pub fn set_attributes(tid: i32, to: &Attributes) -> io::Result<()> {
    let raw = to_raw(to);
    // SAFETY: the kernel only reads `raw`, whose size field says how large it is.
    let code = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const raw, 0u32) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As [`set_attributes`], and the nice value also where the policy does not use it: a thread that was fair
/// meanwhile has lost it.
///
/// # Errors
/// As [`set_attributes`] and `setpriority(2)`.
pub fn restore_attributes(tid: i32, to: &Attributes) -> io::Result<()> {
    set_attributes(tid, to)?;
    if attributes(tid)?.nice == to.nice {
        Ok(())
    } else {
        Ok(rustix::process::setpriority_process(pid(tid), to.nice)?)
    }
}

/// Without the flags for utilisation clamps, whose fields this version of the structure lacks.
fn to_raw(attributes: &Attributes) -> libc::sched_attr {
    let clamps = libc::SCHED_FLAG_UTIL_CLAMP_MIN as u64 | libc::SCHED_FLAG_UTIL_CLAMP_MAX as u64;
    libc::sched_attr {
        size: SIZE,
        sched_policy: attributes.policy,
        sched_flags: attributes.flags & !clamps,
        sched_nice: attributes.nice,
        sched_priority: attributes.priority,
        sched_runtime: attributes.runtime_ns,
        sched_deadline: attributes.deadline_ns,
        sched_period: attributes.period_ns,
    }
}

fn pid(tid: i32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(tid)
}

/// Puts every thread of a process into the fair class. Threads that have ended meanwhile are skipped.
///
/// A real-time thread that waits in the kernel for such a process may spin without end for one of its threads
/// that exits on the same processor with a lower priority (docs/live.md, "Locks of the kernel").
pub fn demote_process(process: i32) {
    for thread in super::proc::threads(process).unwrap_or_default() {
        let _ = set_attributes(thread, &Attributes::other());
    }
}

/// The processors that thread `tid` (0: the calling thread) may run on, ascending.
///
/// # Errors
/// As `sched_getaffinity(2)`.
pub fn affinity(tid: i32) -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(pid(tid))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Confines thread `tid` (0: the calling thread) to `processors`.
///
/// # Errors
/// As `sched_setaffinity(2)`: `EINVAL` when none of them is in the thread's cpuset.
pub fn set_affinity(tid: i32, processors: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in processors.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(pid(tid), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_calling_thread_are_read_and_set_to_themselves() {
        let mine = attributes(0).expect("one's own attributes can be read");
        set_attributes(0, &mine).expect("and set to what they are");
        assert_eq!(attributes(0).expect("read again"), mine);
    }

    #[test]
    fn the_nice_value_beneath_another_policy_comes_back() {
        let work = || {
            rustix::process::setpriority_process(None, 7).expect("one may be nicer");
            let read = || attributes(0).expect("readable");
            let idle = Attributes { nice: 7, ..Attributes::idle() };
            let fifo = Attributes { nice: 7, ..Attributes::fifo(1) };
            let round_robin = Attributes { policy: RR, ..fifo };
            for before in [idle, fifo, round_robin] {
                if restore_attributes(0, &before).is_err() {
                    return eprintln!("skipped: real-time priorities are not permitted");
                }
                assert_eq!(read(), before);
                set_attributes(0, &Attributes::fifo(2)).expect("as an enforcer does");
                set_attributes(0, &Attributes::other()).expect("as the end of enforcement does");
                restore_attributes(0, &before).expect("put back");
                assert_eq!(read(), before);
            }
        };
        std::thread::spawn(work).join().expect("a thread of its own: nice values stay");
    }

    #[test]
    fn a_slice_comes_back_that_a_thread_asked_for_and_no_other() {
        let work = || {
            set_attributes(0, &Attributes::other()).expect("one may be fair");
            assert_eq!(attributes(0).expect("readable"), Attributes::other());
            let asked = Attributes { runtime_ns: 7_777_777, ..Attributes::other() };
            set_attributes(0, &asked).expect("one may ask");
            // Kernels before 6.12 know no slices.
            let told = attributes(0).expect("readable").runtime_ns;
            assert!([0, 7_777_777].contains(&told), "{told} ns");
        };
        std::thread::spawn(work).join().expect("a thread of its own");
    }

    #[test]
    fn a_thread_that_does_not_exist_is_an_error() {
        let gone = attributes(i32::MAX - 1).expect_err("there are not that many threads");
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn the_affinity_names_a_processor() {
        let mine = affinity(0).expect("readable");
        assert!(!mine.is_empty());
        set_affinity(0, &mine).expect("unchanged");
    }
}
