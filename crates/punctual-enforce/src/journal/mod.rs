//! What a run is about to change, written down before it does, and how to undo it.
//!
//! A journal is a file of JSON lines in the state directory ([`directory`]). Each line is flushed to the
//! kernel before the change that it describes, so it survives the program's death, however that comes. It
//! need not survive a crash of the machine: every change here is gone with a reboot. A journal also says what
//! belongs to its run alone ([`Resource`]).
//!
//! The guardian makes the journal and holds a lock on it ([`HeldJournal`]) until it has undone it. The run
//! writes it.

mod change;
mod claims;
mod contents;
mod devices;
mod directory;
mod given;
mod homes;
mod identity;
mod machine;
mod paths;
mod released;
mod restore;
mod table;
mod threads;

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use contents::boot_id;
use given::OwnScheduling;
use punctual_linux::cpuset::Cpusets;
use punctual_linux::os::sched::Attributes;
use punctual_linux::os::{cgroup, proc};
use table::Machine;
use threads::{FoundThread, ThreadRecords};

pub use change::{Change, Resource};
pub use claims::{ClaimError, claimed_processors};
pub use contents::{Contents, RunOf, read};
pub use directory::state_files;
pub use directory::{TrustError, directory, prepare_directory};
pub use identity::Identity;
pub(crate) use paths::{group_names, partitions_name};
pub use restore::{Restored, restore, restore_abandoned};

/// A journal being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Up to here all lines are whole.
    length: u64,
    /// What it says of threads.
    records: ThreadRecords,
    /// The processes that end with the run.
    children: HashSet<i32>,
    /// Do runs with other state directories know of it?
    is_registered: bool,
    /// The processors of the run's partitions.
    isolated: Vec<usize>,
}

/// Where the journal of this process is, in the state directory, which is made if it is not there.
///
/// # Errors
/// The state directory cannot be made, or others can write it ([`TrustError`]).
pub fn own_path() -> io::Result<PathBuf> {
    Ok(prepare_directory()?.join(format!("{}.journal", std::process::id())))
}

impl Journal {
    /// Begins the journal of this process, which runs the host called `name`, in the empty file that its
    /// guardian holds.
    ///
    /// # Errors
    /// The file cannot be written, or others can write it ([`TrustError`]).
    pub fn begin(path: &Path, name: &str) -> io::Result<Journal> {
        let file = directory::open_file(path)?;
        let enforcer = Identity::of(std::process::id() as i32)?;
        let mut journal = Journal {
            path: path.to_owned(),
            file,
            length: 0,
            records: ThreadRecords::default(),
            children: HashSet::new(),
            is_registered: false,
            isolated: Vec::new(),
        };
        journal.record(&Change::Run { enforcer, name: name.to_owned(), boot: boot_id() })?;
        Ok(journal)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down a change that is about to be made. Of a write that fails, nothing stays.
    ///
    /// # Errors
    /// As `write(2)`, with the journal's path; the change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        debug_assert_eq!(
            self.length == 0,
            matches!(change, Change::Run { .. }),
            "a journal begins with its run, once: {change:?}"
        );
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.file.seek(SeekFrom::Start(self.length))?;
        if let Err(error) = self.file.write_all(&line) {
            // Half a line would spoil the next one.
            self.file.set_len(self.length)?;
            return Err(self.unwritten(error));
        }
        self.length += line.len() as u64;
        self.records.add(change);
        if let Change::Child { process, .. } = change {
            self.children.insert(process.id);
        }
        Ok(())
    }

    fn unwritten(&self, error: io::Error) -> io::Error {
        let cure = match error.raw_os_error() {
            Some(libc::EFBIG) => "\n  raise the limit of file sizes (RLIMIT_FSIZE): ulimit -f unlimited",
            Some(libc::ENOSPC | libc::EDQUOT) => {
                "\n  make room there, or set PUNCTUAL_STATE to another directory"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{cure}", self.path.display()))
    }

    /// Writes down what the run is about to give to threads, as far as it gave nothing equal before.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn record_given(&mut self, attributes: &[Attributes], affinities: &[Vec<usize>]) -> io::Result<()> {
        let news = self.records.given().news(attributes, affinities);
        news.map_or(Ok(()), |news| self.record(&news))
    }

    /// Writes down everything about a thread that a run may change, unless it did so before. A thread that
    /// came during the run may have inherited what the run gave: that is written down as the first thread of
    /// its process had it before.
    ///
    /// # Errors
    /// The thread is gone, or the journal cannot be written.
    pub fn record_thread(&mut self, tid: i32) -> io::Result<()> {
        let thread = Identity::of(tid)?;
        if self.records.has(thread) {
            return Ok(());
        }
        let (process, scheduling) = (proc::process_of(tid)?, OwnScheduling::of(tid)?);
        let before = self.records.before(&Machine, FoundThread { thread, process, scheduling });
        let group = cgroup::group_of(tid)?;
        let is_ours = paths::run_of_group(&group).is_some();
        let affinity = if is_ours { before.affinity } else { self.without_partitions(tid, before.affinity) };
        self.record(&Change::Thread { thread, process, attributes: before.attributes, affinity, group })
    }

    /// From now on these processors, too, are in a partition of the run.
    pub(crate) fn add_isolated(&mut self, processors: &[usize]) {
        self.isolated.extend(processors);
    }

    /// The affinity that a thread with this one would have without the run's partitions. The kernel does not
    /// tell what the thread asked for, so one with all of its cpuset is taken to have asked for everything.
    fn without_partitions(&self, tid: i32, affinity: Vec<usize>) -> Vec<usize> {
        let has_all = || Cpusets::new().of(tid).is_some_and(|cpuset| cpuset.processors == affinity);
        if self.isolated.is_empty() || !has_all() {
            return affinity;
        }
        let all: BTreeSet<usize> = affinity.into_iter().chain(self.isolated.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// Writes down a thread that gets the place of a helper.
    ///
    /// # Errors
    /// As [`Journal::record_thread`].
    pub fn record_helper(&mut self, tid: i32) -> io::Result<()> {
        self.record_thread(tid)?;
        let process = proc::process_of(tid)?;
        if self.records.has_changed(process) { Ok(()) } else { self.record(&Change::Helpers { process }) }
    }

    /// Writes down every thread of a process, as far as it is still there. The process may start threads
    /// meanwhile: until a listing has none that is new. Later ones are children of those written down.
    ///
    /// # Errors
    /// The process is gone, or the journal cannot be written.
    pub fn record_threads(&mut self, process: i32) -> io::Result<()> {
        let mut known = HashSet::new();
        for _ in 0..LISTINGS_MAX {
            let mut threads = proc::threads(process)?;
            threads.retain(|tid| known.insert(*tid));
            if threads.is_empty() {
                break;
            }
            for tid in threads {
                match self.record_thread(tid) {
                    Err(error) if proc::is_gone(&error) => {}
                    recorded => recorded?,
                }
            }
        }
        Ok(())
    }

    /// Lets go of a process that the run attached to: undoes what is written down about it, which counts no
    /// longer then. Of what could not be put back, all stays written down, and is undone at the end. Returns
    /// also the directories of groups that are gone.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn release(&mut self, process: i32) -> io::Result<(Restored, Vec<PathBuf>)> {
        let mut contents = read(&self.path)?;
        let part = contents.part_of(&cgroup::mount()?, process);
        let restored = part.undo();
        if restored.failures.is_empty() {
            let released = Change::Released { process };
            self.record(&released)?;
            contents.changes.push(released);
            self.records = ThreadRecords::of(&contents.without_released().changes);
        }
        Ok((restored, part.directories()))
    }

    /// Has every write fail from now on.
    #[cfg(test)]
    pub(crate) fn make_unwritable(&mut self) {
        self.file = File::open(&self.path).expect("it is there");
    }

    /// May a thread be changed? Only if its state before is written down, or its process ends with the run.
    /// One that is gone may.
    pub(crate) fn covers(&self, thread: Identity) -> bool {
        self.records.has(thread)
            || proc::process_of(thread.id).map_or(true, |process| self.children.contains(&process))
    }
}

/// How often the threads of a process are listed at most, while it starts others.
const LISTINGS_MAX: usize = 20;

/// How long a guardian may take to undo a journal before somebody else who waits for that gives up.
const GUARDIAN_MAX: Duration = Duration::from_secs(60);

/// A journal that this process has locked: nobody else undoes it.
#[derive(Debug)]
pub struct HeldJournal {
    path: PathBuf,
    file: File,
}

impl HeldJournal {
    /// Makes an empty journal, for a run to begin.
    ///
    /// # Errors
    /// There is one already, or the file cannot be made.
    pub fn create(path: &Path) -> io::Result<HeldJournal> {
        let file = directory::create_file(path)?;
        if !directory::lock_within(&file, Duration::ZERO)? {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(HeldJournal { path: path.to_owned(), file })
    }

    /// Takes the journal of a run that is over. Its guardian may still be at work, for at most `limit`: then
    /// there is nothing left to take, and `None` is returned.
    ///
    /// # Errors
    /// Another process holds the journal for longer, or somebody else may have written it ([`TrustError`]).
    pub fn take(path: &Path, limit: Duration) -> io::Result<Option<HeldJournal>> {
        let file = match directory::open_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if !directory::lock_within(&file, limit)? {
            let text = "its guardian is still at work";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        use std::os::unix::fs::MetadataExt;
        let is_there = file.metadata()?.nlink() > 0;
        Ok(is_there.then(|| HeldJournal { path: path.to_owned(), file }))
    }

    /// Does somebody else hold the journal at `path`, or has it been undone meanwhile?
    fn is_being_undone(path: &Path) -> bool {
        match HeldJournal::take(path, Duration::ZERO) {
            Ok(held) => held.is_none(),
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
        }
    }

    /// The process of the run, if it has begun.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn enforcer(&self) -> io::Result<Option<Identity>> {
        Ok(Contents::of(&self.file)?.run().map(|run| run.enforcer))
    }
}

/// The journals of runs that have ended but were not undone, untrusted ones included.
///
/// # Errors
/// The state directory cannot be read, or others can write it ([`TrustError`]).
pub fn abandoned() -> io::Result<Vec<PathBuf>> {
    let is_over = |path: &PathBuf| !read(path).is_ok_and(|contents| contents.is_running());
    Ok(state_files("journal")?.into_iter().filter(is_over).collect())
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
