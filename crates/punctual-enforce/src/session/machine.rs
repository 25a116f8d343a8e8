//! What a session changes of the machine beside its units' threads, each change written down first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::error::Error;
use crate::journal::Journal;
use crate::notice::Notice;
use crate::unit::HIGHEST;
use punctual_doctor::doctor;
use punctual_linux::os::proc;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::preflight::{self, RT_RUNTIME};

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

/// Watches the kernel's limit for real-time threads, which the run has lifted.
pub(super) struct LimitWatch {
    /// What it was at the last check; nothing where the kernel has none.
    runtime_us: Option<i64>,
}

impl LimitWatch {
    /// From now on.
    pub(super) fn begin() -> LimitWatch {
        LimitWatch { runtime_us: preflight::rt_runtime_us() }
    }

    /// A notice if another program has set a limit since the last check.
    pub(super) fn check(&mut self) -> Option<Notice> {
        let now = preflight::rt_runtime_us()?;
        let is_new = self.runtime_us.replace(now) != Some(now);
        (is_new && now >= 0).then_some(Notice::RtLimit { runtime_us: now })
    }
}

/// The real-time priority of the kernel's threads that grace periods need: above every unit, below enforcers.
const RCU_PRIORITY: u32 = HIGHEST + 1;

/// Keeps the kernel's RCU going beside units that spin. The kernel moves threads between cgroups with its
/// cgroup lock held through a grace period, and enforcers need that lock to park.
///
/// - Threads of RCU that may run elsewhere are kept off the pools' processors. A real-time unit that spins
///   where `rcu_preempt` is ready to run stretches a grace period to the period of the fair server, 1 s (958
///   ms against 6 to 14 ms, measured on Linux 6.18).
/// - PREEMPT_RT does the work of a grace period in threads at real-time priority 1. Below busy units these
///   threads do not run until a unit is parked. `rcuc/N` reports the processor's quiescent states (Linux
///   `kernel/rcu/tree.c`), `ktimers/N` reads under RCU (`kernel/softirq.c`), and `rcub/N` lends its priority
///   to preempted readers (`kernel/rcu/tree_plugin.h`). They get a priority one above the units.
///
/// Threads that may not be changed stay as they are.
pub(super) fn keep_rcu_going(journal: &mut Journal, beside: &[usize]) {
    let threads = ["rcu", "ktimers/"].map(|prefix| proc::kernel_threads(prefix).unwrap_or_default());
    for tid in threads.into_iter().flatten() {
        let before = journal.kernel_thread_affinity(tid);
        let (Ok(before), Ok(now), Ok(name)) = (before, sched::affinity(tid), proc::name(tid)) else {
            continue;
        };
        let others: Vec<usize> = before.iter().copied().filter(|cpu| !beside.contains(cpu)).collect();
        // Other runs may keep it off theirs. Where it is off these processors already, this run keeps it so
        // when the other one ends.
        let allowed: Vec<usize> = others.iter().copied().filter(|cpu| now.contains(cpu)).collect();
        if others != before && !allowed.is_empty() {
            let _ = journal.change_kernel_thread(tid, || sched::set_affinity(tid, &allowed));
        }
        let is_of_pool = others.is_empty() && (name.starts_with("rcuc/") || name.starts_with("ktimers/"));
        if is_of_pool || name.starts_with("rcub/") {
            let _ = raise(tid, journal);
        }
    }
}

/// Gives a thread of the kernel its priority above the units, unless it has a higher one.
fn raise(tid: i32, journal: &mut Journal) -> io::Result<()> {
    if sched::attributes(tid)?.priority >= RCU_PRIORITY {
        return Ok(());
    }
    journal.change_kernel_thread(tid, || sched::set_attributes(tid, &Attributes::fifo(RCU_PRIORITY)))
}
