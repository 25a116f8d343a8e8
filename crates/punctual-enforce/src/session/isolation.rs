//! The isolated partitions of a session, and the cgroups in them.
//!
//! A processor is in one partition, and threads of one process are in one threaded domain. So all that uses a
//! partition is in one domain, `punctual-RUN-isolated` below the mount, whose groups are threaded:
//!
//! ```text
//! run, started, attachedN     the run's own process, processes that it started, one that it attached to:
//!                             all threads that are no units
//! poolN                       the partition of a pool
//!   run                       the pool's enforcers
//!   started, attachedN        units
//! ```
//!
//! What the session attaches to leaves its home with the whole process, and limits of the home do not hold
//! meanwhile.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::groups::DomainGroups;
use crate::journal::{self, Change, Identity, Journal};
use punctual_linux::os::cgroup::{self, Group};
use punctual_linux::os::proc;
use punctual_linux::partition::{self, Kind, Remains};

/// A pool's partition, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolated {
    /// Does the kernel balance its load?
    pub kind: Kind,
    /// What it does not keep away.
    pub remains: Remains,
}

impl fmt::Display for Isolated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let Remains { threads, interrupts } = &self.remains;
        let partition = match self.kind {
            Kind::Isolated => "an isolated cpuset partition",
            Kind::Root => "a cpuset partition (root, whose load is balanced)",
        };
        write!(
            f,
            "{partition}; threads of the kernel that stay: {}; interrupts: {}",
            of(threads),
            of(interrupts)
        )
    }
}

/// The partitions of a session.
pub(super) struct Isolation {
    mount: PathBuf,
    /// The group with all of them.
    directory: PathBuf,
    /// The groups of domains that the session starts, beside their units.
    started: DomainGroups,
    /// The group in which the run was; nothing while no partition was asked for.
    home: Option<String>,
    /// By pool: its group, if it is a partition, and its processors.
    partitions: Vec<Option<(PathBuf, Vec<usize>)>>,
    /// By its number, each process that the session attached to.
    attached: Vec<Identity>,
}

impl Isolation {
    pub(super) fn of_run(mount: &Path, run: i32) -> Isolation {
        let directory = mount.join(journal::partitions_name(run));
        Isolation {
            mount: mount.to_owned(),
            started: DomainGroups::below(directory.join(STARTED)),
            directory,
            home: None,
            partitions: Vec::new(),
            attached: Vec::new(),
        }
    }

    /// Where cgroup version 2 is mounted.
    pub(super) fn mount(&self) -> &Path {
        &self.mount
    }

    /// The next pool of the session is no partition.
    pub(super) fn skip(&mut self) {
        self.partitions.push(None);
    }

    /// The next pool of the session is a partition. Returns the group of its enforcers.
    pub(super) fn make(
        &mut self,
        processors: &[usize],
        kind: Kind,
        journal: &mut Journal,
    ) -> Result<PathBuf, Error> {
        let home = match &self.home {
            Some(home) => home.clone(),
            None => self.begin(journal)?,
        };
        let number = self.partitions.len();
        let directory = self.directory.join(format!("pool{number}"));
        make_threaded(&directory)?;
        let reserved = self.partitions.iter().flatten().flat_map(|(_, processors)| processors);
        let reserved: Vec<usize> = reserved.chain(processors).copied().collect();
        partition::reserve(&self.directory, &reserved)?;
        journal.add_isolated(processors);
        partition::make(&directory, processors, kind)?;
        let (started, own) = (directory.join(STARTED), directory.join(RUN));
        journal.record(&Change::Group { directory: started.clone() }).map_err(Error::Journal)?;
        make_threaded(&started)?;
        journal.record(&Change::OwnGroup { directory: own.clone(), home }).map_err(Error::Journal)?;
        make_threaded(&own)?;
        self.partitions.push(Some((directory, processors.to_vec())));
        Ok(own)
    }

    /// Makes the group for all partitions, and moves this process into it, whose enforcers are to be in them.
    /// Returns where the process was.
    fn begin(&mut self, journal: &mut Journal) -> Result<String, Error> {
        journal.give_cpusets(&self.mount).map_err(Error::Journal)??;
        let directory = self.directory.clone();
        journal.record(&Change::Partitions { directory: directory.clone() }).map_err(Error::Journal)?;
        Group::make(&directory, false).map_err(|source| Error::Group { directory, source })?;
        partition::give_cpusets(&self.directory, true)?;
        let (started, own) = (self.directory.join(STARTED), self.directory.join(RUN));
        journal.record(&Change::Group { directory: started.clone() }).map_err(Error::Journal)?;
        make_threaded(&started)?;
        let run = std::process::id() as i32;
        let home = cgroup::group_of(run).map_err(Error::adopt("this process"))?;
        let change = Change::OwnGroup { directory: own.clone(), home: home.clone() };
        journal.record(&change).map_err(Error::Journal)?;
        make_threaded(&own)?;
        cgroup::move_to(&own, run).map_err(Error::adopt("this process"))?;
        self.home = Some(home.clone());
        Ok(home)
    }

    /// Is this pool a partition?
    pub(super) fn has(&self, pool: usize) -> bool {
        self.partition(pool).is_some()
    }

    fn partition(&self, pool: usize) -> Option<&Path> {
        self.partitions.get(pool)?.as_ref().map(|(directory, _)| &**directory)
    }

    /// The group for units that the session started, in a pool that is a partition.
    pub(super) fn started(&self, pool: usize) -> Option<PathBuf> {
        self.partition(pool).map(|directory| directory.join(STARTED))
    }

    /// As [`DomainGroups::take`]: threads that are no units are beside the partitions.
    pub(super) fn take(&mut self, domain: &str, process: i32, journal: &mut Journal) -> Result<(), Error> {
        self.started.take(domain, process, journal).map(|_| ())
    }

    /// Removes the groups of domains that have no thread left.
    pub(super) fn remove_empty(&mut self) {
        self.started.remove_empty();
    }

    /// The group for a unit of a thread that the session attaches to, in the partition of a pool. Its whole
    /// process leaves its home; every thread of it is written down.
    pub(super) fn for_thread(
        &mut self,
        pool: usize,
        tid: i32,
        journal: &mut Journal,
    ) -> io::Result<Option<PathBuf>> {
        let Some(partition) = self.partition(pool).map(Path::to_owned) else { return Ok(None) };
        let process = Identity::of(proc::process_of(tid)?)?;
        journal.record_threads(process.id)?;
        let known = self.attached.iter().position(|attached| *attached == process);
        let name = |number: usize| format!("attached{number}");
        let number = known.unwrap_or(self.attached.len());
        let (aside, units) = (self.directory.join(name(number)), partition.join(name(number)));
        // What is in it already was written down before.
        let home = cgroup::group_of(tid)?;
        for directory in [&aside, &units].into_iter().filter(|directory| !directory.is_dir()) {
            let change = Change::AttachedGroup { directory: directory.clone(), home: home.clone() };
            journal.record(&change)?;
            Group::make(directory, true)?;
        }
        if known.is_none() {
            self.attached.push(process);
            cgroup::move_to(&aside, process.id)?;
        }
        Ok(Some(units))
    }
}

const STARTED: &str = "started";
const RUN: &str = "run";

fn make_threaded(directory: &Path) -> Result<(), Error> {
    let made = Group::make(directory, true);
    made.map(|_| ()).map_err(|source| Error::Group { directory: directory.to_owned(), source })
}
