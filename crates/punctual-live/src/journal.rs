//! What a run is about to change, written down before it does, and how to undo it.
//!
//! A journal is a file of JSON lines in the state directory ([`directory`]). Each line is flushed to the
//! kernel before the change that it describes, so it survives whatever happens to the program (not a crash of
//! the machine, after which there is nothing to undo: every change here is gone with a reboot).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::os::sched::{self, Attributes};
use crate::os::{cgroup, proc};

/// A thread or process for certain: ids are used again, the start time tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its id.
    pub id: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Identity {
    /// Who has the id now.
    ///
    /// # Errors
    /// Nobody has.
    pub fn of(id: i32) -> io::Result<Identity> {
        Ok(Identity { id, start_ticks: proc::stat(id)?.start_ticks })
    }

    /// Is it still there? A zombie is not.
    pub fn is_alive(&self) -> bool {
        proc::stat(self.id)
            .is_ok_and(|stat| stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X'))
    }
}

/// One change, with what is needed to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The run itself.
    Run {
        /// The process that enforces.
        enforcer: Identity,
        /// Where cgroup version 2 is mounted.
        mount: PathBuf,
    },
    /// A thread's attributes, affinity or group.
    Thread {
        /// The thread.
        thread: Identity,
        /// Its process.
        process: i32,
        /// Its attributes before.
        attributes: Attributes,
        /// The processors it was allowed before.
        affinity: Vec<usize>,
        /// Its version 2 group before.
        group: String,
    },
    /// A file's content, a kernel parameter say.
    File {
        /// The file.
        path: PathBuf,
        /// What it said before.
        before: String,
        /// What the run writes.
        during: String,
    },
    /// A cgroup made by the run, and everything below it.
    Group {
        /// Its directory.
        directory: PathBuf,
    },
    /// A process started by the run; it ends with it.
    Child {
        /// The process.
        process: Identity,
        /// Its name.
        name: String,
    },
}

/// Where journals lie: `$PUNCTUAL_STATE`, or `/run/punctual`, or a directory of the user's.
pub fn directory() -> PathBuf {
    if let Some(given) = std::env::var_os("PUNCTUAL_STATE") {
        return PathBuf::from(given);
    }
    let run = Path::new("/run/punctual");
    if fs::create_dir_all(run).is_ok() {
        return run.to_owned();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from).join("punctual")
}

/// A journal being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Starts a journal for this process.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn create(mount: &Path) -> io::Result<Journal> {
        let directory = directory();
        fs::create_dir_all(&directory)?;
        let me = Identity::of(std::process::id() as i32)?;
        let path = directory.join(format!("{}.journal", me.id));
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        let mut journal = Journal { path, file };
        journal.record(&Change::Run { enforcer: me, mount: mount.to_owned() })?;
        Ok(journal)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down a change that is about to be made.
    ///
    /// # Errors
    /// As `write(2)`; the change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Writes down everything about a thread that a run may change.
    ///
    /// # Errors
    /// The thread is gone, or the journal cannot be written.
    pub fn record_thread(&mut self, tid: i32) -> io::Result<()> {
        let change = Change::Thread {
            thread: Identity::of(tid)?,
            process: proc::process_of(tid)?,
            attributes: sched::attributes(tid)?,
            affinity: sched::affinity(tid)?,
            group: cgroup::group_of(tid)?,
        };
        self.record(&change)
    }

    /// Writes `during` to the file at `path`, its old content written down first. Nothing happens when it
    /// says that already.
    ///
    /// # Errors
    /// As `read(2)` and `write(2)`.
    pub fn set_file(&mut self, path: &Path, during: &str) -> io::Result<()> {
        let before = fs::read_to_string(path)?;
        self.set_file_back_to(path, during, before.trim())
    }

    /// As [`Journal::set_file`] for a file that is put back by writing `before`, which need not be what it
    /// reads.
    ///
    /// # Errors
    /// As `read(2)` and `write(2)`.
    pub fn set_file_back_to(&mut self, path: &Path, during: &str, before: &str) -> io::Result<()> {
        if fs::read_to_string(path)?.trim() == during.trim() {
            return Ok(());
        }
        self.record(&Change::File {
            path: path.to_owned(),
            before: before.to_owned(),
            during: during.to_owned(),
        })?;
        fs::write(path, during)
    }
}

/// Reads a journal. A last line that was cut off is left out: its change was not made.
///
/// # Errors
/// As `read(2)`; a line that is not understood is `InvalidData`.
pub fn read(path: &Path) -> io::Result<Vec<Change>> {
    let text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)))
        .collect()
}

/// The journals of runs that are over but were not undone.
///
/// # Errors
/// The state directory cannot be read.
pub fn abandoned() -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "journal") {
            continue;
        }
        let running = read(&path).is_ok_and(
            |changes| matches!(changes.first(), Some(Change::Run { enforcer, .. }) if enforcer.is_alive()),
        );
        if !running {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

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
    let mut restored = Restored::default();
    let mut failures = Vec::new();
    let mount = changes.iter().find_map(|change| match change {
        Change::Run { mount, .. } => Some(mount.clone()),
        _ => None,
    });
    let mount = mount.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let groups: Vec<&PathBuf> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Group { directory } => Some(directory),
            _ => None,
        })
        .collect();
    // Priorities first: whoever has the lock that thawing takes may need the processor of a unit that spins.
    groups.iter().for_each(|directory| calm_tree(directory));
    groups.iter().for_each(|directory| thaw_tree(directory));
    // All are told to end before any is waited for: one that spins under a real-time priority keeps others
    // from ending.
    let children: Vec<Identity> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Child { process, .. } if process.is_alive() => Some(*process),
            _ => None,
        })
        .collect();
    for child in &children {
        kill(&mount, *child, &groups);
    }
    for child in &children {
        wait_for(*child);
        restored.children += 1;
    }
    let threads = by_process(&changes);
    for (process, threads) in &threads {
        restore_process(&mount, *process, threads, &groups, &mut restored, &mut failures);
    }
    for directory in groups.iter().rev() {
        match remove_group(directory) {
            Ok(()) => restored.groups += 1,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => failures.push(format!("{}: cannot be removed: {e}", directory.display())),
        }
    }
    // The first record of a file is its state before the run.
    let mut files: BTreeMap<&Path, &str> = BTreeMap::new();
    for change in &changes {
        if let Change::File { path, before, .. } = change {
            files.entry(path).or_insert(before);
        }
    }
    for (path, before) in files {
        match fs::write(path, before) {
            Ok(()) => restored.files += 1,
            // It went away, an interrupt's with its device say, or it was never changed because it cannot be
            // written.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(_) if fs::read_to_string(path).is_ok_and(|now| now.trim() == before) => {}
            Err(e) => failures.push(format!("{}: cannot be set back to {before:?}: {e}", path.display())),
        }
    }
    if failures.is_empty() {
        fs::remove_file(path)?;
    }
    restored.failures = failures;
    Ok(restored)
}

struct Before<'a> {
    thread: Identity,
    attributes: &'a Attributes,
    affinity: &'a [usize],
    group: &'a str,
}

fn by_process(changes: &[Change]) -> BTreeMap<i32, Vec<Before<'_>>> {
    let mut by_process: BTreeMap<i32, Vec<Before<'_>>> = BTreeMap::new();
    for change in changes {
        if let Change::Thread { thread, process, attributes, affinity, group } = change {
            let threads = by_process.entry(*process).or_default();
            // A thread may be taken in twice; its first record is how it was.
            if threads.iter().all(|known| known.thread != *thread) {
                threads.push(Before { thread: *thread, attributes, affinity, group });
            }
        }
    }
    by_process
}

fn restore_process(
    mount: &Path,
    process: i32,
    threads: &[Before<'_>],
    groups: &[&PathBuf],
    restored: &mut Restored,
    failures: &mut Vec<String>,
) {
    let alive: Vec<&Before<'_>> = threads.iter().filter(|before| before.thread.is_alive()).collect();
    restored.threads_gone += (threads.len() - alive.len()) as u64;
    let Some(leader) = alive.iter().find(|b| b.thread.id == process).or(alive.first()) else { return };
    // Threads that came during the run inherited its attributes from a thread of the process.
    let known = |tid: i32| alive.iter().find(|before| before.thread.id == tid);
    let in_our_group = |tid: i32| {
        cgroup::group_of(tid).is_ok_and(|group| {
            let directory = cgroup::below(mount, &group);
            groups.iter().any(|ours| directory.starts_with(ours))
        })
    };
    let newcomers: Vec<i32> = proc::threads(process)
        .unwrap_or_default()
        .into_iter()
        .filter(|&tid| known(tid).is_none() && in_our_group(tid))
        .collect();
    for before in &alive {
        match put_back(before.thread.id, before.attributes, before.affinity) {
            Ok(()) => restored.threads += 1,
            Err(e) if is_gone(&e) => restored.threads_gone += 1,
            Err(e) => failures.push(format!("thread {}: {e}", before.thread.id)),
        }
    }
    for tid in newcomers {
        match put_back(tid, leader.attributes, leader.affinity) {
            Err(e) if !is_gone(&e) => failures.push(format!("thread {tid}: {e}")),
            _ => restored.threads += 1,
        }
    }
    let moved = proc::threads(process).unwrap_or_default().into_iter().any(in_our_group);
    if moved {
        let domain = cgroup::domain_of(mount, leader.group);
        match cgroup::move_process(mount, &domain, process) {
            Err(e) if !is_gone(&e) => failures.push(format!("process {process}: back to {domain}: {e}")),
            _ => {}
        }
        for before in alive.iter().filter(|before| before.group != domain) {
            match cgroup::move_thread(mount, before.group, before.thread.id) {
                Err(e) if !is_gone(&e) => {
                    failures.push(format!("thread {}: back to {}: {e}", before.thread.id, before.group));
                }
                _ => {}
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

/// Puts every thread below a group into the fair class.
fn calm_tree(directory: &Path) {
    for thread in cgroup::threads_in(directory).unwrap_or_default() {
        // One that has ended needs no calming, and what is its own is put back later.
        let _ = sched::set_attributes(thread, &Attributes::other());
    }
    groups_in(directory).for_each(|group| calm_tree(&group));
}

/// The groups in a group.
fn groups_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn thaw_tree(directory: &Path) {
    // A group that is gone has nobody to thaw.
    let _ = fs::write(directory.join("cgroup.freeze"), "0");
    groups_in(directory).for_each(|group| thaw_tree(&group));
}

/// Tells a process of the run to end, and everything it started, which is in its group.
fn kill(mount: &Path, process: Identity, groups: &[&PathBuf]) {
    let group = cgroup::group_of(process.id).map(|group| cgroup::below(mount, &group));
    let Some(pid) = rustix::process::Pid::from_raw(process.id) else { return };
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    // A threaded group cannot be told: it holds this process alone.
    if let Ok(group) = group
        && groups.iter().any(|ours| group.starts_with(ours) && group != **ours)
    {
        let _ = fs::write(group.join("cgroup.kill"), "1");
    }
}

/// Waits until a process is gone, at most a second.
fn wait_for(process: Identity) {
    for _ in 0..200 {
        if !process.is_alive() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Whoever is still in a group of the run was started by its domains: it ends with them.
fn remove_group(directory: &Path) -> io::Result<()> {
    for _ in 0..200 {
        match cgroup::remove_tree(directory) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                // Version 2 ends everything in a group by one write (Linux 5.14).
                let _ = fs::write(directory.join("cgroup.kill"), "1");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other,
        }
    }
    cgroup::remove_tree(directory)
}
