//! Finished points of sweeps in a directory, so that a sweep can be shared out and taken up again.
//!
//! A point's file is called after what the point is: the program's version, the host file, its changes, the
//! runs and what is measured. So any number of sweeps on any number of machines write into one directory, and
//! a sweep that needs a point takes it from there. Files are renamed when they are complete; a program that
//! is ended in the middle of a point leaves nothing of it.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Error;

/// Changes when the files of points change.
const VERSION: u32 = 1;

/// One of several parts of a grid: every `of`-th point, beginning with the `number`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    number: usize,
    of: usize,
}

impl Shard {
    /// Does point `point`, from 0 on, belong to it?
    pub fn has(self, point: usize) -> bool {
        point % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Shard { number, of }),
            _ => Err("expected I/N, such as 3/100, with I from 1 to N".into()),
        }
    }
}

/// Writes a file whole or not at all; an error names the file.
pub type Write = fn(&Path, &[u8]) -> Result<(), String>;

/// The directory.
#[derive(Debug)]
pub struct Points {
    directory: PathBuf,
    write: Write,
}

#[derive(Serialize, Deserialize)]
struct File<M> {
    format: String,
    version: u32,
    point: M,
}

const FORMAT: &str = "punctual-point";

impl Points {
    /// Makes the directory if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        Self::written_by(directory, write)
    }

    /// As [`Points::open`]; files are written by `write`, which may have to clean up when a program ends.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn written_by(directory: &Path, write: Write) -> Result<Self, Error> {
        make_directory(directory)?;
        Ok(Points { directory: directory.to_path_buf(), write })
    }

    /// The file of a point that is told from all others by `parts`.
    pub(crate) fn path(&self, parts: &[&[u8]]) -> PathBuf {
        let mut hash = Sha256::new();
        let head = format!("{FORMAT} {VERSION} {}", env!("CARGO_PKG_VERSION"));
        for part in [head.as_bytes()].iter().chain(parts) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        // A directory of a million files is slow on some network file systems.
        self.directory.join(&name[..2]).join(name + ".json")
    }

    /// What is in the file of a point; `None` if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub(crate) fn load<M: DeserializeOwned>(&self, path: &Path) -> Result<Option<M>, Error> {
        let wrong = |why: String| Error::Refused(format!("{}: {why}", path.display()));
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let no_point =
            |error: serde_json::Error| wrong(format!("no point of a sweep ({error}); remove the file"));
        let file: File<M> = serde_json::from_slice(&text).map_err(no_point)?;
        Ok(Some(file.point))
    }

    /// Writes the file of a point.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save<M: Serialize>(&self, path: &Path, point: &M) -> Result<(), Error> {
        path.parent().map_or(Ok(()), make_directory)?;
        let text = serde_json::to_vec(&File { format: FORMAT.into(), version: VERSION, point });
        let text = text.map_err(|error| Error::Refused(error.to_string()))?;
        (self.write)(path, &text).map_err(Error::Refused)
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path)
        .map_err(|error| Error::Refused(format!("cannot make the directory {}: {error}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = || {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(bytes)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    written().map_err(|error: std::io::Error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_one_shard() {
        let shards: Vec<Shard> = (1..=7).map(|n| format!("{n}/7").parse().expect("a shard")).collect();
        assert!((0..100).all(|point| shards.iter().filter(|shard| shard.has(point)).count() == 1));
        for text in ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/4", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let points = Points { directory: PathBuf::new(), write };
        assert_ne!(points.path(&[b"ab", b"c"]), points.path(&[b"a", b"bc"]));
        assert_ne!(points.path(&[b"a"]), points.path(&[b"a", b""]));
    }
}
