//! What a journal reads of the machine's threads and processes.

use std::fs;
use std::path::{Path, PathBuf};

use super::Identity;
use super::given::OwnScheduling;
use punctual_linux::os::{cgroup, proc};

/// The threads and processes of a machine. What has ended is `None` or left out.
pub(super) trait Table {
    /// The state, parent and start of a thread or process; zombies included.
    fn stat(&self, id: i32) -> Option<proc::Stat>;

    /// All processes.
    fn processes(&self) -> Vec<i32>;

    /// The threads of a process, ascending.
    fn threads(&self, process: i32) -> Vec<i32>;

    /// The process of a thread.
    fn process_of(&self, tid: i32) -> Option<i32>;

    /// How a thread is scheduled now.
    fn scheduling(&self, tid: i32) -> Option<OwnScheduling>;

    /// The version 2 group of a thread.
    fn group(&self, tid: i32) -> Option<String>;

    /// The threads in the group at `directory` and in the groups below it.
    fn threads_below(&self, directory: &Path) -> Vec<i32>;

    /// Does a process belong to the kernel, or is it a run or a guardian? These confine themselves.
    fn is_exempt(&self, process: i32) -> bool;

    /// The thread or process with this id.
    fn identity(&self, id: i32) -> Option<Identity> {
        Some(Identity { id, start_ticks: self.stat(id)?.start_ticks })
    }

    /// Is it still there? A zombie is not.
    fn is_alive(&self, thread: Identity) -> bool {
        self.stat(thread.id)
            .is_some_and(|stat| stat.start_ticks == thread.start_ticks && !matches!(stat.state, 'Z' | 'X'))
    }
}

/// This machine.
pub(super) struct Machine;

impl Table for Machine {
    fn stat(&self, id: i32) -> Option<proc::Stat> {
        proc::stat(id).ok()
    }

    fn processes(&self) -> Vec<i32> {
        proc::processes().unwrap_or_default()
    }

    fn threads(&self, process: i32) -> Vec<i32> {
        proc::threads(process).unwrap_or_default()
    }

    fn process_of(&self, tid: i32) -> Option<i32> {
        proc::process_of(tid).ok()
    }

    fn scheduling(&self, tid: i32) -> Option<OwnScheduling> {
        OwnScheduling::of(tid).ok()
    }

    fn group(&self, tid: i32) -> Option<String> {
        cgroup::group_of(tid).ok()
    }

    fn threads_below(&self, directory: &Path) -> Vec<i32> {
        let mut threads = cgroup::threads_in(directory).unwrap_or_default();
        groups_in(directory).for_each(|group| threads.extend(self.threads_below(&group)));
        threads
    }

    fn is_exempt(&self, process: i32) -> bool {
        let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        proc::is_kernel_thread(process) || program(process) == program(std::process::id() as i32)
    }
}

/// The groups in a group.
pub(super) fn groups_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
