//! What host and guest say to each other: JSON values, one a line.
//!
//! The guest opens with [`Reply::Ready`]; then the host sends one [`Request`] at a time and waits for the
//! [`Reply`] that ends it. Times are whole ns. Neither side trusts the other: lines are bounded, numbers are
//! checked ([`Run::check`], [`JobTimes::check`]), and what does not fit is an error, never a panic.
//!
//! ```text
//! guest  {"ready":{"protocol":1,"mode":"vcpu","processors":1,"cyclictest":false}}
//! host   {"calibrate":{"duration_ns":200000000}}
//! guest  {"calibrated":{"iterations_per_ms":471034,"samples":1893,"spread_ppm":2120}}
//! host   {"run":{"start_at_ns":81000000000,"duration_ns":1000000000,"iterations_per_ms":471034,"tasks":[...]}}
//! guest  {"jobs":{"task":0,"jobs":[[0,5210,1012380],[10000000,10005330,11020480]]}}
//! guest  {"result":{"overrun_ns":20110,"tasks":[{"jobs":2,"executed_ns":2000000}]}}
//! ```

use std::io::BufRead;

use punctual_jobs::{Arrival, JobStream};
use serde::{Deserialize, Serialize};

/// The version of the protocol; both sides must have the same.
pub const VERSION: u32 = 2;
/// Longest line in bytes, its end included.
pub const LINE_BYTES_MAX: usize = 128 * 1024;
/// Most tasks of a run.
pub const TASKS_MAX: usize = 256;
/// Most jobs of a run, over all tasks: their times are kept in locked memory, 40 bytes each.
pub const JOBS_MAX: u64 = 1_000_000;
/// Most jobs in one [`Reply::Jobs`]; 500 fit a line however large their numbers.
pub const JOBS_PER_LINE: usize = 500;
/// Longest run and greatest time of anything in it: a day.
pub const TIME_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Most threads of a fork bomb.
pub const THREADS_MAX: u32 = 1024;
/// Shortest distance of a flood's wake-ups.
pub const FLOOD_INTERVAL_MIN_NS: u64 = 1000;
/// Most buckets, of 1 us each, of cyclictest's histogram.
pub const HISTOGRAM_US_MAX: u32 = 2000;

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
    /// What does your clock say?
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
    /// The instant 0 of the run by the guest's monotonic clock; 0 means now. One that has passed is kept: a
    /// guest that starves does not begin later, its jobs are late.
    pub start_at_ns: u64,
    /// Length; what is not finished then is abandoned.
    pub duration_ns: u64,
    /// Work of a millisecond; from a calibration, of this guest or one like it.
    pub iterations_per_ms: u64,
    /// The tasks.
    pub tasks: Vec<Task>,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Smaller is more urgent; of equal ones the first in the list is.
    pub priority: u32,
    /// From a job's release; later ones are counted in [`Reply::Progress`]. Nothing else looks at it.
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

/// How to run cyclictest, of the rt-tests.
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
    /// It is there.
    Ready(Ready),
    /// Ends [`Request::Calibrate`].
    Calibrated(Calibration),
    /// Ends [`Request::Clock`].
    Clock {
        /// The guest's monotonic clock.
        now_ns: u64,
    },
    /// Some jobs of a task, in order of release; as many of these as it takes before [`Reply::Result`].
    Jobs {
        /// The task's place in the request.
        task: usize,
        /// The jobs.
        jobs: Vec<JobTimes>,
    },
    /// How far a run is, about once a second while it goes on, or halfway through a shorter one.
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

/// What a guest is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Its [`VERSION`].
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
    /// The distance of the samples' first and ninth decile, in millionths of the median: much when the
    /// processor was not free.
    pub spread_ppm: u64,
}

/// A job's times since the run's start: `[release, start, finish]` on the wire. `None`: not within the run.
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

impl JobTimes {
    /// Can these times be?
    ///
    /// # Errors
    /// When they are out of order, or beyond a run of `duration_ns`.
    pub fn check(&self, duration_ns: u64) -> Result<(), String> {
        let last = self.finish_ns.or(self.start_ns).unwrap_or(self.release_ns);
        let ordered = match (self.start_ns, self.finish_ns) {
            (None, None) => true,
            (Some(start), None) => self.release_ns <= start,
            (Some(start), Some(finish)) => self.release_ns <= start && start <= finish,
            (None, Some(_)) => false,
        };
        if ordered && last <= duration_ns {
            return Ok(());
        }
        let JobTimes { release_ns, start_ns, finish_ns } = self;
        Err(format!(
            "a job of a run of {duration_ns} ns cannot have been released at {release_ns}, started at \
             {start_ns:?} and finished at {finish_ns:?}"
        ))
    }
}

/// How far a task is: `[finished, late]` on the wire.
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
    /// How many jobs [`Reply::Jobs`] told of it.
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

impl Run {
    /// When it starts, or started, by this machine's clock.
    pub fn start_ns(&self) -> u64 {
        if self.start_at_ns == 0 { crate::os::now_ns() } else { self.start_at_ns }
    }

    /// Can this be run?
    ///
    /// # Errors
    /// The first thing that does not fit, and its limit.
    pub fn check(&self) -> Result<(), String> {
        within("duration_ns", self.duration_ns, 1, TIME_MAX_NS)?;
        within("start_at_ns", self.start_at_ns, 0, u64::MAX / 2)?;
        within("iterations_per_ms", self.iterations_per_ms, 1, 1_000_000_000)?;
        within("number of tasks", self.tasks.len() as u64, 0, TASKS_MAX as u64)?;
        let mut jobs = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let most = task.work.check(self.duration_ns).map_err(|why| format!("task {index}: {why}"))?;
            jobs += most;
        }
        if jobs > JOBS_MAX {
            return Err(format!(
                "the tasks would release up to {jobs} jobs, a run may have {JOBS_MAX}: make it shorter"
            ));
        }
        Ok(())
    }
}

impl Work {
    /// Checks the numbers; how many jobs can it release within `duration_ns`?
    fn check(&self, duration_ns: u64) -> Result<u64, String> {
        let (distance_ns, offset_ns) = match *self {
            Work::Hog { start_ns } => return within("start_ns", start_ns, 0, TIME_MAX_NS).map(|()| 0),
            Work::ForkBomb { start_ns, threads } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                return within("threads", threads.into(), 1, THREADS_MAX.into()).map(|()| 0);
            }
            Work::WakeFlood { start_ns, interval_ns } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                return within("interval_ns", interval_ns, FLOOD_INTERVAL_MIN_NS, TIME_MAX_NS).map(|()| 0);
            }
            Work::Jobs(JobStream { arrival, cost_min_ns, cost_max_ns, .. }) => {
                within("cost_max_ns", cost_max_ns, 1, TIME_MAX_NS)?;
                within("cost_min_ns", cost_min_ns, 0, cost_max_ns)?;
                match arrival {
                    Arrival::Periodic { period_ns, offset_ns } => {
                        within("period_ns", period_ns, 1000, TIME_MAX_NS)?;
                        (period_ns, offset_ns)
                    }
                    Arrival::Sporadic { separation_ns, slack_mean_ns, offset_ns } => {
                        within("separation_ns", separation_ns, 1000, TIME_MAX_NS)?;
                        within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
                        (separation_ns, offset_ns)
                    }
                }
            }
        };
        within("offset_ns", offset_ns, 0, TIME_MAX_NS)?;
        Ok(duration_ns.saturating_sub(offset_ns).div_ceil(distance_ns))
    }
}

impl Cyclictest {
    /// Can this be run?
    ///
    /// # Errors
    /// The first thing that does not fit, and its limit.
    pub fn check(&self) -> Result<(), String> {
        within("interval_us", self.interval_us.into(), 10, 10_000_000)?;
        within("loops", self.loops.into(), 1, u64::from(u32::MAX))?;
        within("priority", self.priority.into(), 0, 99)?;
        within("histogram_us", self.histogram_us.into(), 1, HISTOGRAM_US_MAX.into())?;
        within("duration in us", u64::from(self.interval_us) * u64::from(self.loops), 1, TIME_MAX_NS / 1000)
    }
}

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be from {least} to {most}, not {value}"))
}

/// Why nothing could be received.
#[derive(Debug)]
pub enum ReceiveError {
    /// The other side is gone.
    Closed,
    /// Reading failed; a time-out too.
    Io(std::io::Error),
    /// What came is not of the protocol: why, and how it began.
    Malformed(String),
}

impl std::fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReceiveError::Closed => write!(f, "the other side closed the channel"),
            ReceiveError::Io(error) => write!(f, "reading from the channel failed: {error}"),
            ReceiveError::Malformed(why) => write!(f, "the other side does not speak the protocol: {why}"),
        }
    }
}

impl std::error::Error for ReceiveError {}

/// Reads one value; empty lines before it are skipped.
///
/// # Errors
/// [`ReceiveError`]; after a malformed line the next call goes on with the next line, unless that one was
/// too long.
pub fn receive<T: for<'a> Deserialize<'a>>(reader: &mut impl BufRead) -> Result<T, ReceiveError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        // The limit is on what is read, so that a line without end takes no memory.
        let limit = LINE_BYTES_MAX as u64;
        std::io::Read::take(&mut *reader, limit).read_until(b'\n', &mut line).map_err(ReceiveError::Io)?;
        if line.is_empty() {
            return Err(ReceiveError::Closed);
        }
        if line.last() != Some(&b'\n') && line.len() == LINE_BYTES_MAX {
            return Err(ReceiveError::Malformed(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        return serde_json::from_slice(text).map_err(|error| {
            let start: String = String::from_utf8_lossy(text).chars().take(80).collect();
            ReceiveError::Malformed(format!("{error}, in a line that starts with {start:?}"))
        });
    }
}

/// Writes one value and flushes.
///
/// # Errors
/// When writing fails.
pub fn send<T: Serialize>(writer: &mut impl std::io::Write, value: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}
