//! Why a session does not start or go on.

use std::io;
use std::path::PathBuf;

use punctual_sched::registry::OptionError;

use crate::journal::{ClaimError, Restored};
use crate::unit;
use punctual_linux::os::cgroup;
use punctual_linux::partition;
use punctual_linux::preflight;

/// Why a session does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine does not permit it.
    #[error(transparent)]
    Preflight(#[from] preflight::Error),
    /// A policy refused its options.
    #[error("policy `{policy}`: {source}")]
    Policy {
        /// The policy.
        policy: &'static str,
        /// What it says.
        source: OptionError,
    },
    /// The scheduler is not in the kernel.
    #[error("`sched-ext`: {0}")]
    NoScheduler(#[from] punctual_scx::Error),
    /// Something belongs to another run.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The state directory cannot be written.
    #[error("no journal can be written in {}: {source}", directory.display())]
    NoJournal {
        /// The state directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A change cannot be written down, so it was not made.
    #[error("the journal cannot be written: {0}")]
    Journal(#[source] io::Error),
    /// The guardian does not start.
    #[error("the guardian cannot be started ({}): {source}", program.display())]
    NoGuardian {
        /// The guardian's program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The guardian ended during the session.
    #[error("the guardian is gone")]
    GuardianGone,
    /// No thread beats for the guardian.
    #[error("no thread can be started that shows the guardian that all is well: {0}")]
    NoHeart(#[source] io::Error),
    /// The processors of the calling thread are not known, so they could not be put back.
    #[error("this process's affinity cannot be read: {0}")]
    OwnAffinity(#[source] io::Error),
    /// The calling thread would take time from the pools.
    #[error("this process cannot leave the pools' processors: {0}")]
    LeaveProcessors(#[source] io::Error),
    /// A cgroup cannot be made.
    #[error("{} cannot be made: {source}", directory.display())]
    Group {
        /// Its directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// This machine has no isolated partitions.
    #[error("`isolate`: {0}")]
    NoPartitions(#[from] partition::Unavailable),
    /// A pool is not made a partition.
    #[error("`isolate`: {0}")]
    Partition(#[from] partition::Error),
    /// The threads of a domain cannot be limited.
    #[error("`threads_max` of domain `{domain}`: {source}")]
    Limit {
        /// The domain.
        domain: String,
        /// Why.
        source: cgroup::LimitError,
    },
    /// A kernel parameter cannot be set.
    #[error("{file} cannot be set: {source}")]
    Parameter {
        /// Its file.
        file: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A network card is not handled as the host file says.
    #[error("{} cannot be set to {value:?}: {source}", path.display())]
    Card {
        /// The file.
        path: PathBuf,
        /// What was written to it.
        value: String,
        /// What the system says.
        source: io::Error,
    },
    /// A device has nothing that a thread could poll.
    #[error(
        "{device} cannot be polled in threads: its driver uses no NAPI\n  expected the network card below it \
         as `device`; or of a veth, NAPI through GRO:\n  ethtool -K {device} gro on; or another `method`"
    )]
    NoNapi {
        /// The device.
        device: String,
    },
    /// The threads of the kernel cannot be listed.
    #[error("the threads of the kernel cannot be read: {0}")]
    Threads(#[source] io::Error),
    /// A pool's enforcers do not start.
    #[error("enforcers cannot be started: {0}")]
    NoEnforcers(#[source] io::Error),
    /// An enforcer ended during the session.
    #[error("enforcement failed: {0}")]
    Enforcement(#[source] io::Error),
    /// A program of a domain does not start.
    #[error("{program} cannot be started: {source}")]
    Launch {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A process was gone before it could be written down.
    #[error("{program} ended at once: {source}")]
    EndedAtOnce {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A thread beside the vCPUs cannot be given its processors and priority.
    #[error("helper thread {thread} cannot be placed: {source}")]
    Helper {
        /// The thread.
        thread: i32,
        /// What the system says.
        source: io::Error,
    },
    /// Threads cannot be read or moved to a group of their own.
    #[error("`{unit}` cannot be taken in: {source}")]
    Adopt {
        /// The unit that they were to be.
        unit: String,
        /// What the system says.
        source: io::Error,
    },
    /// Plain Linux does not schedule a unit as it should.
    #[error("`{unit}` under {scheduler}: {source}")]
    Schedule {
        /// The unit.
        unit: String,
        /// The scheduler's name.
        scheduler: &'static str,
        /// Why.
        source: unit::Error,
    },
    /// Neither the guardian nor the run could undo the journal.
    #[error("{} cannot be undone: {source}", journal.display())]
    Undo {
        /// The journal.
        journal: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    /// For [`Result::map_err`]: why a unit cannot be taken in.
    pub(super) fn adopt(unit: &str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Adopt { unit: unit.to_owned(), source }
    }
}

/// Why a session ended, and what was put back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    #[source]
    pub error: Box<Error>,
    /// `None`: nothing had been changed.
    pub restored: Option<Restored>,
}

impl Failed {
    pub(super) fn unchanged(error: Error) -> Failed {
        Failed { error: Box::new(error), restored: None }
    }
}
