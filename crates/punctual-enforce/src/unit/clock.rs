//! How much processor time a unit has used, and whether it has work.

use std::io;
use std::os::fd::OwnedFd;

use punctual_sched::Duration;

use super::tree::Tree;
use crate::journal::Identity;
use punctual_linux::os::cgroup::Group;
use punctual_linux::os::proc::{self, Reader, SchedStat, SleepReader};

/// How a unit's threads are read at a look. Never by `/proc/TID/stat`: a reader of that file waits while the
/// thread executes a new program (`do_task_stat` takes `exec_update_lock`, seen on Linux 6.18). That thread
/// may in turn wait for a processor that only the waiting enforcer can free: a deadlock.
#[derive(Debug)]
pub(super) enum Clock {
    Thread { schedstat: Reader, sleep: SleepReader },
    ProcessTree(Tree),
}

impl Clock {
    /// Of one thread of a process.
    pub(super) fn of_thread(process: i32, thread: i32) -> io::Result<Clock> {
        let schedstat = Reader::open(&format!("/proc/{process}/task/{thread}/schedstat"))?;
        Ok(Clock::Thread { schedstat, sleep: SleepReader::of(thread, SleepReader::can_read_wchan(thread))? })
    }

    /// Of everything in `group`, which lives as long as the process of the descriptor `root`.
    pub(super) fn of_tree(process: Identity, root: OwnedFd, group: &Group) -> io::Result<Clock> {
        Ok(Clock::ProcessTree(Tree::new(process, root, group)?))
    }

    /// The account so far. That of a tree has processor time alone.
    pub(super) fn read(&self) -> io::Result<SchedStat> {
        let mut buffer = [0u8; 512];
        let account = match self {
            Clock::Thread { schedstat, .. } => proc::parse_schedstat(schedstat.read(&mut buffer)?),
            Clock::ProcessTree(tree) => tree.read()?.map(|ran| SchedStat { ran, ..SchedStat::default() }),
        };
        account.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a clock that is not understood"))
    }

    /// Has the root of a tree ended? A thread that has ended fails to be read instead.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Clock::Thread { .. } => false,
            Clock::ProcessTree(tree) => tree.has_ended(),
        }
    }

    /// Does a unit that `ran` since the last look want to run? `None` when its thread cannot be read.
    pub(super) fn has_work(&mut self, ran: Duration) -> Option<bool> {
        match self {
            Clock::Thread { sleep, .. } => sleep.is_asleep().ok().map(|asleep| !asleep),
            Clock::ProcessTree(tree) => Some(tree.has_work(ran)),
        }
    }
}
