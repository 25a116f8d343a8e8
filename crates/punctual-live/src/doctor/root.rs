//! Reading a machine's files from a directory that stands for `/`: the machine's own root, a copy that was
//! taken elsewhere, or a tree made for a test.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::finding::Reading;

/// No file that is read here is longer; the rest would be ignored.
const BYTES_MAX: u64 = 4 << 20;

/// A directory that stands for `/`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// Why something could not be read: always a file and a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, as seen from the machine it belongs to.
    pub path: String,
    /// Why, in a phrase: `no such file`.
    pub reason: String,
    /// The file is not there at all.
    pub absent: bool,
}

impl Unreadable {
    /// The file was read, but holds something else than expected.
    pub fn unexpected(path: &str, found: &str, expected: &str) -> Self {
        let found: String = found.chars().take(60).collect();
        Unreadable {
            path: path.into(),
            reason: format!("holds {found:?}, expected {expected}"),
            absent: false,
        }
    }

    fn new(path: &str, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "no such file".into(),
            io::ErrorKind::PermissionDenied => "permission denied".into(),
            _ => error.to_string(),
        };
        let absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        Unreadable { path: path.into(), reason, absent }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

impl std::error::Error for Unreadable {}

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
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = Vec::new();
        // A copied tree may hold a pipe by that name, and opening it must not wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.at(path));
        match file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Unreadable::new(path, &error)),
        }
    }

    /// A file as text without the white space around it.
    ///
    /// # Errors
    /// As [`Root::bytes`].
    pub fn text(&self, path: &str) -> Result<String, Unreadable> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// A file with one value, as evidence for a finding.
    ///
    /// # Errors
    /// As [`Root::bytes`].
    pub fn reading(&self, path: &str) -> Result<Reading, Unreadable> {
        Ok(Reading { path: path.into(), value: self.text(path)? })
    }

    /// A file with a whole number.
    ///
    /// # Errors
    /// When it cannot be read or holds something else.
    pub fn number(&self, path: &str) -> Result<i64, Unreadable> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Unreadable::unexpected(path, &text, "a whole number"))
    }

    /// What `read` makes of a file's text.
    ///
    /// # Errors
    /// When it cannot be read, or `read` makes nothing of it; `expected` says what it looks for.
    pub fn parse<T>(
        &self,
        path: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Unreadable> {
        let text = self.text(path)?;
        read(&text).ok_or_else(|| Unreadable::unexpected(path, &text, expected))
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self, path: &str) -> Result<Vec<String>, Unreadable> {
        let entries = fs::read_dir(self.at(path)).map_err(|error| Unreadable::new(path, &error))?;
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
