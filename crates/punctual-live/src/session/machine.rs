//! What a session changes of the machine beside its units' threads, each change written down first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::error::Error;
use crate::doctor;
use crate::journal::Journal;
use crate::os::proc;
use crate::os::sched::{self, Attributes};
use crate::preflight::{self, RT_RUNTIME};

/// Makes changes that the doctor proposes.
pub(super) struct JournaledChanges<'a> {
    pub journal: &'a mut Journal,
    /// Files that undo something when they are closed.
    pub held_open: &'a mut Vec<File>,
}

impl doctor::Apply for JournaledChanges<'_> {
    fn set_file(&mut self, path: &Path, value: &str, restore: &str) -> io::Result<()> {
        self.journal.set_file_back_to(path, value, restore)
    }

    fn hold_open(&mut self, path: &Path, value: i32) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&value.to_ne_bytes())?;
        self.held_open.push(file);
        Ok(())
    }

    fn set_thread_priority(&mut self, tid: u32, name: &str, priority: u32) -> io::Result<()> {
        let tid = tid as i32;
        if proc::name(tid)? != name {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the thread has ended"));
        }
        self.journal.change_kernel_thread(tid, || sched::set_attributes(tid, &Attributes::fifo(priority)))
    }
}

/// Lifts the kernel's limit for real-time threads. Where another run has lifted it, this run keeps it lifted
/// when that one ends.
pub(super) fn lift_rt_limit(journal: &mut Journal) -> Result<(), Error> {
    let is_lifted = fs::read_to_string(RT_RUNTIME).is_ok_and(|now| now.trim() == "-1");
    if preflight::rt_limit().is_none() && !is_lifted {
        return Ok(());
    }
    let set = journal.set_file(Path::new(RT_RUNTIME), "-1");
    set.map_err(|source| Error::Parameter { file: RT_RUNTIME, source })
}

/// Keeps the threads of RCU off the pools' processors. The kernel moves threads between cgroups with its
/// cgroup lock held through a grace period, and a real-time unit that spins where `rcu_preempt` is ready to
/// run stretches that to the period of the fair server, 1 s (958 ms against 6 to 14 ms, measured on Linux
/// 6.18). Enforcers need that lock to park. Threads that may not be moved, and machines without a processor
/// to spare, stay as they are.
pub(super) fn keep_rcu_away(journal: &mut Journal, from: &[usize]) {
    for tid in proc::kernel_threads("rcu").unwrap_or_default() {
        let Ok(before) = sched::affinity(tid) else { continue };
        let others: Vec<usize> = before.iter().copied().filter(|cpu| !from.contains(cpu)).collect();
        if others.is_empty() || others == before {
            continue;
        }
        let _ = journal.change_kernel_thread(tid, || sched::set_affinity(tid, &others));
    }
}
