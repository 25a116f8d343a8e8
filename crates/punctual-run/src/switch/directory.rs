//! Where the sockets of a switch stand, and who may connect to them.
//!
//! Only the owner of a socket may connect to it, unless a group may, too (`--group`): libvirt runs QEMU as a
//! user of its own. Sockets of VMs then have that group and mode 0660, and a directory that is made for them
//! has it and mode 0750. The state directory stays closed, so the sockets stand elsewhere. A directory that
//! is there already may be anything and is not changed. The group must be able to enter it, and nobody but
//! its owner may write to it: another writer could put a socket into the place of a VM's.

use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use punctual_linux::os::users::group_id;
use punctual_model::network::Network;
use punctual_model::text::printable;

use super::control;
use crate::error::ServeError;

/// The directory of a switch's sockets.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Is it removed at the end?
    is_own: bool,
    group: Option<Group>,
}

/// A group that may connect.
#[derive(Clone, Debug)]
struct Group {
    name: String,
    id: u32,
}

impl Directory {
    /// The directory that was `given` for the sockets of a switch of `network`, or its own in the state
    /// directory. With a `group`, one that is given is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or the group does not exist or could not use it.
    pub(super) fn prepare(
        given: Option<&Path>,
        group: Option<&str>,
        network: &Network,
    ) -> Result<Directory, ServeError> {
        let group = group.map(|name| Group::find(name, Path::new("/etc/group"))).transpose()?;
        let Some(given) = given else {
            let path = state_directory()?.join(control::folder(file_name(&network.name)?));
            fs::create_dir_all(&path).map_err(|error| {
                ServeError::Refused(format!("cannot make the directory {}: {error}", path.display()))
            })?;
            return Ok(Directory { path, is_own: true, group });
        };
        let is_own = group.as_ref().map_or(Ok(false), |group| group.prepare(given))?;
        Ok(Directory { path: given.to_owned(), is_own, group })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the group connect to the socket of a VM.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn admit(&self, socket: &Path) -> Result<(), ServeError> {
        self.group.as_ref().map_or(Ok(()), |group| group.give(socket, 0o660))
    }

    /// Removes it, if it was made for the switch and is empty: somebody may have put something into it.
    pub(super) fn remove(&self) {
        if self.is_own {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The name, if it can be that of a file.
///
/// # Errors
/// It cannot.
pub fn file_name(name: &str) -> Result<&str, ServeError> {
    if name.contains(['/', '\0']) || name.starts_with('.') {
        Err(ServeError::Refused(format!("{} cannot be the name of a file", printable(name))))
    } else {
        Ok(name)
    }
}

fn state_directory() -> Result<PathBuf, ServeError> {
    let state = punctual_enforce::journal::prepare_directory();
    state.map_err(|error| ServeError::Refused(format!("cannot make a directory for sockets: {error}")))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> ServeError {
    ServeError::Refused(format!("--group: cannot {what} {}: {error}", path.display()))
}

impl Group {
    /// The group of this name in `groups` (normally `/etc/group`).
    fn find(name: &str, groups: &Path) -> Result<Group, ServeError> {
        match group_id(name, groups).map_err(|error| failed("read", groups, &error))? {
            Some(id) => Ok(Group { name: name.to_owned(), id }),
            None => {
                let groups = groups.display();
                Err(ServeError::Refused(format!(
                    "--group {}: there is no such group in {groups}",
                    printable(name)
                )))
            }
        }
    }

    /// Makes a directory that the group can enter, or checks one that is there. Was it made?
    fn prepare(&self, directory: &Path) -> Result<bool, ServeError> {
        let absolute = std::path::absolute(directory).map_err(|error| failed("use", directory, &error))?;
        let parent = absolute.parent().unwrap_or(&absolute);
        self.check_way(&parent.canonicalize().map_err(|error| failed("use", parent, &error))?)?;
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => self.give(directory, 0o750).map(|()| true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let path = directory.canonicalize().map_err(|error| failed("use", directory, &error))?;
                self.check_way(&path)?;
                let metadata = fs::metadata(&path).map_err(|error| failed("use", &path, &error))?;
                let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
                if !is_trusted || metadata.mode() & 0o022 != 0 {
                    return Err(ServeError::Refused(format!(
                        "--group: others may write to {} ({}): they could put a socket into the place of a \
                         VM's; make it a directory to which only this user may",
                        path.display(),
                        owner_and_mode(&metadata)
                    )));
                }
                Ok(false)
            }
            Err(error) => Err(failed("make", directory, &error)),
        }
    }

    /// The group can enter a directory, and all above it.
    fn check_way(&self, directory: &Path) -> Result<(), ServeError> {
        for path in directory.ancestors() {
            let metadata = fs::metadata(path).map_err(|error| failed("use", path, &error))?;
            let enter = if metadata.gid() == self.id { 0o010 } else { 0o001 };
            if metadata.mode() & enter == 0 {
                return Err(ServeError::Refused(format!(
                    "--group: {} cannot enter {} ({}); give --sockets a directory that it can reach, such as \
                     one in /run",
                    printable(&self.name),
                    path.display(),
                    owner_and_mode(&metadata)
                )));
            }
        }
        Ok(())
    }

    /// Gives the group a file with this mode: the group first, so that no other one ever has it.
    fn give(&self, path: &Path, mode: u32) -> Result<(), ServeError> {
        let given = chown(path, None, Some(self.id));
        let given = given.and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)));
        given.map_err(|error| failed(&format!("give {}", printable(&self.name)), path, &error))
    }
}

fn owner_and_mode(metadata: &Metadata) -> String {
    format!("user {}, group {}, mode {:04o}", metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}
