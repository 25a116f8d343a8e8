//! What was asked for at the control interface, kept over a restart of the service: a file in its runtime
//! directory, which goes when the machine does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use punctual_enforce::journal::Identity;
use serde::{Deserialize, Serialize};

use crate::actor::Wishes;

/// The file's name.
const NAME: &str = "wishes.json";
/// A file is at most this long.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    process: Identity,
    #[serde(flatten)]
    wishes: Wishes,
}

/// Where wishes are kept.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
}

impl Store {
    /// In the runtime directory of the service.
    pub(crate) fn new(directory: &Path) -> Store {
        Store { path: directory.join(NAME) }
    }

    /// What is kept; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of these.
    pub(crate) fn load(&self) -> io::Result<Vec<(Identity, Wishes)>> {
        match fs::metadata(&self.path) {
            Ok(file) if file.len() > BYTES_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let kept: Vec<Kept> = serde_json::from_slice(&fs::read(&self.path)?)?;
        Ok(kept.into_iter().map(|kept| (kept.process, kept.wishes)).collect())
    }

    /// Keeps these and no others.
    ///
    /// # Errors
    /// The file cannot be written; it is as it was.
    pub(crate) fn save(&self, wishes: &[(Identity, Wishes)]) -> io::Result<()> {
        if wishes.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let kept: Vec<Kept> = wishes.iter().map(|&(process, wishes)| Kept { process, wishes }).collect();
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&kept)?)?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::service::Adjustment;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_garbage_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::new(directory.path());
        assert_eq!(store.load().expect("none"), []);
        let adjustment = Adjustment { budget_ns: Some(5), ..Adjustment::default() };
        let first = (Identity { id: 7, start_ticks: 9 }, Wishes { adjustment, is_paused: false });
        let second = (Identity { id: 8, start_ticks: 1 }, Wishes { is_paused: true, ..Wishes::default() });
        store.save(&[first, second]).expect("written");
        assert_eq!(store.load().expect("read"), [first, second]);
        store.save(&[]).expect("removed");
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 0);
        fs::write(&store.path, "[{}]").expect("written");
        assert_eq!(store.load().expect_err("garbage").kind(), io::ErrorKind::InvalidData);
    }
}
