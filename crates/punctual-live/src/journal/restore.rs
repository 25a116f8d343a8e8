//! Undoing what a journal says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Change, Identity, read};
use crate::os::sched::{self, Attributes};
use crate::os::{cgroup, proc};

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Threads that have their attributes, affinity and group again.
    pub threads: u64,
    /// Threads that had ended.
    pub threads_gone: u64,
    /// Files that say what they said before.
    pub files: u64,
    /// Processes of the run that were ended.
    pub children: u64,
    /// Groups removed.
    pub groups: u64,
    /// What could not be put back, and why.
    pub failures: Vec<String>,
}

/// Undoes what the journal at `path` says and removes it, unless something could not be undone.
///
/// # Errors
/// The journal cannot be read. What could not be put back is in [`Restored::failures`].
pub fn restore(path: &Path) -> io::Result<Restored> {
    let changes = read(path)?;
    let mut undo = Undo::of(&changes);
    // Priorities first: the thread that holds the lock which thawing takes may need the processor of a unit
    // that spins.
    undo.groups.iter().for_each(|directory| demote_tree(directory));
    undo.groups.iter().for_each(|directory| thaw_tree(directory));
    undo.end_children(&changes);
    for (process, threads) in &threads_by_process(&changes) {
        undo.restore_process(*process, threads);
    }
    undo.remove_groups();
    undo.restore_files(&changes);
    if undo.restored.failures.is_empty() {
        fs::remove_file(path)?;
    }
    Ok(undo.restored)
}

/// How a thread was before the run.
struct ThreadBefore<'a> {
    thread: Identity,
    attributes: &'a Attributes,
    affinity: &'a [usize],
    group: &'a str,
}

/// By process, how its threads were.
fn threads_by_process(changes: &[Change]) -> BTreeMap<i32, Vec<ThreadBefore<'_>>> {
    let mut by_process: BTreeMap<i32, Vec<ThreadBefore<'_>>> = BTreeMap::new();
    for change in changes {
        if let Change::Thread { thread, process, attributes, affinity, group } = change {
            let threads = by_process.entry(*process).or_default();
            // A thread may be adopted twice; its first record is how it was.
            if threads.iter().all(|known| known.thread != *thread) {
                threads.push(ThreadBefore { thread: *thread, attributes, affinity, group });
            }
        }
    }
    by_process
}

/// An undoing at work.
struct Undo<'a> {
    mount: PathBuf,
    /// The groups that the run made.
    groups: Vec<&'a Path>,
    restored: Restored,
}

impl<'a> Undo<'a> {
    fn of(changes: &'a [Change]) -> Undo<'a> {
        let mount = changes.iter().find_map(|change| match change {
            Change::Run { mount, .. } => Some(mount.clone()),
            _ => None,
        });
        let groups = changes.iter().filter_map(|change| match change {
            Change::Group { directory } => Some(directory.as_path()),
            _ => None,
        });
        Undo {
            mount: mount.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup")),
            groups: groups.collect(),
            restored: Restored::default(),
        }
    }

    fn fail(&mut self, failure: String) {
        self.restored.failures.push(failure);
    }

    /// Is the thread in a group that the run made?
    fn is_in_our_group(&self, tid: i32) -> bool {
        cgroup::group_of(tid).is_ok_and(|group| {
            let directory = cgroup::below(&self.mount, &group);
            self.groups.iter().any(|ours| directory.starts_with(ours))
        })
    }

    /// Ends the processes that the run started. All are killed before any is waited for: one that spins under
    /// a real-time priority keeps others from ending.
    fn end_children(&mut self, changes: &[Change]) {
        let alive = changes.iter().filter_map(|change| match change {
            Change::Child { process, .. } if process.is_alive() => Some(*process),
            _ => None,
        });
        let children: Vec<Identity> = alive.collect();
        for child in &children {
            self.kill(*child);
        }
        for child in &children {
            wait_for(*child);
            self.restored.children += 1;
        }
    }

    /// Kills a process of the run, and everything it started, which is in its group.
    fn kill(&self, process: Identity) {
        let group = cgroup::group_of(process.id).map(|group| cgroup::below(&self.mount, &group));
        let Some(pid) = rustix::process::Pid::from_raw(process.id) else { return };
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        // A threaded group cannot be killed as a whole: it holds this process alone.
        if let Ok(group) = group
            && self.groups.iter().any(|ours| group.starts_with(ours) && group != **ours)
        {
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
    }

    fn restore_process(&mut self, process: i32, threads: &[ThreadBefore<'_>]) {
        let alive: Vec<&ThreadBefore<'_>> =
            threads.iter().filter(|before| before.thread.is_alive()).collect();
        self.restored.threads_gone += (threads.len() - alive.len()) as u64;
        let Some(leader) = alive.iter().find(|b| b.thread.id == process).or(alive.first()) else { return };
        // Threads that came during the run inherited its attributes from a thread of the process.
        let is_known = |tid: i32| alive.iter().any(|before| before.thread.id == tid);
        let newcomers: Vec<i32> = proc::threads(process)
            .unwrap_or_default()
            .into_iter()
            .filter(|&tid| !is_known(tid) && self.is_in_our_group(tid))
            .collect();
        for before in &alive {
            match put_back(before.thread.id, before.attributes, before.affinity) {
                Ok(()) => self.restored.threads += 1,
                Err(e) if is_gone(&e) => self.restored.threads_gone += 1,
                Err(e) => self.fail(format!("thread {}: {e}", before.thread.id)),
            }
        }
        for tid in newcomers {
            match put_back(tid, leader.attributes, leader.affinity) {
                Err(e) if !is_gone(&e) => self.fail(format!("thread {tid}: {e}")),
                _ => self.restored.threads += 1,
            }
        }
        self.move_back(process, leader.group, &alive);
    }

    /// Moves a process out of the run's groups, then each of its threads to where it was.
    fn move_back(&mut self, process: i32, home: &str, threads: &[&ThreadBefore<'_>]) {
        if !proc::threads(process).unwrap_or_default().into_iter().any(|tid| self.is_in_our_group(tid)) {
            return;
        }
        let domain = cgroup::domain_of(&self.mount, home);
        match cgroup::move_process(&self.mount, &domain, process) {
            Err(e) if !is_gone(&e) => self.fail(format!("process {process}: back to {domain}: {e}")),
            _ => {}
        }
        for before in threads.iter().filter(|before| before.group != domain) {
            match cgroup::move_thread(&self.mount, before.group, before.thread.id) {
                Err(e) if !is_gone(&e) => {
                    self.fail(format!("thread {}: back to {}: {e}", before.thread.id, before.group));
                }
                _ => {}
            }
        }
    }

    fn remove_groups(&mut self) {
        for directory in self.groups.clone().into_iter().rev() {
            match remove_group(directory) {
                Ok(()) => self.restored.groups += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => self.fail(format!("{}: cannot be removed: {e}", directory.display())),
            }
        }
    }

    fn restore_files(&mut self, changes: &[Change]) {
        // The first record of a file is its state before the run.
        let mut files: BTreeMap<&Path, &str> = BTreeMap::new();
        for change in changes {
            if let Change::File { path, before, .. } = change {
                files.entry(path).or_insert(before);
            }
        }
        for (path, before) in files {
            match fs::write(path, before) {
                Ok(()) => self.restored.files += 1,
                // It went away, an interrupt's with its device for example, or it was never changed because
                // it cannot be written.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(_) if fs::read_to_string(path).is_ok_and(|now| now.trim() == before) => {}
                Err(e) => self.fail(format!("{}: cannot be set back to {before:?}: {e}", path.display())),
            }
        }
    }
}

fn put_back(tid: i32, attributes: &Attributes, affinity: &[usize]) -> io::Result<()> {
    // The affinity first: SCHED_DEADLINE is admitted only with the affinity it had.
    // Some of the kernel's threads refuse to be given any, even their own.
    if sched::affinity(tid)? != affinity {
        sched::set_affinity(tid, affinity)?;
    }
    if sched::attributes(tid)? == *attributes {
        return Ok(());
    }
    sched::set_attributes(tid, attributes)
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound
}

/// Puts every thread in a group and in the groups below it into the fair class.
fn demote_tree(directory: &Path) {
    for thread in cgroup::threads_in(directory).unwrap_or_default() {
        // One that has ended takes no processor; what a thread had before is put back later.
        let _ = sched::set_attributes(thread, &Attributes::other());
    }
    groups_in(directory).for_each(|group| demote_tree(&group));
}

/// The groups in a group.
fn groups_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn thaw_tree(directory: &Path) {
    // A group that is gone holds no thread.
    let _ = fs::write(directory.join("cgroup.freeze"), "0");
    groups_in(directory).for_each(|group| thaw_tree(&group));
}

/// How often to ask whether something has ended, and how long to sleep in between: a second in all.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a process is gone, at most a second.
fn wait_for(process: Identity) {
    for _ in 0..ATTEMPTS {
        if !process.is_alive() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// A process that is still in a group of the run was started by its domains: it ends with them.
fn remove_group(directory: &Path) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        match cgroup::remove_tree(directory) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                // Version 2 ends everything in a group by one write (Linux 5.14).
                let _ = fs::write(directory.join("cgroup.kill"), "1");
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    cgroup::remove_tree(directory)
}
