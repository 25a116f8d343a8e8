//! What a check finds: a judgement with its evidence, and what could be changed for the time of a run.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// How much a finding threatens latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A run is refused or cannot work.
    Critical,
    /// Deadlines can be missed, or budgets miscounted, because of it.
    Warning,
    /// It could not be read; the finding says why.
    Unknown,
    /// It adds some jitter, or is good to know.
    Note,
    /// Nothing to do.
    Ok,
}

impl Severity {
    /// Each of them, in the order of reports.
    pub const ALL: [Severity; 5] =
        [Severity::Critical, Severity::Warning, Severity::Unknown, Severity::Note, Severity::Ok];

    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Unknown => "unknown",
            Severity::Note => "note",
            Severity::Ok => "ok",
        }
    }

    /// Does it make `punctual doctor` exit with 1?
    pub fn is_bad(self) -> bool {
        matches!(self, Severity::Critical | Severity::Warning)
    }
}

/// A file and what was read from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// The file.
    pub path: String,
    /// Its text, or the part of it that matters.
    pub value: String,
}

/// Something that can be changed for the time of a run and put back afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// Write a value to a file.
    SetFile {
        /// The file.
        path: PathBuf,
        /// What to write.
        value: String,
        /// What puts the present state back. Not always what the file reads: `always [madvise] never` is put
        /// back by `madvise`.
        restore: String,
        /// Why, in a phrase.
        why: String,
    },
    /// Hold a file open after writing a number to it; closing it undoes it.
    HoldOpen {
        /// The file.
        path: PathBuf,
        /// The number, written as 32 bits in the machine's byte order.
        value: i32,
        /// Why, in a phrase.
        why: String,
    },
    /// Give a thread a SCHED_FIFO priority.
    SetThreadPriority {
        /// The thread's id.
        tid: u32,
        /// Its name, to make sure that the id still means the same thread.
        name: String,
        /// The SCHED_FIFO priority, 1 to 99.
        priority: u32,
        /// Why, in a phrase.
        why: String,
    },
}

/// Carries out changes, remembers what was before, and restores it whatever happens.
pub trait Apply {
    /// Writes `value` to `path`; `restore` is what puts the present state back.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is changed then.
    fn set_file(&mut self, path: &Path, value: &str, restore: &str) -> io::Result<()>;

    /// Opens `path`, writes the 32 bits of `value` and keeps it open.
    ///
    /// # Errors
    /// When the file cannot be opened or written.
    fn hold_open(&mut self, path: &Path, value: i32) -> io::Result<()>;

    /// Gives the thread `tid`, if it is still called `name`, a SCHED_FIFO priority.
    ///
    /// # Errors
    /// When the thread is gone or may not be changed.
    fn set_thread_priority(&mut self, tid: u32, name: &str, priority: u32) -> io::Result<()>;
}

impl Change {
    /// Applies the change with `by`.
    ///
    /// # Errors
    /// Those of [`Apply`].
    pub fn carry_out(&self, by: &mut dyn Apply) -> io::Result<()> {
        match self {
            Change::SetFile { path, value, restore, .. } => by.set_file(path, value, restore),
            Change::HoldOpen { path, value, .. } => by.hold_open(path, *value),
            Change::SetThreadPriority { tid, name, priority, .. } => {
                by.set_thread_priority(*tid, name, *priority)
            }
        }
    }

    /// What is changed: a file, or a thread with its name.
    pub fn target(&self) -> String {
        match self {
            Change::SetFile { path, .. } | Change::HoldOpen { path, .. } => path.display().to_string(),
            Change::SetThreadPriority { tid, name, .. } => format!("thread {tid} ({name})"),
        }
    }

    /// Why, in a phrase.
    pub fn why(&self) -> &str {
        match self {
            Change::SetFile { why, .. }
            | Change::HoldOpen { why, .. }
            | Change::SetThreadPriority { why, .. } => why,
        }
    }
}

/// The result of a check on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name.
    pub id: &'static str,
    /// What the check is about.
    pub title: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in a sentence without a full stop.
    pub summary: String,
    /// What was read.
    pub readings: Vec<Reading>,
    /// Why it matters.
    pub why: &'static str,
    /// Where that is said: paper and section, file of Linux, manual page.
    pub source: &'static str,
    /// Commands that improve it, to be pasted into a root shell; none where nothing needs to be done.
    pub fix: Option<String>,
    /// What can be changed for the time of a run and put back. Empty: a person has to do it.
    pub changes: Vec<Change>,
}

/// What a check says about a machine; [`Finding`] adds what is the same on every machine.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub severity: Severity,
    pub summary: String,
    pub readings: Vec<Reading>,
    pub fix: Option<String>,
    pub changes: Vec<Change>,
}

impl Outcome {
    pub(super) fn new(severity: Severity, summary: impl Into<String>) -> Self {
        Outcome { severity, summary: summary.into(), readings: Vec::new(), fix: None, changes: Vec::new() }
    }

    pub(super) fn ok(summary: impl Into<String>) -> Self {
        Outcome::new(Severity::Ok, summary)
    }

    pub(super) fn note(summary: impl Into<String>) -> Self {
        Outcome::new(Severity::Note, summary)
    }

    pub(super) fn warning(summary: impl Into<String>) -> Self {
        Outcome::new(Severity::Warning, summary)
    }

    pub(super) fn critical(summary: impl Into<String>) -> Self {
        Outcome::new(Severity::Critical, summary)
    }

    pub(super) fn unknown(summary: impl Into<String>) -> Self {
        Outcome::new(Severity::Unknown, summary)
    }

    pub(super) fn read(mut self, path: impl Into<String>, value: impl ToString) -> Self {
        self.readings.push(Reading { path: path.into(), value: value.to_string() });
        self
    }

    pub(super) fn readings(mut self, readings: impl IntoIterator<Item = Reading>) -> Self {
        self.readings.extend(readings);
        self
    }

    pub(super) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    pub(super) fn set(mut self, path: impl AsRef<str>, value: &str, restore: &str, why: &str) -> Self {
        self.changes.push(Change::SetFile {
            path: PathBuf::from(path.as_ref()),
            value: value.into(),
            restore: restore.into(),
            why: why.into(),
        });
        self
    }

    pub(super) fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}
