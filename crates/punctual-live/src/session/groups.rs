//! The cgroups of a session: one for the session, one for each domain in it, one for each unit in that.

use std::path::{Path, PathBuf};

use super::error::Error;
use crate::os::cgroup::{self, Group};

/// The groups of a session's domains.
pub(super) struct DomainGroups {
    /// The session's own group.
    directory: PathBuf,
    groups: Vec<(String, Group)>,
    /// How many were made, those that are gone included.
    made: usize,
}

impl DomainGroups {
    /// Below `directory`, which is there.
    pub fn below(directory: PathBuf) -> DomainGroups {
        DomainGroups { directory, groups: Vec::new(), made: 0 }
    }

    /// The group of a domain, made if it is new.
    pub fn of(&mut self, domain: &str) -> Result<&Group, Error> {
        let known = self.groups.iter().position(|(name, _)| name == domain);
        let index = match known {
            Some(index) => index,
            None => {
                let directory = self.directory.join(format!("domain{}", self.made));
                self.made += 1;
                self.groups.push((domain.to_owned(), make(&directory)?));
                self.groups.len() - 1
            }
        };
        Ok(&self.groups[index].1)
    }

    /// Removes the groups of domains that have no thread left.
    pub fn remove_empty(&mut self) {
        self.groups.retain(|(_, group)| {
            let empty = group.threads().is_ok_and(|threads| threads.is_empty());
            !(empty && cgroup::remove_tree(group.directory()).is_ok())
        });
    }
}

/// Makes a group that takes whole processes.
pub(super) fn make(directory: &Path) -> Result<Group, Error> {
    Group::make(directory, false).map_err(|source| Error::Group { directory: directory.to_owned(), source })
}
