//! Taking threads that exist already as a unit: into groups of their own, with everything written down first.

use std::io;
use std::path::Path;

use super::clock::Clock;
use super::{LiveUnit, UnitThreads};
use crate::journal::{Identity, Journal};
use crate::os::cgroup::{self, Group};
use crate::os::proc;

impl LiveUnit {
    /// Takes threads as a unit: writes down in `journal` how they are, and moves them to the group
    /// `unit<index>` below `domain`, the group of their domain. A single thread's process moves to `domain`
    /// first. Nothing about how the threads are scheduled changes yet.
    ///
    /// # Errors
    /// A thread is gone, cannot be read or moved.
    pub fn adopt(
        name: &str,
        threads: UnitThreads,
        domain: &Group,
        index: usize,
        journal: &mut Journal,
    ) -> io::Result<LiveUnit> {
        let identity = threads.identity();
        if Identity::of(identity.id)? != identity {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let directory = domain.directory().join(format!("unit{index}"));
        let (group, clock) = match threads {
            UnitThreads::Thread(thread) => adopt_thread(thread, domain, &directory, journal)?,
            UnitThreads::ProcessTree(root) => adopt_tree(root, &directory, journal)?,
        };
        let mut unit = LiveUnit::new(name, threads, group, clock);
        unit.last = unit.clock.read()?;
        unit.first = unit.last;
        Ok(unit)
    }
}

/// Moves the thread to a threaded group at `directory`, its process to `domain`.
fn adopt_thread(
    thread: Identity,
    domain: &Group,
    directory: &Path,
    journal: &mut Journal,
) -> io::Result<(Group, Clock)> {
    let process = proc::process_of(thread.id)?;
    if !is_inside(process, domain.directory())? {
        for tid in proc::threads(process)? {
            journal.record_thread(tid)?;
        }
        domain.add_process(process)?;
    }
    let group = Group::make(directory, true)?;
    group.add_thread(thread.id)?;
    Ok((group, Clock::of_thread(process, thread.id)?))
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
        if !is_inside(process, group.directory()).unwrap_or(true) {
            for tid in proc::threads(process).unwrap_or_default() {
                let _ = journal.record_thread(tid);
            }
            moved += u32::from(group.add_process(process).is_ok());
        }
    }
    Ok(moved)
}

/// A process and its descendants.
fn tree(root: i32) -> io::Result<Vec<i32>> {
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

/// Is the process in `directory` or a group below it?
fn is_inside(process: i32, directory: &Path) -> io::Result<bool> {
    let group = cgroup::group_of(process)?;
    Ok(cgroup::below(&cgroup::mount()?, &group).starts_with(directory))
}
