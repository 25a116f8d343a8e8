//! What goes wrong with guest programs and the tasks that they are to run.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use punctual_guest::protocol::{LimitError, MalformedLine, TASKS_MAX, VERSION};
use punctual_model::results::GuestFault;
use punctual_sched::fixed_priority;

use crate::cache::{self, FileError};

/// What went wrong with a guest.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It did not answer in time.
    #[error("the guest did not answer within {} s ({doing})", limit.as_secs_f64())]
    Timeout {
        /// What it was asked to do.
        doing: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// It ended, or its channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// It answered something else than the protocol says.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The request has numbers that the protocol does not allow.
    #[error("the guest cannot do it: {0}")]
    Limit(#[from] LimitError),
    /// It says that it cannot.
    #[error("the guest cannot do it: {0}")]
    Refused(String),
}

impl ClientError {
    /// The kind of fault, for the domain's verdict.
    pub fn fault(&self) -> GuestFault {
        match self {
            ClientError::Timeout { .. } | ClientError::Channel(_) | ClientError::Refused(_) => {
                GuestFault::Unresponsive
            }
            ClientError::Protocol(_) | ClientError::Limit(_) => GuestFault::ProtocolViolation,
        }
    }
}

/// Why the channel of a guest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// It closed the channel.
    #[error("the guest program ended when it was asked {doing}")]
    Ended {
        /// What it was asked to do.
        doing: &'static str,
    },
    /// A request cannot be written.
    #[error("the guest cannot be asked {doing}: {source}")]
    Send {
        /// What it would have been asked to do.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Nothing can be read.
    #[error("the guest's channel failed: {0}")]
    Failed(#[source] io::Error),
}

/// How a guest, or the caller, violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A line is not a reply.
    #[error("the guest does not speak the protocol: {0}")]
    Malformed(#[source] MalformedLine),
    /// The guest program has another version of the protocol.
    #[error(
        "the guest program speaks version {guest} of the protocol, this is version {VERSION}: it was built \
         from other sources"
    )]
    Version {
        /// Its version.
        guest: u32,
    },
    /// A reply does not fit the request.
    #[error("the guest was asked {doing} and answered {reply}")]
    Unexpected {
        /// What it was asked to do.
        doing: &'static str,
        /// The start of its reply.
        reply: String,
    },
    /// It writes more than any answer needs.
    #[error("the guest was asked {doing} and writes without end")]
    Flood {
        /// What it was asked to do.
        doing: &'static str,
    },
    /// A second run was to begin during the first.
    #[error("a run was begun and is not finished")]
    Unfinished,
    /// There is no run to wait for.
    #[error("no run was begun")]
    NotBegun,
    /// A result has other numbers of jobs than came before.
    #[error("the guest's result has lost jobs")]
    LostJobs,
    /// Jobs belong to no task.
    #[error("the guest reports jobs of task {task}, but it has {tasks} tasks")]
    UnknownTask {
        /// The number that the guest gave.
        task: usize,
        /// How many tasks it was given.
        tasks: usize,
    },
    /// It reports a job that is not released, or not yet.
    #[error("the guest reports a job of task {task} that is not released")]
    NotReleased {
        /// The task.
        task: usize,
    },
    /// It reports a flow or chain in which it takes no part, or reports one twice.
    #[error("the guest reports flow number {owner}, in which it takes no part, or reports it twice")]
    UnknownFlow {
        /// The number.
        owner: u16,
    },
    /// Its report of a flow or chain contradicts itself.
    #[error("the guest's latencies of flow number {owner} are wrong: {reason}")]
    Flow {
        /// The number.
        owner: u16,
        /// What is wrong.
        reason: String,
    },
    /// It reports another release than the job has.
    #[error(
        "the guest reports a job of task {task} that was released at {told_ns} ns; it is released at \
         {is_ns} ns"
    )]
    Release {
        /// The task.
        task: usize,
        /// The release in the report, since the run's start.
        told_ns: u64,
        /// When the job is released.
        is_ns: u64,
    },
    /// A task worked longer than it can have.
    #[error("the guest reports more work of task {task} than fits the run")]
    Executed {
        /// The task.
        task: usize,
    },
    /// It reports the end of a run that is not over.
    #[error("the guest reports the end of a run that is not over")]
    Early,
    /// The times of a job contradict each other or the run.
    #[error(transparent)]
    Job(LimitError),
    /// A job started before its predecessor was finished, or fewer are finished than before.
    #[error("the guest reports jobs of task {task} out of order")]
    Disorder {
        /// The task.
        task: usize,
    },
}

/// Why a guest program does not run as a process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The cache that is to hold the program cannot be used.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// The program cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program cannot be started.
    #[error("{} cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The program did not announce itself.
    #[error("{}: {source}", program.display())]
    Connect {
        /// The program.
        program: PathBuf,
        /// What it did instead.
        source: ClientError,
    },
    /// An earlier wait for the program has failed already.
    #[error("{} did not announce itself before and will not now", program.display())]
    GivenUp {
        /// The program.
        program: PathBuf,
    },
}

/// Why a guest program cannot run the tasks of a domain.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    /// There is no such domain.
    #[error("the host has no domain number {0}")]
    NoDomain(usize),
    /// The guest is to schedule by another policy than that of SCHED_FIFO.
    #[error(
        "the guest of domain `{domain}` schedules by `{policy}`; real guests schedule by `{}` (SCHED_FIFO)",
        fixed_priority::INFO.name
    )]
    Policy {
        /// The domain.
        domain: String,
        /// Its guest's policy.
        policy: &'static str,
    },
    /// The domain gets no packets that could release jobs.
    #[error(
        "task `{task}` of domain `{domain}` is released by packets (`on_packet`), and the domain is no \
         VM on a switch of this run"
    )]
    Served {
        /// The domain.
        domain: String,
        /// The task.
        task: String,
    },
    /// The guest program has no vCPUs that wait for each other.
    #[error("the vCPUs of domain `{domain}` wait for each other (`smp`), which is simulated only")]
    Smp {
        /// The domain.
        domain: String,
    },
    /// The guest program takes no locks.
    #[error(
        "task `{task}` of domain `{domain}` shares resources (`sections`), which is simulated and analysed \
         only"
    )]
    Sections {
        /// The domain.
        domain: String,
        /// The task.
        task: String,
    },
    /// A guest does not take its flows.
    #[error("the flows of `{end}` cannot be live: {source}")]
    Flows {
        /// The domain, or the host outside.
        end: String,
        /// What is wrong with them.
        source: LimitError,
    },
    /// There are more tasks than a guest program takes.
    #[error("domain `{domain}` has {tasks} tasks; a real guest may have {TASKS_MAX}")]
    TooMany {
        /// The domain.
        domain: String,
        /// Its tasks.
        tasks: usize,
    },
}
