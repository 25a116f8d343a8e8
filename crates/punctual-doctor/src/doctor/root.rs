//! Reads a machine's files from a directory that stands for `/`: the machine's own root, a copy of another
//! machine's files, or a tree that a test has made.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::finding::Reading;

/// The most that is read of a file. No file that a check reads is longer.
const BYTES_MAX: u64 = 4 << 20;

/// A directory that stands for `/`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// A file that could not be read, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ReadError {
    /// The file, as seen from the machine it belongs to.
    pub path: String,
    /// Why.
    #[source]
    pub reason: Reason,
}

/// Why a file could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Reason {
    /// The file is not there at all.
    #[error("no such file")]
    Absent,
    /// This process may not read it.
    #[error("permission denied")]
    Denied,
    /// The system refused for another reason.
    #[error(transparent)]
    Io(Arc<io::Error>),
    /// The file was read, but does not hold what it should.
    #[error("holds {found:?}, expected {expected}")]
    Unexpected {
        /// The start of what it holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// `/proc/stat` lacks lines.
    #[error("has no line with the time of each of the pool's processors")]
    NoTimes,
    /// This process is in no cgroup of that hierarchy, or the hierarchy is not mounted.
    #[error("has no hierarchy for {0}")]
    NoHierarchy(String),
    /// This process' cgroup is not below what is mounted.
    #[error("{group} is above what is mounted at {mount}")]
    OutsideMount {
        /// The cgroup.
        group: String,
        /// Where its hierarchy is mounted.
        mount: String,
    },
}

impl ReadError {
    /// The error for `path`.
    pub fn new(path: impl Into<String>, reason: Reason) -> Self {
        ReadError { path: path.into(), reason }
    }

    /// The file was read, but holds `found` instead of what is expected.
    pub fn unexpected(path: &str, found: &str, expected: &str) -> Self {
        let found = found.chars().take(60).collect();
        ReadError::new(path, Reason::Unexpected { found, expected: expected.into() })
    }

    /// Is the file not there at all?
    pub fn is_absent(&self) -> bool {
        matches!(self.reason, Reason::Absent)
    }

    fn io(path: &str, error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Reason::Absent,
            io::ErrorKind::PermissionDenied => Reason::Denied,
            _ => Reason::Io(Arc::new(error)),
        };
        ReadError::new(path, reason)
    }
}

impl Root {
    /// `directory` stands for `/`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Root(directory.into())
    }

    /// Is this the running machine's own root?
    pub fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The bytes of a file, at most 4 MiB.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        // A copied tree may hold a pipe by that name, and opening it must not wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.at(path));
        match file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(ReadError::io(path, error)),
        }
    }

    /// A file as text without the white space around it.
    ///
    /// # Errors
    /// As [`Root::bytes`].
    pub fn text(&self, path: &str) -> Result<String, ReadError> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// A file with one value, as evidence for a finding.
    ///
    /// # Errors
    /// As [`Root::bytes`].
    pub fn reading(&self, path: &str) -> Result<Reading, ReadError> {
        Ok(Reading { path: path.into(), value: self.text(path)? })
    }

    /// A file with a whole number.
    ///
    /// # Errors
    /// When it cannot be read or holds something else.
    pub fn number(&self, path: &str) -> Result<i64, ReadError> {
        let text = self.text(path)?;
        text.parse().map_err(|_| ReadError::unexpected(path, &text, "a whole number"))
    }

    /// What `read` makes of a file's text.
    ///
    /// # Errors
    /// When the file cannot be read, or `read` returns `None`; `expected` says what it looks for.
    pub fn parse<T>(
        &self,
        path: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ReadError> {
        let text = self.text(path)?;
        read(&text).ok_or_else(|| ReadError::unexpected(path, &text, expected))
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let entries = fs::read_dir(self.at(path)).map_err(|error| ReadError::io(path, error))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Is there a file or directory of that name?
    pub fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }
}
