//! What belongs to one run at a time, and what several runs change together.
//!
//! Journals are the registry. A claim is a line of a run's journal, and holds as long as the journal exists:
//! until the run has ended and everything is put back. A run that claims something locks the state directory
//! ([`DirectoryLock`]) while it compares its claim with the journals of others.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::directory::DirectoryLock;
use super::machine::{MachineLock, others};
use super::{Change, Contents, GUARDIAN_MAX, HeldJournal, Identity, Journal, Resource};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::partition;

/// How often to ask whether a guardian has finished.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a run may not have something.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It belongs to another run.
    #[error(
        "{resource} belongs to the run of `{}` (process {process}){}",
        .name.escape_debug(),
        if *.is_running {
            "\n  wait until that run has ended, or end it with: kill -INT ".to_owned() + &process.to_string()
        } else {
            ", which died and has not been undone\n  undo it with: punctual restore".to_owned()
        }
    )]
    Taken {
        /// What it is.
        resource: Resource,
        /// What the other run runs: its host's name.
        name: String,
        /// Its process.
        process: i32,
        /// Does it go on?
        is_running: bool,
    },
    /// A thread is in a cgroup of a run that keeps its state elsewhere.
    #[error(
        "thread {thread} belongs to another run: it is in its cgroup {}\n  \
         end that run first; where it died, undo it with: punctual restore",
        .group.escape_debug()
    )]
    InGroup {
        /// The thread.
        thread: i32,
        /// Its cgroup.
        group: String,
    },
    /// The state directory cannot be used.
    #[error("the state directory cannot be used: {0}")]
    Io(#[from] io::Error),
}

impl Journal {
    /// Claims what belongs to one run at a time, all of it or nothing. What this run has already is left out.
    /// Waits for the guardian of a run that has died, and calls `meanwhile` many times a second.
    ///
    /// # Errors
    /// Another run has some of it.
    pub fn claim(&mut self, resources: &[Resource], mut meanwhile: impl FnMut()) -> Result<(), ClaimError> {
        let give_up = Instant::now() + GUARDIAN_MAX;
        loop {
            let Some((journal, taken)) = self.try_claim(resources)? else { return Ok(()) };
            let is_over = matches!(taken, ClaimError::Taken { is_running: false, .. });
            if !is_over || Instant::now() > give_up || !HeldJournal::is_being_undone(&journal) {
                return Err(taken);
            }
            meanwhile();
            std::thread::sleep(PAUSE);
        }
    }

    /// As [`Journal::claim`], without waiting: the journal of the run that has some of it, and the error.
    fn try_claim(&mut self, resources: &[Resource]) -> Result<Option<(PathBuf, ClaimError)>, ClaimError> {
        let _alone = DirectoryLock::take()?;
        let own = Contents::of(&self.file)?;
        let is_new = |resource: &&Resource| !claims(&own).any(|claimed| claimed == *resource);
        let resources: Vec<&Resource> = resources.iter().filter(is_new).collect();
        for (path, other) in others(&self.path)? {
            if let Some(resource) = resources.iter().find(|wanted| claims(&other).any(|has| has == **wanted))
            {
                let (name, process) =
                    other.run().map_or_else(Default::default, |run| (run.name, run.enforcer.id));
                let taken = ClaimError::Taken {
                    resource: (*resource).clone(),
                    name: name.to_owned(),
                    process,
                    is_running: other.is_running(),
                };
                return Ok(Some((path, taken)));
            }
        }
        for resource in resources {
            self.record(&Change::Claim { resource: resource.clone() })?;
        }
        Ok(None)
    }

    /// Claims the process of a thread that this run is to attach to.
    ///
    /// # Errors
    /// Another run has it, or the thread is gone.
    pub fn claim_process_of(&mut self, tid: i32) -> Result<(), ClaimError> {
        self.claim(&[Resource::Process(Identity::of(proc::process_of(tid)?)?)], || ())?;
        // A run whose state is elsewhere is known by its groups alone.
        let (own, group) = (std::process::id() as i32, cgroup::group_of(tid)?);
        match super::paths::run_of_group(&group) {
            Some(run) if run != own => Err(ClaimError::InGroup { thread: tid, group }),
            _ => Ok(()),
        }
    }

    /// Writes `during` to the file at `path` as [`Journal::set_file_back_to`], to be put back to what it says
    /// now.
    ///
    /// # Errors
    /// As `read(2)` and `write(2)`.
    pub fn set_file(&mut self, path: &Path, during: &str) -> io::Result<()> {
        self.set(path, during, str::to_owned)
    }

    /// Writes `during` to the file at `path`, which concerns the whole machine. It is put back to `before` by
    /// the last run that has changed it. `before` need not be what the file reads, where that is several
    /// words; one word that is another one by now was the value of a run that has ended since, and the file
    /// is put back to what it says now. Nothing happens when it says `during` and no run has changed it.
    ///
    /// # Errors
    /// As `read(2)` and `write(2)`. A path that [`super::restore()`] would not write is refused.
    pub fn set_file_back_to(&mut self, path: &Path, during: &str, before: &str) -> io::Result<()> {
        let is_list = |now: &str| now.contains(char::is_whitespace);
        self.set(path, during, |now| if is_list(now) { before } else { now }.to_owned())
    }

    /// `before` says from what the file reads how it is put back, if no other run has changed it.
    fn set(&mut self, path: &Path, during: &str, before: impl FnOnce(&str) -> String) -> io::Result<()> {
        super::paths::check_parameter(path)?;
        let machine = MachineLock::take()?;
        let original = machine.others(&self.path)?.iter().find_map(|other| file_before(other, path));
        // Not before the lock is held: another run may put it back until then.
        let now = std::fs::read_to_string(path)?;
        let is_set = now.trim() == during.trim();
        if is_set && original.is_none() {
            return Ok(());
        }
        self.register(&machine)?;
        self.record(&Change::File {
            path: path.to_owned(),
            before: original.unwrap_or_else(|| before(now.trim())),
            during: during.to_owned(),
        })?;
        if is_set { Ok(()) } else { super::paths::write_parameter(path, during) }
    }

    /// Gives cpusets to the groups of the mount of cgroup version 2, unless they have some. The last run that
    /// needs them takes them away.
    ///
    /// # Errors
    /// The journal or the file cannot be written.
    pub fn give_cpusets(&mut self, mount: &Path) -> io::Result<Result<(), partition::Error>> {
        let machine = MachineLock::take()?;
        let is_given = partition::gives_cpusets(mount);
        if is_given && !machine.others(&self.path)?.iter().any(needs_cpusets) {
            return Ok(Ok(()));
        }
        self.register(&machine)?;
        self.record(&Change::Cpusets)?;
        Ok(if is_given { Ok(()) } else { partition::give_cpusets(mount, true) })
    }

    /// Changes a thread of the kernel, which all runs share, by `change`. The last run that has changed it
    /// puts it back.
    ///
    /// # Errors
    /// The thread is gone, or what `change` says.
    pub fn change_kernel_thread(
        &mut self,
        tid: i32,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let machine = MachineLock::take()?;
        let (thread, attributes, affinity) = self.original(&machine, tid)?;
        self.register(&machine)?;
        self.record(&Change::KernelThread { thread, attributes, affinity })?;
        change()
    }

    /// The processors that a thread of the kernel was allowed before the first run that changed it.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn kernel_thread_affinity(&self, tid: i32) -> io::Result<Vec<usize>> {
        Ok(self.original(&MachineLock::take()?, tid)?.2)
    }

    /// How a thread of the kernel was before another run changed it, or is now.
    fn original(&self, machine: &MachineLock, tid: i32) -> io::Result<(Identity, Attributes, Vec<usize>)> {
        let thread = Identity::of(tid)?;
        let others = machine.others(&self.path)?;
        let (attributes, affinity) = match others.iter().find_map(|other| kernel_thread_before(other, thread))
        {
            Some(original) => original,
            None => (sched::attributes(tid)?, sched::affinity(tid)?),
        };
        Ok((thread, attributes, affinity))
    }

    /// Makes this run known to those with other state directories, once.
    fn register(&mut self, machine: &MachineLock) -> io::Result<()> {
        if !self.is_registered {
            machine.register(&self.path)?;
            self.is_registered = true;
        }
        Ok(())
    }
}

/// The processors that other runs have now, also with other state directories.
///
/// # Errors
/// The state directory cannot be read.
pub fn claimed_processors() -> io::Result<Vec<usize>> {
    let mut processors: Vec<usize> = Vec::new();
    for other in MachineLock::take()?.others(Path::new(""))? {
        processors.extend(claims(&other).filter_map(|resource| match resource {
            Resource::Processor(number) => Some(*number),
            Resource::Process(_) | Resource::Device { .. } => None,
        }));
    }
    Ok(processors)
}

pub(super) fn claims(contents: &Contents) -> impl Iterator<Item = &Resource> {
    contents.changes.iter().filter_map(|change| match change {
        Change::Claim { resource } => Some(resource),
        _ => None,
    })
}

/// Did the run of this journal give cpusets to the groups of the mount, or rely on another one that did?
pub(super) fn needs_cpusets(contents: &Contents) -> bool {
    contents.changes.contains(&Change::Cpusets)
}

/// What a file said before the run of this journal.
pub(super) fn file_before(contents: &Contents, file: &Path) -> Option<String> {
    contents.changes.iter().find_map(|change| match change {
        Change::File { path, before, .. } if path == file => Some(before.clone()),
        _ => None,
    })
}

/// How a thread of the kernel was before the run of this journal.
pub(super) fn kernel_thread_before(contents: &Contents, id: Identity) -> Option<(Attributes, Vec<usize>)> {
    contents.changes.iter().find_map(|change| match change {
        Change::KernelThread { thread, attributes, affinity } if *thread == id => {
            Some((*attributes, affinity.clone()))
        }
        _ => None,
    })
}
