//! The cgroups of a session. What it starts and what it attaches to are in separate trees.
//!
//! What a session starts is in one group below the mount, with a group for each domain in it and one for each
//! unit in that. All of it ends with the session.
//!
//! What a session attaches to stays in its home: the group of each unit is below the group that its thread
//! was in. So a home never becomes empty, and services that remove empty groups (systemd a scope's, libvirt
//! a machine's) keep it; limits of the home still hold. Nothing in these groups is ever killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::journal::{self, Change, Journal};
use punctual_linux::os::cgroup::{self, Group};
use punctual_linux::os::proc;

/// The groups of the domains that a session starts.
pub(super) struct DomainGroups {
    /// The session's own group.
    directory: PathBuf,
    groups: Vec<(String, Group)>,
    /// How many were made, those that are gone included.
    made: usize,
}

impl DomainGroups {
    /// Below `directory`, which is there.
    pub(super) fn below(directory: PathBuf) -> DomainGroups {
        DomainGroups { directory, groups: Vec::new(), made: 0 }
    }

    /// The session's own group.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The group of a domain, made if it is new.
    pub(super) fn of(&mut self, domain: &str) -> Result<&Group, Error> {
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

    /// Moves a process to the group of a domain, every thread of it written down first; returns the group's
    /// directory.
    pub(super) fn take(&mut self, domain: &str, process: i32, journal: &mut Journal) -> Result<&Path, Error> {
        let group = self.of(domain)?;
        if !cgroup::is_inside(process, group.directory()).map_err(Error::adopt(domain))? {
            journal.record_threads(process).map_err(Error::adopt(domain))?;
            group.add_process(process).map_err(Error::adopt(domain))?;
        }
        Ok(group.directory())
    }

    /// Removes the groups of domains that have no thread left.
    pub(super) fn remove_empty(&mut self) {
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

/// The groups of what a session attaches to: one in each home, one for each unit in that.
pub(super) struct AttachedGroups {
    mount: PathBuf,
    /// The name of the group in each home.
    name: String,
    /// Those that were made and are there.
    made: Vec<PathBuf>,
    /// How many processes left their homes.
    away: usize,
}

impl AttachedGroups {
    pub(super) fn of_run(mount: &Path, run: i32) -> AttachedGroups {
        let (_, name) = journal::group_names(run);
        AttachedGroups { mount: mount.to_owned(), name, made: Vec::new(), away: 0 }
    }

    /// The directory of a group.
    pub(super) fn below(&self, group: &str) -> PathBuf {
        cgroup::below(&self.mount, group)
    }

    /// The directory in which a thread can have a threaded group of its own. Every thread of its process is
    /// written down.
    pub(super) fn for_thread(&mut self, tid: i32, journal: &mut Journal) -> io::Result<PathBuf> {
        let process = proc::process_of(tid)?;
        journal.record_threads(process)?;
        let group = cgroup::group_of(tid)?;
        // A vCPU that is plugged in was started by another thread, perhaps by one that is a unit.
        let ours = self.made.iter().find(|made| cgroup::below(&self.mount, &group).starts_with(made));
        if let Some(directory) = ours {
            return Ok(directory.clone());
        }
        let in_home = cgroup::below(&self.mount, &group).join(&self.name);
        if self.made.contains(&in_home) && in_home.is_dir() {
            return Ok(in_home);
        }
        if cgroup::takes_threaded_group(&self.mount, &group) {
            journal.record(&Change::AttachedGroup { directory: in_home.clone(), home: group.clone() })?;
            match Group::make(&in_home, true) {
                Ok(_) => {
                    self.made.push(in_home.clone());
                    return Ok(in_home);
                }
                // A limit of the home, for example.
                Err(_) => drop(fs::remove_dir(&in_home)),
            }
        }
        self.move_away(process, &group, journal)
    }

    /// The directory in which all processes of `home` can have a group. Processes of several cgroups cannot
    /// be in one: each cgroup has limits of its own.
    pub(super) fn for_group(&mut self, home: &str, journal: &mut Journal) -> io::Result<PathBuf> {
        let at_home = cgroup::below(&self.mount, home);
        let in_home = at_home.join(&self.name);
        let kind = fs::read_to_string(at_home.join("cgroup.type"))?;
        if kind.trim() != "domain" {
            return Err(io::Error::other(format!("its cgroup {home} is {}, not a domain", kind.trim())));
        }
        let inner = fs::read_dir(&at_home)?.flatten().find(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir()) && *entry.file_name() != *self.name
        });
        if let Some(inner) = inner {
            let inner = inner.file_name();
            return Err(io::Error::other(format!(
                "its cgroup {home} has others in it ({}), and processes of several cgroups cannot have one \
                 budget: match each of these",
                inner.to_string_lossy()
            )));
        }
        if !self.made.contains(&in_home) || !in_home.is_dir() {
            let change = Change::AttachedGroup { directory: in_home.clone(), home: home.to_owned() };
            journal.record(&change)?;
            Group::make(&in_home, false)?;
            self.made.push(in_home.clone());
        }
        Ok(in_home)
    }

    /// Where the kernel permits no threaded group in a home, the whole process leaves it for a group below
    /// the mount. The home may become empty then, and be gone at the end.
    fn move_away(&mut self, process: i32, home: &str, journal: &mut Journal) -> io::Result<PathBuf> {
        let directory = self.mount.join(format!("{}-{}", self.name, self.away));
        self.away += 1;
        journal.record(&Change::AttachedGroup { directory: directory.clone(), home: home.to_owned() })?;
        let group = Group::make(&directory, false)?;
        self.made.push(directory.clone());
        group.add_process(process)?;
        Ok(directory)
    }

    /// Groups with these directories are gone.
    pub(super) fn forget(&mut self, directories: &[PathBuf]) {
        self.made.retain(|made| !directories.contains(made));
    }

    /// Removes the groups of units that ended, so that they do not keep their homes from being removed.
    pub(super) fn remove_empty(&mut self) {
        // One with a thread in it stays.
        self.made.retain(|directory| cgroup::remove_tree(directory).is_err() && directory.is_dir());
    }
}
