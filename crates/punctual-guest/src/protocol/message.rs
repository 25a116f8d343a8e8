//! Requests of the host and replies of the guest.

use punctual_jobs::JobStream;
use serde::{Deserialize, Serialize};

use super::network::{FlowReport, Network};

/// A request of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Measure how much work the (virtual) processor does in a millisecond. The guest should have the
    /// processor to itself meanwhile.
    Calibrate {
        /// Length of the measurement.
        duration_ns: u64,
    },
    /// Read the guest's clock.
    Clock {},
    /// Run a task set.
    Run(Run),
    /// Run cyclictest.
    Cyclictest(Cyclictest),
    /// End the guest: a process exits, a VM powers off.
    Quit {},
}

/// A task set and when to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Start by the guest's monotonic clock; 0 means now. An instant in the past stays the start: a guest
    /// that got no processor in time does not start later, but its jobs are late.
    pub start_at_ns: u64,
    /// Length. Jobs that are not finished at the end are abandoned.
    pub duration_ns: u64,
    /// Iterations of a millisecond of work, from a calibration of this guest or one like it.
    pub iterations_per_ms: u64,
    pub tasks: Vec<Task>,
    /// Flows and chains of the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// A smaller number is more urgent; among equal ones, the task that comes first in the list.
    pub priority: u32,
    /// Relative to a job's release. Only [`Reply::Progress`] uses it, to count late jobs.
    pub deadline_ns: Option<u64>,
    pub work: Work,
}

/// The work of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Jobs released by time. A job that misses its deadline runs on; later ones queue up behind it.
    Jobs(JobStream),
    /// Jobs released by packets: a step of a chain, or the server of a flow's requests.
    Served {
        /// Least processor time of a job.
        cost_min_ns: u64,
        /// Most processor time of a job.
        cost_max_ns: u64,
        /// Seed of the costs; see [`punctual_jobs::cost_ns`].
        seed: u64,
    },
    /// A busy loop.
    Hog {
        /// Start of the loop.
        start_ns: u64,
    },
    /// Threads created as fast as possible, each a busy loop.
    ForkBomb {
        /// Creation of the first thread.
        start_ns: u64,
        /// Threads in all.
        threads: u32,
    },
    /// Wake-ups without work.
    WakeFlood {
        /// First wake-up.
        start_ns: u64,
        /// Distance between wake-ups.
        interval_ns: u64,
    },
}

/// Options of cyclictest, a program of the rt-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cyclictest {
    /// Distance between wake-ups.
    pub interval_us: u32,
    /// Number of wake-ups.
    pub loops: u32,
    /// `SCHED_FIFO` priority; 0 for the fair class.
    pub priority: u8,
    /// The histogram has a bucket for each latency below this.
    pub histogram_us: u32,
}

/// A reply of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// The first message: the guest is ready for requests.
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
        jobs: Vec<JobTimes>,
    },
    /// Measurements of one flow or chain. All come before [`Reply::Result`].
    Flow(FlowReport),
    /// Progress of a run: about once a second, or halfway through a shorter run.
    Progress {
        /// By task, in the request's order.
        tasks: Vec<TaskProgress>,
    },
    /// Ends [`Request::Run`].
    Result(RunResult),
    /// Ends [`Request::Cyclictest`].
    Cyclictest(Latencies),
    /// The request could not be carried out.
    Error { message: String },
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

/// A guest's announcement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Version of the protocol.
    pub protocol: u32,
    pub mode: Mode,
    /// Processors that the guest sees.
    pub processors: usize,
    /// The guest has cyclictest.
    pub cyclictest: bool,
}

/// Result of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Iterations in a millisecond, by the median sample.
    pub iterations_per_ms: u64,
    pub samples: u64,
    /// Distance between the samples' first and ninth decile, in millionths of the median. It is large when
    /// the processor was not free.
    pub spread_ppm: u64,
}

/// A job's times since the run's start: `[release, start, finish]` in JSON. `None` means not within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<u64>, Option<u64>)", into = "(u64, Option<u64>, Option<u64>)")]
pub struct JobTimes {
    pub release_ns: u64,
    /// First execution.
    pub start_ns: Option<u64>,
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

/// A task's progress: `[finished, late]` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct TaskProgress {
    pub finished: u64,
    /// Finished jobs that missed their deadlines.
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
    /// How late the guest noticed the end of the run.
    pub overrun_ns: u64,
    /// By task, in the request's order.
    pub tasks: Vec<TaskTotals>,
}

/// A task's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskTotals {
    /// Jobs sent in [`Reply::Jobs`].
    pub jobs: u64,
    /// Work done, converted to processor time by the calibration.
    pub executed_ns: u64,
}

/// Wake-up latencies that cyclictest measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    pub min_us: u64,
    /// Mean, rounded down by cyclictest.
    pub avg_us: u64,
    pub max_us: u64,
    /// Latencies beyond the histogram.
    pub overflows: u64,
    /// Latency in whole us and its count; ascending, without zeros.
    pub buckets: Vec<(u32, u64)>,
}

impl Work {
    /// The jobs that time releases; `None` for other work.
    pub fn job_stream(&self) -> Option<JobStream> {
        match *self {
            Work::Jobs(stream) => Some(stream),
            Work::Served { .. } | Work::Hog { .. } | Work::ForkBomb { .. } | Work::WakeFlood { .. } => None,
        }
    }
}
