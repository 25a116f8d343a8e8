//! The state directory: which users may write it, and which of its files are trusted.
//!
//! `punctual restore` does as root what a journal says. A journal is therefore trusted only if no other user
//! can have written it: neither the directory nor the file may belong to another user or be writable by one,
//! and the last part of a path is never a symbolic link.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// Why a file or directory is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It belongs to somebody else.
    #[error("it belongs to user {owner}, not to user {expected}: it is not trusted")]
    Owner {
        /// Its owner.
        owner: u32,
        /// The user of this process.
        expected: u32,
    },
    /// Others may write it.
    #[error("others can write it (mode {mode:o}): it is not trusted")]
    Writable {
        /// Its permissions.
        mode: u32,
    },
    /// It is a link or a device, or has a second name.
    #[error("it is a link, a device or a file with a second hard link: it is not trusted")]
    Kind,
}

impl From<TrustError> for io::Error {
    fn from(error: TrustError) -> Self {
        io::Error::new(io::ErrorKind::PermissionDenied, error)
    }
}

/// Where journals lie: `$PUNCTUAL_STATE`; else `/run/punctual` for root and `$XDG_RUNTIME_DIR/punctual` for
/// other users.
pub fn directory() -> PathBuf {
    if let Some(given) = std::env::var_os("PUNCTUAL_STATE") {
        return PathBuf::from(given);
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(own) if !rustix::process::geteuid().is_root() => PathBuf::from(own).join("punctual"),
        _ => PathBuf::from("/run/punctual"),
    }
}

/// The state directory, made if it is not there: mode 0700.
///
/// # Errors
/// It cannot be made, or others can write it ([`TrustError`]).
pub fn prepare_directory() -> io::Result<PathBuf> {
    let directory = directory();
    make(&directory)?;
    Ok(directory)
}

/// Makes a directory that only this user can write, if it is not there.
///
/// # Errors
/// As [`prepare_directory`].
pub(super) fn make(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    check_directory(directory)
}

/// The files of the state directory whose names end in `.extension`, in order; none without a directory.
///
/// # Errors
/// The state directory cannot be read, or others can write it ([`TrustError`]).
pub fn state_files(extension: &str) -> io::Result<Vec<PathBuf>> {
    let directory = directory();
    match check_directory(&directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        checked => checked?,
    }
    let entries = fs::read_dir(&directory)?;
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    let mut found: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    found.sort();
    Ok(found)
}

fn check_directory(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() {
        return Err(TrustError::Kind.into());
    }
    check_owner(&metadata)
}

/// Nobody but this user may have written it.
fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let expected = rustix::process::geteuid().as_raw();
    if metadata.uid() != expected {
        return Err(TrustError::Owner { owner: metadata.uid(), expected }.into());
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(TrustError::Writable { mode }.into());
    }
    Ok(())
}

/// Makes a new file that only this user can read and write.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path)
}

/// Opens a file of the state directory that is believed.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without waiting for the other end of a pipe that somebody put there.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::EISDIR | libc::ENXIO)) => {
            return Err(TrustError::Kind.into());
        }
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(TrustError::Kind.into());
    }
    check_owner(&metadata)?;
    Ok(file)
}

/// A lock on the state directory, released on drop, so that only one run at a time compares its journal with
/// those of others and acts on the result.
pub(super) struct DirectoryLock(#[expect(dead_code, reason = "closing it unlocks")] File);

impl DirectoryLock {
    /// Waits until no other run holds it. Every run holds it only briefly.
    pub(super) fn take() -> io::Result<DirectoryLock> {
        DirectoryLock::of(&prepare_directory()?)
    }

    /// The same for another directory that is there.
    pub(super) fn of(directory: &Path) -> io::Result<DirectoryLock> {
        let file = File::open(directory)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(DirectoryLock(file))
    }
}

/// How often to ask for a lock.
const PAUSE: Duration = Duration::from_millis(10);

/// Locks an open file; false if another process has it for longer than `limit`.
pub(super) fn lock_within(file: &File, limit: Duration) -> io::Result<bool> {
    let start = std::time::Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < limit => std::thread::sleep(PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_others_can_write_is_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("1.journal");
        drop(create_file(&path).expect("made"));
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        open_file(&path).expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).expect("ours");
        let error = open_file(&path).expect_err("its group can write it");
        assert!(error.to_string().contains("mode 620"), "{error}");
    }

    #[test]
    fn links_pipes_and_directories_are_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        drop(create_file(&path("file")).expect("made"));
        symlink(path("file"), path("symbolic")).expect("made");
        fs::create_dir(path("directory")).expect("made");
        for name in ["symbolic", "directory"] {
            let error = open_file(&path(name)).expect_err("it is no file");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}: {error}");
        }
        fs::hard_link(path("file"), path("second")).expect("made");
        assert!(open_file(&path("second")).is_err(), "it has a second name");
        let status = std::process::Command::new("mkfifo").arg(path("pipe")).status();
        assert!(status.is_ok_and(|status| status.success()));
        assert!(open_file(&path("pipe")).is_err(), "it is a pipe");
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        check_directory(directory.path()).expect("it is ours");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(check_directory(directory.path()).is_err());
        let link = directory.path().join("link");
        symlink("/", &link).expect("made");
        assert!(check_directory(&link).is_err());
    }

    #[test]
    fn a_lock_has_one_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("1.journal");
        let first = create_file(&path).expect("made");
        assert!(lock_within(&first, Duration::ZERO).expect("free"));
        let second = open_file(&path).expect("there");
        assert!(!lock_within(&second, Duration::from_millis(30)).expect("asked"));
        drop(first);
        // A program that another test starts has a copy of the first until its exec closes it.
        assert!(lock_within(&second, Duration::from_secs(10)).expect("free again"));
    }
}
