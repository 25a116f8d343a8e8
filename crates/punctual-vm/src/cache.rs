//! The user's cache directory: guest images, the guest program, whether KVM works on this boot of the
//! machine.
//!
//! Everything in it can be made again, so it may be deleted at any time.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use punctual_linux::channel::Stop;

/// A draft that is older than this was left by a process that was killed.
const DRAFT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Permissions to write of a file's group and of everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// How often to try again to lock the cache.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No environment variable says where it is.
    #[error("no place for cached images: set PUNCTUAL_CACHE to a directory (HOME is not set)")]
    NoPlace,
    /// Another user could put programs there that this user would execute.
    #[error(
        "the cache {} belongs to user {owner} or others may write to it (mode {mode:o}); \
         set PUNCTUAL_CACHE to a directory that only user {user} can write to",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Its user.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// The user of this process.
        user: u32,
    },
    /// A file or directory of it failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What could not be done with a file, and what helps where something does.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}{}", path.display(), cure(source))]
pub struct FileError {
    /// What failed, as a verb: `read`, `write`.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl FileError {
    /// For [`Result::map_err`]: what could not be done with `path`.
    pub(crate) fn of(action: &'static str, path: &Path) -> impl Fn(io::Error) -> FileError {
        move |source| FileError { action, path: path.to_owned(), source }
    }
}

/// What helps against `error`, as the end of a message.
fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            "; free some space, or set PUNCTUAL_CACHE to a directory on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; set PUNCTUAL_CACHE to a directory that you may write to"
        }
        _ => "",
    }
}

/// A directory whose entries are complete from the moment they exist: each is written elsewhere and renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache(PathBuf);

impl Cache {
    /// The user's: `$PUNCTUAL_CACHE`, or `$XDG_CACHE_HOME/punctual`, or `~/.cache/punctual`.
    ///
    /// # Errors
    /// When none of the variables is set, or the directory cannot be made.
    pub fn of_user() -> Result<Cache, Error> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = Cache::at(&Self::place(set).ok_or(Error::NoPlace)?)?;
        cache.check_owner(rustix::process::geteuid().as_raw())?;
        Ok(cache)
    }

    /// What is in the cache is executed. With `sudo`, the variables may name a directory of the user who
    /// called it.
    fn check_owner(&self, user: u32) -> Result<(), Error> {
        let metadata = fs::metadata(&self.0).map_err(FileError::of("read", &self.0))?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if owner == user && mode & WRITABLE_BY_OTHERS == 0 {
            Ok(())
        } else {
            Err(Error::NotOurs { path: self.0.clone(), owner, mode, user })
        }
    }

    fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let under = |name: &str, rest: &str| variable(name).map(|directory| Path::new(&directory).join(rest));
        variable("PUNCTUAL_CACHE")
            .map(PathBuf::from)
            .or_else(|| under("XDG_CACHE_HOME", "punctual"))
            .or_else(|| under("HOME", ".cache/punctual"))
    }

    /// The one at `directory`, made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn at(directory: &Path) -> Result<Cache, FileError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(FileError::of("create", directory))?;
        // QEMU runs in the same directory as we do today; an absolute path stays true if that changes.
        let directory = directory.canonicalize().map_err(FileError::of("find", directory))?;
        Ok(Cache(directory))
    }

    /// Where the entry of that name is or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An executable file with these contents, under a name derived from them. An existing file is used if it
    /// is a regular file of this user that no other user can write and has these contents; otherwise it is
    /// written again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn program(&self, name: &str, contents: &[u8]) -> Result<PathBuf, FileError> {
        let name = format!("{name}-{}", name_of(&[contents]));
        let path = self.path(&name);
        let is_ours = fs::symlink_metadata(&path).is_ok_and(|metadata| {
            metadata.is_file()
                && metadata.uid() == rustix::process::geteuid().as_raw()
                && metadata.mode() & WRITABLE_BY_OTHERS == 0
        });
        if is_ours && fs::read(&path).is_ok_and(|found| found == contents) {
            Ok(path)
        } else {
            self.write(&name, contents, 0o755)
        }
    }

    /// Locks the cache against other processes until the lock is dropped; `waiting` is called if another
    /// process has it. `None` when `stop` ended the wait.
    ///
    /// # Errors
    /// When the lock file cannot be made or locked.
    pub fn lock(&self, waiting: impl FnOnce(), stop: Stop) -> Result<Option<File>, FileError> {
        let path = self.path("lock");
        let file = File::create(&path).map_err(FileError::of("lock", &path))?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if stop() => return Ok(None),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(FileError::of("lock", &path)(error)),
            }
            waiting.take().into_iter().for_each(|waiting| waiting());
            std::thread::sleep(LOCK_INTERVAL);
        }
    }

    /// An empty directory that is deleted again unless it becomes an entry.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn draft(&self) -> Result<Draft, FileError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.remove_old_drafts();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.path(&format!("draft-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(FileError::of("create", &path))?;
        Ok(Draft { path })
    }

    /// Removes the drafts that killed processes have left.
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

    /// Writes a file with the permissions `mode`. It appears whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8], mode: u32) -> Result<PathBuf, FileError> {
        use std::os::unix::fs::OpenOptionsExt;
        let draft = self.draft()?;
        let path = draft.path.join("file");
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
            file.write_all(contents)?;
            file.sync_all()
        };
        write().map_err(FileError::of("write", &path))?;
        let place = self.path(name);
        fs::rename(&path, &place).map_err(FileError::of("write", &place))?;
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
    pub fn keep(&self, part: &str, cache: &Cache, name: &str) -> Result<PathBuf, FileError> {
        let place = cache.path(name);
        match fs::rename(self.path.join(part), &place) {
            Err(_) if place.is_dir() => Ok(place),
            Err(error) => Err(FileError::of("write", &place)(error)),
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

/// A name for contents: the first 16 hexadecimal digits of their SHA-256. The length of each part is hashed
/// too, so that the same bytes in other parts get another name.
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
        assert_eq!(place(&all), Some("/p".into()));
        assert_eq!(place(&all[1..]), Some("/x/punctual".into()));
        assert_eq!(place(&all[2..]), Some("/h/.cache/punctual".into()));
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn names_tell_contents_apart_wherever_their_parts_end() {
        assert_eq!(name_of(&[b"ab", b"c"]), name_of(&[b"ab", b"c"]));
        assert_ne!(name_of(&[b"ab", b"c"]), name_of(&[b"a", b"bc"]));
    }

    #[test]
    fn a_program_that_was_changed_is_written_anew() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(root.path()).expect("a cache");
        let path = cache.program("tool", b"right").expect("written");
        let is_right = || fs::read(&path).is_ok_and(|found| found == b"right");
        let inode = || fs::metadata(&path).expect("there").ino();
        let before = inode();
        cache.program("tool", b"right").expect("there");
        assert!(is_right() && inode() == before, "a good one is left alone");
        fs::write(&path, b"wrong").expect("written");
        assert!(cache.program("tool", b"right").is_ok_and(|same| same == path) && is_right());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("set");
        cache.program("tool", b"right").expect("written");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o755);
        fs::remove_file(&path).expect("removed");
        fs::write(root.path().join("elsewhere"), b"right").expect("written");
        symlink(root.path().join("elsewhere"), &path).expect("a link");
        cache.program("tool", b"right").expect("written");
        assert!(fs::symlink_metadata(&path).expect("there").is_file(), "a link could be changed later");
    }

    #[test]
    fn a_cache_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(root.path()).expect("a cache");
        let user = rustix::process::geteuid().as_raw();
        cache.check_owner(user).expect("a directory of ours");
        let error = cache.check_owner(user + 1).expect_err("somebody else's").to_string();
        assert!(error.contains("set PUNCTUAL_CACHE"), "{error}");
        for mode in [0o777, 0o775, 0o1777] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).expect("set");
            assert!(matches!(cache.check_owner(user), Err(Error::NotOurs { .. })), "{mode:o}");
        }
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
    fn errors_of_a_full_disk_and_a_forbidden_place_say_what_helps() {
        let error = |code| FileError::of("write", Path::new("/x"))(io::Error::from_raw_os_error(code));
        let message = |code| error(code).to_string();
        assert!(message(libc::ENOSPC).contains("free some space"));
        assert!(message(libc::EACCES).contains("set PUNCTUAL_CACHE"));
    }
}
