//! The messages: what the host asks for, and what the guest answers.

use punctual_jobs::JobStream;
use serde::{Deserialize, Serialize};

use super::network::{FlowReport, Network};

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Measure how much work this (virtual) processor does in a millisecond. It should have the processor for
    /// itself meanwhile.
    Calibrate {
        /// How long to measure.
        duration_ns: u64,
    },
    /// What does the guest's clock say?
    Clock {},
    /// Run a task set.
    Run(Run),
    /// Run cyclictest.
    Cyclictest(Cyclictest),
    /// End: a process exits, a VM powers off.
    Quit {},
}

/// A task set and when to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When the run starts by the guest's monotonic clock; 0 means now. An instant in the past stays the
    /// start: a guest that got no processor in time does not start later, its jobs are late.
    pub start_at_ns: u64,
    /// Length; what is not finished then is abandoned.
    pub duration_ns: u64,
    /// Iterations of a millisecond of work, from a calibration of this guest or one like it.
    pub iterations_per_ms: u64,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// What the guest sends and answers meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Smaller is more urgent; of two equal ones, the task that comes first in the list.
    pub priority: u32,
    /// From a job's release. [`Reply::Progress`] counts the jobs that finish later; nothing else uses it.
    pub deadline_ns: Option<u64>,
    /// What it does.
    pub work: Work,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Releases jobs; one that misses its deadline runs on, and later ones queue up behind it.
    Jobs(JobStream),
    /// Its jobs are released by packets: a step of a chain, or the server of a flow's requests.
    Served {
        /// Least processor time of a job.
        cost_min_ns: u64,
        /// Most processor time of a job.
        cost_max_ns: u64,
        /// What the costs follow from; see [`punctual_jobs::cost_ns`].
        seed: u64,
    },
    /// A busy loop.
    Hog {
        /// When it starts.
        start_ns: u64,
    },
    /// Creates threads as fast as it can; each is a busy loop.
    ForkBomb {
        /// When it starts.
        start_ns: u64,
        /// How many threads it creates in all.
        threads: u32,
    },
    /// Sleeps and wakes, without doing anything.
    WakeFlood {
        /// When it starts.
        start_ns: u64,
        /// From a wake-up to the next.
        interval_ns: u64,
    },
}

/// How to run cyclictest, a program of the rt-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cyclictest {
    /// From a wake-up to the next.
    pub interval_us: u32,
    /// How many wake-ups.
    pub loops: u32,
    /// Its priority under `SCHED_FIFO`; 0: none.
    pub priority: u8,
    /// Latencies from 0 us to below this are counted one by one.
    pub histogram_us: u32,
}

/// What the guest answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// The guest is ready for requests; the first message.
    Ready(Ready),
    /// Ends [`Request::Calibrate`].
    Calibrated(Calibration),
    /// Ends [`Request::Clock`].
    Clock {
        /// The guest's monotonic clock.
        now_ns: u64,
    },
    /// Some jobs of a task, in order of release. All jobs come in such replies before [`Reply::Result`].
    Jobs {
        /// The task's place in the request.
        task: usize,
        /// The jobs.
        jobs: Vec<JobTimes>,
    },
    /// What one end of a flow, or a domain's part of a chain, did. All come before [`Reply::Result`].
    Flow(FlowReport),
    /// How far a run is: about once a second while it goes on, or halfway through a shorter one.
    Progress {
        /// By task, in the request's order.
        tasks: Vec<TaskProgress>,
    },
    /// Ends [`Request::Run`].
    Result(RunResult),
    /// Ends [`Request::Cyclictest`].
    Cyclictest(Latencies),
    /// The request could not be carried out.
    Error {
        /// Why, for a person.
        message: String,
    },
}

/// How a guest executes tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A thread for each task, under `SCHED_FIFO`.
    Fifo,
    /// One thread that is a vCPU.
    Vcpu,
}

/// What a guest says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Its version, [`super::VERSION`].
    pub protocol: u32,
    /// How it executes tasks.
    pub mode: Mode,
    /// How many processors it sees.
    pub processors: usize,
    /// Can it run cyclictest?
    pub cyclictest: bool,
}

/// What a calibration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Iterations that take a millisecond, by the median sample.
    pub iterations_per_ms: u64,
    /// How many samples were taken.
    pub samples: u64,
    /// The distance of the samples' first and ninth decile, in millionths of the median. It is large when the
    /// processor was not free.
    pub spread_ppm: u64,
}

/// A job's times since the run's start: `[release, start, finish]` in JSON. `None`: not within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<u64>, Option<u64>)", into = "(u64, Option<u64>, Option<u64>)")]
pub struct JobTimes {
    /// When it was released.
    pub release_ns: u64,
    /// When it first executed.
    pub start_ns: Option<u64>,
    /// When it was finished.
    pub finish_ns: Option<u64>,
}

impl From<(u64, Option<u64>, Option<u64>)> for JobTimes {
    fn from((release_ns, start_ns, finish_ns): (u64, Option<u64>, Option<u64>)) -> Self {
        JobTimes { release_ns, start_ns, finish_ns }
    }
}

impl From<JobTimes> for (u64, Option<u64>, Option<u64>) {
    fn from(job: JobTimes) -> Self {
        (job.release_ns, job.start_ns, job.finish_ns)
    }
}

/// How far a task is: `[finished, late]` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct TaskProgress {
    /// Jobs that are finished.
    pub finished: u64,
    /// Those of them that were finished after their deadlines.
    pub late: u64,
}

impl From<(u64, u64)> for TaskProgress {
    fn from((finished, late): (u64, u64)) -> Self {
        TaskProgress { finished, late }
    }
}

impl From<TaskProgress> for (u64, u64) {
    fn from(progress: TaskProgress) -> Self {
        (progress.finished, progress.late)
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// How long after the run's end the guest noticed it.
    pub overrun_ns: u64,
    /// By task, in the request's order.
    pub tasks: Vec<TaskTotals>,
}

/// What a task did in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskTotals {
    /// How many of its jobs came in [`Reply::Jobs`].
    pub jobs: u64,
    /// Work done, as processor time by the calibration.
    pub executed_ns: u64,
}

/// What cyclictest measured: how late a timer wakes a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// Least.
    pub min_us: u64,
    /// Mean, rounded down by cyclictest.
    pub avg_us: u64,
    /// Greatest.
    pub max_us: u64,
    /// How many lay beyond the histogram.
    pub overflows: u64,
    /// Latency in whole us and how often; ascending, without zeros.
    pub buckets: Vec<(u32, u64)>,
}

impl Work {
    /// The jobs that it releases, if it releases any.
    pub fn job_stream(&self) -> Option<JobStream> {
        match *self {
            Work::Jobs(stream) => Some(stream),
            Work::Served { .. } | Work::Hog { .. } | Work::ForkBomb { .. } | Work::WakeFlood { .. } => None,
        }
    }
}
