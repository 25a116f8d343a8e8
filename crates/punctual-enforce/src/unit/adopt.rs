//! Taking threads that exist already as a unit: into groups of their own, with everything written down first.

use std::io;
use std::path::Path;

use super::clock::Clock;
use super::{LiveUnit, UnitThreads};
use crate::journal::{Change, Identity, Journal};
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
                let group = cgroup::group_at(&cgroup::mount()?, &directory);
                journal.record(&Change::Unit { thread, group: group.ok_or(io::ErrorKind::InvalidInput)? })?;
                adopt_thread(thread, &directory)?
            }
            UnitThreads::ProcessTree(root) => adopt_tree(root, &directory, journal)?,
        };
        let mut unit = LiveUnit::new(name, threads, group, clock);
        unit.read_account()?;
        Ok(unit)
    }

    /// Takes all processes of the cgroup at `home` as a unit, as long as the process `first` lives: moves
    /// them to the group `unit<index>` in the group at `parent`, which is in that cgroup. Nothing about how
    /// they are scheduled changes yet.
    ///
    /// # Errors
    /// As [`LiveUnit::adopt`].
    pub fn adopt_group(
        name: &str,
        first: Identity,
        home: &Path,
        parent: &Path,
        index: usize,
        journal: &mut Journal,
    ) -> io::Result<LiveUnit> {
        if Identity::of(first.id)? != first {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let pid = rustix::process::Pid::from_raw(first.id).ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let directory = parent.join(format!("unit{index}"));
        let group = cgroup::group_at(&cgroup::mount()?, &directory).ok_or(io::ErrorKind::InvalidInput)?;
        journal.record_threads(first.id)?;
        journal.record(&Change::Unit { thread: first, group })?;
        let group = Group::make(&directory, false)?;
        // Processes that were forked meanwhile are found in the next round.
        for _ in 0..ROUNDS_MAX {
            if join(first.id, &cgroup::processes_in(home)?, &directory, journal)? == 0 {
                break;
            }
        }
        let clock = Clock::of_tree(first, descriptor, &group)?;
        let mut unit = LiveUnit::new(name, UnitThreads::ProcessTree(first), group, clock);
        unit.read_account()?;
        Ok(unit)
    }

    /// What it ran since it was adopted is not charged, if its clock can be read.
    pub fn begin_account(&mut self) {
        // If it is gone, the next look notices.
        let _ = self.read_account();
    }

    /// Reads its clock again, after the kernel has charged it: nothing that it ran is counted twice.
    pub fn resume_account(&mut self) {
        let ran = self.cpu_time();
        self.begin_account();
        self.first = self.last.saturating_sub(ran);
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
    // A process that is forked meanwhile is found in the next round. One that has ended, and that its parent
    // does not collect, never moves.
    for _ in 0..ROUNDS_MAX {
        if move_tree(root.id, &group, journal)? == 0 {
            break;
        }
    }
    let clock = Clock::of_tree(root, descriptor, &group)?;
    Ok((group, clock))
}

/// How often the processes of a tree are listed at most, while it starts others.
const ROUNDS_MAX: usize = 100;

/// Moves processes to the group at `directory`, of the unit whose first process is `first`, every thread
/// written down first; returns how many there were.
///
/// # Errors
/// The journal cannot be written, or a process that is still there cannot be moved.
pub(crate) fn join(
    first: i32,
    processes: &[i32],
    directory: &Path,
    journal: &mut Journal,
) -> io::Result<usize> {
    let mut moved = 0;
    for &process in processes {
        let member = Change::Member { process, of: first };
        let recorded = journal.record_threads(process).and_then(|()| journal.record(&member));
        match recorded.and_then(|()| cgroup::move_to(directory, process)) {
            Ok(()) => moved += 1,
            Err(error) if proc::is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

/// Moves the processes of a tree that are not in `group` yet; returns how many there were.
///
/// # Errors
/// The journal cannot be written, or a process that is still there cannot be moved.
fn move_tree(root: i32, group: &Group, journal: &mut Journal) -> io::Result<u32> {
    let mut moved = 0;
    for process in tree(root)? {
        if cgroup::is_inside(process, group.directory()).unwrap_or(true) {
            continue;
        }
        match journal.record_threads(process).and_then(|()| group.add_process(process)) {
            Ok(()) => moved += 1,
            Err(error) if proc::is_gone(&error) => {}
            Err(error) => return Err(error),
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::journal::HeldJournal;

    #[test]
    fn a_process_that_cannot_be_written_down_is_not_moved() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("cgroup.freeze"), "0").expect("written");
        let group = Group::make(directory.path(), false).expect("a group");
        let mut child = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().expect("a process");
        let id = child.id() as i32;
        let path = directory.path().join("1.journal");
        let _held = HeldJournal::create(&path).expect("made");
        let mut journal = Journal::begin(&path, "host").expect("begun");
        let has_groups = cgroup::is_inside(id, directory.path()).is_ok();
        let unwritten = {
            journal.make_unwritable();
            move_tree(id, &group, &mut journal)
        };
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        if !has_groups {
            return eprintln!("skipped: cgroup version 2 is not mounted");
        }
        unwritten.expect_err("the journal cannot be written");
        assert!(!directory.path().join("cgroup.procs").exists(), "it was moved");
    }
}
