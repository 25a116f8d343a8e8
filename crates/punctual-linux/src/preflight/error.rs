//! What this machine lacks for a live run, each with the cure on a line of its own.

use std::io;
use std::path::PathBuf;

use super::list;
use crate::os::cgroup;

/// Why a run does not start: what is wrong, and on the next line what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pool has a processor that is not online.
    #[error(
        "processor {processor} of the host file is not there: this machine has {}\n  \
         give the pool processors that are online, for example --set 'pool.NAME.processors=[1]'",
        list(online)
    )]
    Offline {
        /// The processor.
        processor: usize,
        /// Those that are online.
        online: Vec<usize>,
    },
    /// A pool has a processor that this process may not use.
    #[error(
        "processor {processor} is outside this process's cpuset or affinity ({})\n  \
         start punctual where the processor is allowed: see taskset -p $$ and the cpuset of this cgroup",
        list(allowed)
    )]
    Forbidden {
        /// The processor.
        processor: usize,
        /// Those that this process may use.
        allowed: Vec<usize>,
    },
    /// The pools have every processor.
    #[error(
        "the pools take all processors ({}): the rest of the machine could starve\n  \
         leave a processor to the host in the host file, or insist with --starve",
        list(.0)
    )]
    NoProcessorLeft(Vec<usize>),
    /// The limit of tasks is reached.
    #[error("no thread can be started\n  raise the limit of tasks of this cgroup")]
    NoThread,
    /// Real-time group scheduling gives this process no runtime.
    #[error(
        "the cgroup {0} of this process has no real-time runtime (RT group scheduling)\n  \
         echo 950000 > /sys/fs/cgroup/cpu{0}/cpu.rt_runtime_us, or start in a group that has some"
    )]
    NoRtRuntime(String),
    /// The kernel does not let this process be real-time.
    #[error(
        "real-time priorities are not permitted: CAP_SYS_NICE is missing\n  \
         run as root, or from a service manager that grants CAP_SYS_NICE and CAP_SYS_PTRACE to this one \
         service (systemd: AmbientCapabilities=), or raise RLIMIT_RTPRIO"
    )]
    NotPermitted,
    /// Real-time priorities fail for another reason.
    #[error("real-time priorities cannot be set: {0}\n  see sched(7)")]
    RealTime(#[source] io::Error),
    /// cgroup version 2 is not mounted.
    #[error("threads cannot be parked\n  {0}")]
    NoCgroups(#[source] cgroup::MountError),
    /// cgroup version 2 is read-only for this process.
    #[error(
        "no cgroup can be made below {}: {source}\n  \
         run as root, or in a container with a writable cgroup version 2 (delegated)",
        mount.display()
    )]
    CgroupsReadOnly {
        /// Where cgroup version 2 is mounted.
        mount: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kernel lacks `cgroup.freeze` or `pidfd_open(2)`.
    #[error(
        "this kernel ({0}) cannot freeze cgroups of version 2, or name processes by descriptors\n  \
         Linux 5.3 or later is needed"
    )]
    OldKernel(String),
    /// A thread to attach to has ended.
    #[error("there is no thread {0}\n  list them with: ps -eLo pid,tid,comm")]
    ThreadGone(i32),
    /// What the system says of a thread to attach to cannot be read.
    #[error("thread {thread} cannot be read: {source}\n  {}", cure(source))]
    ThreadUnreadable {
        /// The thread.
        thread: i32,
        /// What the system says.
        source: io::Error,
    },
    /// A thread to attach to belongs to another user.
    #[error(
        "thread {thread} may not be changed: {source}\n  \
         run as root, or as the owner of the process with CAP_SYS_NICE"
    )]
    ThreadForbidden {
        /// The thread.
        thread: i32,
        /// What the system says.
        source: io::Error,
    },
}

/// What helps where a thread cannot be read.
fn cure(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "raise the limit of open files (a unit takes four): ulimit -n 65536",
        Some(libc::ENFILE) => "raise the machine's limit of open files: sysctl fs.file-max",
        _ => "run as root, or as the owner of the process",
    }
}
