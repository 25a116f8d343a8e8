//! Taking threads that exist already as a unit: into groups of their own, with everything written down first.

use std::io;
use std::path::Path;

use super::clock::Clock;
use super::{LiveUnit, UnitThreads};
use crate::journal::{Identity, Journal};
use punctual_linux::os::cgroup::{self, Group};
use punctual_linux::os::proc;

impl LiveUnit {
    /// Takes threads as a unit: moves them to the group `unit<index>` in the group at `parent`. A single
    /// thread has been written down in `journal`, and `parent` is in the threaded domain of its process; the
    /// threads of a tree are written down first. Nothing about how the threads are scheduled changes yet.
    ///
    /// # Errors
    /// A thread is gone, cannot be read or moved.
    pub fn adopt(
        name: &str,
        threads: UnitThreads,
        parent: &Path,
        index: usize,
        journal: &mut Journal,
    ) -> io::Result<LiveUnit> {
        let identity = threads.identity();
        if Identity::of(identity.id)? != identity {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let directory = parent.join(format!("unit{index}"));
        let (group, clock) = match threads {
            UnitThreads::Thread(thread) => {
                debug_assert!(
                    journal.covers(thread),
                    "thread {} is written down before it is moved",
                    thread.id
                );
                adopt_thread(thread, &directory)?
            }
            UnitThreads::ProcessTree(root) => adopt_tree(root, &directory, journal)?,
        };
        let mut unit = LiveUnit::new(name, threads, group, clock);
        unit.read_account()?;
        Ok(unit)
    }

    /// What it ran since it was adopted is not charged, if its clock can be read.
    pub fn begin_account(&mut self) {
        // If it is gone, the next look notices.
        let _ = self.read_account();
    }

    fn read_account(&mut self) -> io::Result<()> {
        let account = self.clock.read()?;
        (self.last, self.first) = (account.ran, account.ran);
        self.account = account;
        Ok(())
    }
}

/// Moves the thread to a threaded group at `directory`.
fn adopt_thread(thread: Identity, directory: &Path) -> io::Result<(Group, Clock)> {
    let group = Group::make(directory, true)?;
    group.add_thread(thread.id)?;
    Ok((group, Clock::of_thread(proc::process_of(thread.id)?, thread.id)?))
}

/// Moves the process and its descendants to a group at `directory`.
fn adopt_tree(root: Identity, directory: &Path, journal: &mut Journal) -> io::Result<(Group, Clock)> {
    let pid = rustix::process::Pid::from_raw(root.id).ok_or(io::ErrorKind::InvalidInput)?;
    let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let group = Group::make(directory, false)?;
    // A process that is forked meanwhile is found in the next round.
    while move_tree(root.id, &group, journal)? > 0 {}
    let clock = Clock::of_tree(root, descriptor, &group)?;
    Ok((group, clock))
}

/// Moves the processes of a tree that are not in `group` yet; returns how many there were.
fn move_tree(root: i32, group: &Group, journal: &mut Journal) -> io::Result<u32> {
    let mut moved = 0;
    for process in tree(root)? {
        if !cgroup::is_inside(process, group.directory()).unwrap_or(true) {
            for tid in proc::threads(process).unwrap_or_default() {
                let _ = journal.record_thread(tid);
            }
            moved += u32::from(group.add_process(process).is_ok());
        }
    }
    Ok(moved)
}

/// A process and its descendants.
pub(crate) fn tree(root: i32) -> io::Result<Vec<i32>> {
    let parents: Vec<(i32, i32)> =
        proc::processes()?.into_iter().filter_map(|pid| Some((pid, proc::stat(pid).ok()?.parent))).collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        next += 1;
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
    }
    Ok(tree)
}
