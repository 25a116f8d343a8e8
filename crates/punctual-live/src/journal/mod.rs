//! What a run is about to change, written down before it does, and how to undo it.
//!
//! A journal is a file of JSON lines in the state directory ([`directory`]). Each line is flushed to the
//! kernel before the change that it describes, so it survives the program's death, however that comes. It
//! need not survive a crash of the machine: every change here is gone with a reboot.

mod identity;
mod restore;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::os::sched::{self, Attributes};
use crate::os::{cgroup, proc};

pub use identity::Identity;
pub use restore::{Restored, restore};

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

/// Reads a journal. A last line that is incomplete is left out: its change was not made.
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
    let is_over = |path: &PathBuf| {
        !read(path).is_ok_and(
            |changes| matches!(changes.first(), Some(Change::Run { enforcer, .. }) if enforcer.is_alive()),
        )
    };
    Ok(state_files("journal")?.into_iter().filter(is_over).collect())
}

/// The files of the state directory whose names end in `.extension`, in order; none without a directory.
///
/// # Errors
/// The state directory cannot be read.
pub(crate) fn state_files(extension: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    let mut found: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    found.sort();
    Ok(found)
}
