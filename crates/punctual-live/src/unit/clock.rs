//! How much processor time a unit has used, and whether it has work.

use std::io;
use std::os::fd::OwnedFd;

use punctual_sched::Duration;
use rustix::event::{PollFd, PollFlags, poll};

use crate::journal::Identity;
use crate::os::cgroup::Group;
use crate::os::proc::{self, Reader, SleepReader};

/// A tree with more threads than this is taken for busy: they are not all read at each look.
const THREADS_READ_MAX: usize = 64;

/// How a unit's threads are read at a look. Never by `/proc/TID/stat`: a reader of that file waits while the
/// thread executes a new program (`do_task_stat` takes `exec_update_lock`, seen on Linux 6.18), and an
/// enforcer that waits for a thread that waits for the processor of another unit waits for ever.
#[derive(Debug)]
pub(super) enum Clock {
    Thread { schedstat: Reader, sleep: SleepReader },
    ProcessTree { cpu_stat: Reader, root: OwnedFd, can_read_wchan: bool },
}

impl Clock {
    /// Of one thread of a process.
    pub fn of_thread(process: i32, thread: i32) -> io::Result<Clock> {
        let schedstat = Reader::open(&format!("/proc/{process}/task/{thread}/schedstat"))?;
        Ok(Clock::Thread { schedstat, sleep: SleepReader::of(thread, SleepReader::can_read_wchan(thread))? })
    }

    /// Of everything in `group`, which lives as long as the process of the descriptor `root`.
    pub fn of_tree(process: Identity, root: OwnedFd, group: &Group) -> io::Result<Clock> {
        let cpu_stat = Reader::open(&group.directory().join("cpu.stat").to_string_lossy())?;
        Ok(Clock::ProcessTree { cpu_stat, root, can_read_wchan: SleepReader::can_read_wchan(process.id) })
    }

    /// Processor time so far.
    pub fn read(&self) -> io::Result<Duration> {
        let mut buffer = [0u8; 512];
        let time = match self {
            Clock::Thread { schedstat, .. } => proc::parse_schedstat(schedstat.read(&mut buffer)?),
            Clock::ProcessTree { cpu_stat, .. } => proc::parse_cpu_stat(cpu_stat.read(&mut buffer)?),
        };
        time.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a clock that is not understood"))
    }

    /// Has the root of a tree ended? A thread that has ended fails to be read instead.
    pub fn has_ended(&self) -> bool {
        match self {
            Clock::Thread { .. } => false,
            Clock::ProcessTree { root, .. } => has_ended(root),
        }
    }

    /// Does a unit that `ran` since the last look want to run? `None` when its thread cannot be read.
    pub fn has_work(&self, ran: Duration, group: &Group) -> Option<bool> {
        match self {
            Clock::Thread { sleep, .. } => sleep.is_asleep().ok().map(|asleep| !asleep),
            // A tree that ran has work more often than not, and its threads need not be read.
            Clock::ProcessTree { can_read_wchan, .. } => {
                Some(!ran.is_zero() || is_any_thread_runnable(group, *can_read_wchan))
            }
        }
    }
}

fn is_any_thread_runnable(group: &Group, can_read_wchan: bool) -> bool {
    let is_asleep = |thread: i32| SleepReader::of(thread, can_read_wchan)?.is_asleep();
    let is_runnable = |thread: &i32| is_asleep(*thread).is_ok_and(|asleep| !asleep);
    let threads = group.threads().unwrap_or_default();
    threads.len() > THREADS_READ_MAX || threads.iter().any(is_runnable)
}

/// Has the process of this descriptor ended? A zombie has.
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
