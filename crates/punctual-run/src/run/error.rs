//! Why a run fails.

use std::io;

use punctual_doctor::doctor;
use punctual_enforce::backend::Refused;
use punctual_enforce::journal::Restored;
use punctual_enforce::session::{self, Failed};

use crate::error::ServeError;
use punctual_linux::cpuset::Cpuset;
use punctual_linux::os::proc;
use punctual_linux::partition;
use punctual_linux::preflight;
use punctual_linux::vmm::FindError;
use punctual_vm::qemu::QmpError;
use punctual_vm::workload::{ClientError, ProcessError, TasksError};
use punctual_vm::{cache, image, qemu};

/// Why a run failed or was stopped. Everything was put back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user stopped it before there was a result.
    #[error("stopped before there was a result")]
    Stopped,
    /// The machine does not permit it.
    #[error(transparent)]
    Preflight(#[from] preflight::Error),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] session::Error),
    /// What was asked for cannot enforce the run.
    #[error(transparent)]
    Backend(#[from] Refused),
    /// This machine has no isolated partitions.
    #[error("`isolate`: {0}")]
    NoPartitions(#[source] partition::Unavailable),
    /// The host has nothing that could run.
    #[error("the host has no domain to run")]
    NoDomain,
    /// The limit of tasks is reached.
    #[error("no thread can be started: {0}; raise the limit of tasks of this cgroup (pids.max) or user")]
    NoThread(#[source] io::Error),
    /// VMs inside VMs are simulated only.
    #[error("domain `{domain}` runs inside another one: a live run schedules domains of pools only")]
    Nested {
        /// The inner domain.
        domain: String,
    },
    /// A task of a pool itself has no thread on a real host.
    #[error("task `{task}` belongs to a pool: on a real host, put it into a domain with `process`")]
    PoolTask {
        /// The task.
        task: String,
    },
    /// The enforcers of a pool serve one queue, or one for each processor.
    #[error(
        "event `{event}`: of `{}` and `{}`, one has a queue for the whole pool and the other one for each \
         processor; a live run changes between such policies in a pool of one processor only",
        .policies[0], .policies[1]
    )]
    Replace {
        /// The event.
        event: String,
        /// Before and after it.
        policies: [&'static str; 2],
    },
    /// A guest program cannot run a domain's tasks.
    #[error(transparent)]
    Tasks(#[from] TasksError),
    /// The guest image cannot be made.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// A VM cannot be started or used.
    #[error(transparent)]
    Vm(#[from] qemu::Error),
    /// A guest program cannot be started as a process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// No guest has announced itself, and nothing else is to run.
    #[error("domain `{domain}` did not start: {source}{last_words}")]
    NoGuest {
        /// The first of the domains.
        domain: String,
        /// What its guest did instead.
        source: ClientError,
        /// How it ended, if it did, and what it said last.
        last_words: String,
    },
    /// What a domain is to be attached to is not there.
    #[error("domain `{domain}`: {source}")]
    Attach {
        /// The domain.
        domain: String,
        /// Why.
        source: AttachError,
    },
    /// Two domains attach to the same thread.
    #[error(
        "domain `{domain}`: thread {thread} is a vCPU of domain `{first}` already\n  \
         expected other threads: a thread is one vCPU of one domain"
    )]
    SharedThread {
        /// The second domain.
        domain: String,
        /// The first domain.
        first: String,
        /// The thread.
        thread: u32,
    },
    /// A domain has other vCPUs than the host file says.
    #[error(
        "domain `{domain}` has {} in the host file and {} on this machine\n  \
         set `vcpus = {found}` in [domain.{domain}]",
        vcpus(*expected),
        vcpus(*found)
    )]
    VcpuCount {
        /// The domain.
        domain: String,
        /// vCPUs in the host file.
        expected: usize,
        /// vCPUs on this machine.
        found: usize,
    },
    /// A domain has a vCPU with a number that the host file does not have.
    #[error(
        "domain `{domain}` has {} in the host file and at least {} on this machine\n  \
         set `vcpus = {}` in [domain.{domain}]",
        vcpus(*expected),
        vcpus(*number as usize + 1),
        number + 1
    )]
    VcpuNumber {
        /// The domain.
        domain: String,
        /// vCPUs in the host file.
        expected: usize,
        /// The number.
        number: u32,
    },
    /// A vCPU's thread ended before it was adopted.
    #[error("domain `{domain}`: thread {thread} is gone")]
    ThreadGone {
        /// The domain.
        domain: String,
        /// The thread.
        thread: u32,
    },
    /// What the system says of a vCPU's thread cannot be read.
    #[error("domain `{domain}`: thread {thread} cannot be read: {source}")]
    ThreadUnreadable {
        /// The domain.
        domain: String,
        /// The thread.
        thread: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The threads of a domain cannot be scheduled for its calibration.
    #[error("domain `{domain}`: {source}")]
    Schedule {
        /// The domain.
        domain: String,
        /// What the system says.
        source: io::Error,
    },
    /// A guest did not do its work.
    #[error("domain `{domain}`: {source}")]
    Guest {
        /// The domain.
        domain: String,
        /// Why.
        source: ClientError,
    },
    /// A thread that waited for a guest panicked.
    #[error("domain `{domain}`: waiting for it failed")]
    Panicked {
        /// The domain.
        domain: String,
    },
}

/// So many vCPUs, in words.
fn vcpus(count: usize) -> String {
    if count == 1 { "1 vCPU".into() } else { format!("{count} vCPUs") }
}

impl Error {
    /// For [`Result::map_err`]: what a guest did wrong.
    pub(super) fn guest(domain: &str) -> impl Fn(ClientError) -> Error {
        move |source| Error::Guest { domain: domain.to_owned(), source }
    }

    /// For [`Result::map_err`]: why threads of a domain cannot be scheduled.
    pub(super) fn schedule(domain: &str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Schedule { domain: domain.to_owned(), source }
    }
}

/// Why there are no results of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was refused before anything was changed on this machine.
    #[error(transparent)]
    Refused(#[from] ServeError),
    /// It failed or was stopped.
    #[error("{error}")]
    Failed {
        #[source]
        error: Box<Error>,
        /// What was put back; `None`: nothing had been changed.
        restored: Option<Restored>,
    },
}

impl RunError {
    /// Nothing has been changed yet.
    pub(super) fn unchanged(error: Error) -> RunError {
        RunError::Failed { error: Box::new(error), restored: None }
    }

    pub(super) fn of_session(failed: Failed) -> RunError {
        RunError::Failed { error: Box::new((*failed.error).into()), restored: failed.restored }
    }

    /// Did the user stop the run?
    pub fn is_stopped(&self) -> bool {
        matches!(self, RunError::Failed { error, .. } if matches!(**error, Error::Stopped))
    }

    /// What the run changed and could not put back, a sentence each.
    pub fn not_put_back(&self) -> &[String] {
        match self {
            RunError::Failed { restored: Some(restored), .. } => &restored.failures,
            RunError::Failed { restored: None, .. } | RunError::Refused(_) => &[],
        }
    }
}

/// Why the vCPUs of something that runs already are not found.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// QEMU's monitor does not say which threads they are.
    #[error(transparent)]
    Monitor(#[from] QmpError),
    /// No process runs the VM.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The threads of a process cannot be listed.
    #[error("process {process}: {source}")]
    Process {
        /// The process.
        process: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The threads of a process are called otherwise than vCPUs.
    #[error(
        "process {process} has no thread whose name is a vCPU's; QEMU names them with \
         -name NAME,debug-threads=on; otherwise give their ids as `threads = [...]`"
    )]
    NoNames {
        /// The process.
        process: u32,
    },
    /// A thread of the kernel is in no cgroup of its own, and is needed elsewhere.
    #[error(
        "thread {thread} ({}) is a thread of the kernel\n  \
         expected a thread of a process; list them with: ps -eLo pid,tid,comm",
        .name.escape_debug()
    )]
    KernelThread {
        /// The thread.
        thread: u32,
        /// Its name.
        name: String,
    },
    /// The cpuset of a vCPU's thread lacks a processor of its pool.
    #[error(
        "thread {thread} may not run on processor {processor}: its cpuset {} has processors {}\n  \
         add it to cpuset.cpus there, or give the domain a pool whose processors are in the cpuset",
        cpuset.directory.display(),
        preflight::list(&cpuset.processors)
    )]
    Cpuset {
        /// The thread.
        thread: u32,
        /// The processor.
        processor: usize,
        /// The cpuset.
        cpuset: Cpuset,
    },
    /// The cpuset of a helper thread has none of the processors for helpers.
    #[error(
        "helper thread {thread} may run on none of processors {}: its cpuset {} has processors {}\n  \
         name a processor of the cpuset in the domain's `helpers = {{ processors = [...] }}`",
        preflight::list(processors),
        cpuset.directory.display(),
        preflight::list(&cpuset.processors)
    )]
    HelperCpuset {
        /// The thread.
        thread: u32,
        /// The processors for helpers.
        processors: Vec<usize>,
        /// The cpuset.
        cpuset: Cpuset,
    },
    /// A thread ended meanwhile.
    #[error("thread {0} is gone")]
    ThreadGone(u32),
    /// What the system says of a thread cannot be read.
    #[error("thread {thread} cannot be read: {source}")]
    ThreadUnreadable {
        /// The thread.
        thread: u32,
        /// What the system says.
        source: io::Error,
    },
}

impl AttachError {
    /// Why what the system says of a thread is not known.
    pub(super) fn of_thread(thread: u32, source: io::Error) -> AttachError {
        if proc::is_gone(&source) {
            AttachError::ThreadGone(thread)
        } else {
            AttachError::ThreadUnreadable { thread, source }
        }
    }
}

/// Why a change of the machine could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", change.target())]
pub struct ChangeError {
    /// The change.
    pub change: doctor::Change,
    /// What the system says.
    pub source: io::Error,
}
