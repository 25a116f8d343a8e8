//! The directory for what can be made again: images, the guest program, what was found out about this boot of
//! the machine. It may be deleted at any time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// A draft that nobody worked on for so long is nobody's.
const DRAFT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A directory whose entries come into being complete: written beside their place and renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache(PathBuf);

impl Cache {
    /// The user's: `$PUNCTUAL_CACHE`, or `$XDG_CACHE_HOME/punctual`, or `~/.cache/punctual`.
    ///
    /// # Errors
    /// When none of the variables is set, or the directory cannot be made.
    pub fn of_user() -> Result<Cache, String> {
        Cache::at(&Self::place(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?)
    }

    fn place(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<PathBuf, String> {
        let under = |name: &str, rest: &str| variable(name).map(|directory| Path::new(&directory).join(rest));
        variable("PUNCTUAL_CACHE")
            .map(PathBuf::from)
            .or_else(|| under("XDG_CACHE_HOME", "punctual"))
            .or_else(|| under("HOME", ".cache/punctual"))
            .ok_or_else(|| {
                "no place for cached images: set PUNCTUAL_CACHE to a directory (HOME is not set)".into()
            })
    }

    /// The one at `directory`, made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn at(directory: &Path) -> Result<Cache, String> {
        fs::create_dir_all(directory).map_err(|error| failure("create", directory, &error))?;
        // QEMU runs in the same directory as we do today; an absolute path stays true if that changes.
        let directory = directory.canonicalize().map_err(|error| failure("find", directory, &error))?;
        Ok(Cache(directory))
    }

    /// Where the entry of that name is or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Lets one process at a time go on, until the lock is dropped; `waiting` is called if another one has
    /// it.
    ///
    /// # Errors
    /// When the lock file cannot be had.
    pub fn lock(&self, waiting: impl FnOnce()) -> Result<File, String> {
        let path = self.path("lock");
        let why = |error: &io::Error| failure("lock", &path, error);
        let file = File::create(&path).map_err(|error| why(&error))?;
        if file.try_lock().is_err() {
            waiting();
            file.lock().map_err(|error| why(&error))?;
        }
        Ok(file)
    }

    /// An empty directory that is deleted again unless it becomes an entry.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn draft(&self) -> Result<Draft, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.remove_old_drafts();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.path(&format!("draft-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| failure("create", &path, &error))?;
        Ok(Draft { path })
    }

    /// Removes what processes that were killed have left.
    fn remove_old_drafts(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let age =
                entry.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed().unwrap_or_default());
            let is_draft = entry.file_name().to_string_lossy().starts_with("draft-");
            if is_draft && age.is_ok_and(|age| age > DRAFT_AGE_MAX) {
                // It takes space, nothing else: trying again next time is enough.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Writes a file that is there whole or not at all; with `mode` as its permissions.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8], mode: u32) -> Result<PathBuf, String> {
        use std::os::unix::fs::OpenOptionsExt;
        let draft = self.draft()?;
        let path = draft.path.join("file");
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
            file.write_all(contents)?;
            file.sync_all()
        };
        write().map_err(|error| failure("write", &path, &error))?;
        let place = self.path(name);
        fs::rename(&path, &place).map_err(|error| failure("write", &place, &error))?;
        Ok(place)
    }
}

/// A directory in the making.
#[derive(Debug)]
pub struct Draft {
    /// Where it is.
    pub path: PathBuf,
}

impl Draft {
    /// Makes `part`, a directory in it, the entry `name`; if another process was first, its entry stays.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn keep(&self, part: &str, cache: &Cache, name: &str) -> Result<PathBuf, String> {
        let place = cache.path(name);
        match fs::rename(self.path.join(part), &place) {
            Err(_) if place.is_dir() => Ok(place),
            Err(error) => Err(failure("write", &place, &error)),
            Ok(()) => Ok(place),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What is left takes some space until the user deletes the cache; nothing depends on it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What could not be done with a file, and a cure where there is one.
pub(crate) fn failure(what: &str, path: &Path, error: &io::Error) -> String {
    let cure = match error.kind() {
        io::ErrorKind::StorageFull => {
            "; free some space, or set PUNCTUAL_CACHE to a directory on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; set PUNCTUAL_CACHE to a directory that you may write to"
        }
        _ => "",
    };
    format!("cannot {what} {}: {error}{cure}", path.display())
}

/// A name for contents: the first 16 hexadecimal digits of their SHA-256. The length of each part goes in, so
/// that what stands in one cannot pass for another.
pub(crate) fn name_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_follows_the_variables_in_order() {
        let place = |set: &[(&str, &str)]| {
            Cache::place(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).into()))
        };
        let all = [("PUNCTUAL_CACHE", "/p"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(place(&all), Ok("/p".into()));
        assert_eq!(place(&all[1..]), Ok("/x/punctual".into()));
        assert_eq!(place(&all[2..]), Ok("/h/.cache/punctual".into()));
        assert!(place(&[]).unwrap_err().contains("set PUNCTUAL_CACHE"));
    }

    #[test]
    fn names_tell_contents_apart_wherever_their_parts_end() {
        assert_eq!(name_of(&[b"ab", b"c"]), name_of(&[b"ab", b"c"]));
        assert_ne!(name_of(&[b"ab", b"c"]), name_of(&[b"a", b"bc"]));
    }

    #[test]
    fn drafts_vanish_and_entries_stay() {
        let root = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(root.path()).expect("a cache");
        let draft = cache.draft().expect("a draft");
        fs::create_dir(draft.path.join("part")).expect("a part");
        let kept = draft.keep("part", &cache, "entry").expect("kept");
        let gone = draft.path.clone();
        drop(draft);
        assert!(kept.is_dir() && !gone.exists());
        let file = cache.write("file", b"text", 0o644).expect("written");
        assert_eq!(fs::read(file).expect("the file"), b"text");
    }

    #[test]
    fn a_full_disk_and_a_forbidden_place_come_with_a_cure() {
        let message = |code| failure("write", Path::new("/x"), &io::Error::from_raw_os_error(code));
        assert!(message(libc::ENOSPC).contains("free some space"));
        assert!(message(libc::EACCES).contains("set PUNCTUAL_CACHE"));
    }
}
