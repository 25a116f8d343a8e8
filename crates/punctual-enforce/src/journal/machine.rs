//! The runs that have changed something of the whole machine, whatever their state directories.
//!
//! Before its first such change, a run makes a symbolic link to its journal in [`DIRECTORY`]; undoing the
//! journal removes the link. Only root can write there. A run that cannot, without root or in a container
//! without `/run`, knows the runs of its own state directory alone.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::directory::{self, DirectoryLock, state_files};
use super::{Contents, read};

/// Where the links are.
const DIRECTORY: &str = "/run/punctual/machine";

/// Held by a run while it compares its changes of the machine with those of others and acts on the result.
pub(super) struct MachineLock {
    directory: Option<PathBuf>,
    /// Of the state directory, then of the directory with the links: in this order everywhere.
    #[expect(dead_code, reason = "dropping them unlocks")]
    locks: (DirectoryLock, Option<DirectoryLock>),
}

impl MachineLock {
    /// Waits until no other run holds it. Every run holds it only briefly.
    ///
    /// # Errors
    /// The state directory cannot be made, or others can write it ([`super::TrustError`]).
    pub(super) fn take() -> io::Result<MachineLock> {
        let own = DirectoryLock::take()?;
        let directory = prepare().ok();
        let machine = directory.as_deref().map(DirectoryLock::of).transpose()?;
        Ok(MachineLock { directory, locks: (own, machine) })
    }

    /// The journals of other runs than that of `own`, in any state directory; those that cannot be read or
    /// are not trusted are left out.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub(super) fn others(&self, own: &Path) -> io::Result<Vec<Contents>> {
        let mut others: Vec<Contents> = others(own)?.into_iter().map(|(_, contents)| contents).collect();
        let state = fs::canonicalize(directory::directory())?;
        for (link, journal) in self.links() {
            if journal.parent() == Some(&*state) {
                if !journal.exists() {
                    // Fails only where it is gone.
                    let _ = fs::remove_file(&link);
                }
                continue;
            }
            match read(&journal) {
                Ok(other) if !other.is_of_earlier_boot() => others.push(other),
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_stale(&link) => {
                    // Fails only where it is gone.
                    let _ = fs::remove_file(&link);
                }
                _ => {}
            }
        }
        Ok(others)
    }

    /// From now on the run of this journal is known to runs with other state directories.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub(super) fn register(&self, journal: &Path) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let (journal, run) = (fs::canonicalize(journal)?, std::process::id());
        // A run that died may have had the same process id.
        let links = (0..).map(|number| directory.join(format!("{run}-{number}")));
        for link in links {
            match symlink(&journal, link) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        Ok(())
    }

    /// The journal at this path, which must be canonical, is undone.
    pub(super) fn unregister(&self, journal: &Path) {
        for (link, _) in self.links().filter(|(_, of)| of == journal) {
            // A link that stays names no journal then, and is removed with the next look.
            let _ = fs::remove_file(link);
        }
    }

    /// The links, with the journals that they name.
    fn links(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        let entries = self.directory.iter().flat_map(fs::read_dir).flatten().flatten();
        entries.filter_map(|entry| Some((entry.path(), fs::read_link(entry.path()).ok()?)))
    }
}

/// The journals in the state directory of other runs than that of `own`, those that died included, with
/// their paths. Journals that cannot be read or are not trusted are left out.
///
/// # Errors
/// The state directory cannot be read.
pub(super) fn others(own: &Path) -> io::Result<Vec<(PathBuf, Contents)>> {
    let paths = state_files("journal")?.into_iter().filter(|path| path != own);
    let others = paths.filter_map(|path| Some((read(&path).ok()?, path)));
    let others = others.filter(|(contents, _)| !contents.is_of_earlier_boot());
    Ok(others.map(|(contents, path)| (path, contents)).collect())
}

/// The directory, made if it is not there.
fn prepare() -> io::Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let directory = Path::new(DIRECTORY);
    directory.parent().map_or(Ok(()), directory::make)?;
    directory::make(directory)?;
    Ok(directory.to_owned())
}

/// Has the run of a link ended? The journal of one that goes on may be in another mount namespace.
fn is_stale(link: &Path) -> bool {
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let run = name.split('-').next().and_then(|run| run.parse::<u32>().ok());
    run.is_none_or(|run| !Path::new(&format!("/proc/{run}")).exists())
}
