//! Limits of what either side accepts, and the checks against them.

use std::fmt;

use punctual_jobs::{Arrival, JobStream};

use super::message::{Cyclictest, JobTimes, Run, Work};

/// Most tasks of a run.
pub const TASKS_MAX: usize = 256;
/// Most jobs of a run, over all tasks: their times are kept in locked memory, 40 bytes each.
pub const JOBS_MAX: u64 = 1_000_000;
/// Most jobs in one [`Reply::Jobs`](super::Reply::Jobs); 500 fit a line however large their numbers.
pub const JOBS_PER_LINE: usize = 500;
/// Longest run and greatest time of anything in it: a day.
pub const TIME_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Shortest distance of a task's releases.
pub const DISTANCE_MIN_NS: u64 = 1000;
/// Most threads of a fork bomb.
pub const THREADS_MAX: u32 = 1024;
/// Most jobs of a task that packets release; later packets release none.
pub const SERVED_JOBS_MAX: u64 = 50_000;
/// Shortest distance of a flood's wake-ups.
pub const FLOOD_INTERVAL_MIN_NS: u64 = 1000;
/// Most buckets, of 1 us each, of cyclictest's histogram.
pub const HISTOGRAM_US_MAX: u32 = 2000;

/// Why a message cannot be accepted although it is well formed.
// Written by hand: the guest program is kept small, so no crate makes its errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// A number is too small or too great.
    Range {
        /// Its name.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least that is allowed.
        min: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// A number of a task is too small or too great.
    Task {
        /// The task's place in the request.
        task: usize,
        /// What is wrong with it.
        error: Box<LimitError>,
    },
    /// The tasks might release more than [`JOBS_MAX`] jobs.
    Jobs {
        /// The most jobs that they might release.
        most: u64,
    },
    /// A job's times contradict each other or the run's length.
    JobTimes {
        /// The job.
        job: JobTimes,
        /// The run's length.
        duration_ns: u64,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Range { what, value, min, max } => {
                write!(f, "{what} must be from {min} to {max}, not {value}")
            }
            LimitError::Task { task, error } => write!(f, "task {task}: {error}"),
            LimitError::Jobs { most } => write!(
                f,
                "the tasks would release up to {most} jobs, a run may have {JOBS_MAX}: make it shorter"
            ),
            LimitError::JobTimes { job: JobTimes { release_ns, start_ns, finish_ns }, duration_ns } => {
                write!(
                    f,
                    "a job of a run of {duration_ns} ns cannot have been released at {release_ns}, started \
                 at {start_ns:?} and finished at {finish_ns:?}"
                )
            }
        }
    }
}

impl std::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LimitError::Task { error, .. } => Some(error),
            LimitError::Range { .. } | LimitError::Jobs { .. } | LimitError::JobTimes { .. } => None,
        }
    }
}

/// Is `value` from `min` to `max`?
pub(super) fn within(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), LimitError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(LimitError::Range { what, value, min, max }),
    }
}

impl JobTimes {
    /// Can these times be those of a job in a run of `duration_ns`?
    ///
    /// # Errors
    /// When they are out of order, or beyond the run.
    pub fn check(&self, duration_ns: u64) -> Result<(), LimitError> {
        let last = self.finish_ns.or(self.start_ns).unwrap_or(self.release_ns);
        let ordered = match (self.start_ns, self.finish_ns) {
            (None, None) => true,
            (Some(start), None) => self.release_ns <= start,
            (Some(start), Some(finish)) => self.release_ns <= start && start <= finish,
            (None, Some(_)) => false,
        };
        match ordered && last <= duration_ns {
            true => Ok(()),
            false => Err(LimitError::JobTimes { job: *self, duration_ns }),
        }
    }
}

impl Run {
    /// Can this be run?
    ///
    /// # Errors
    /// The first number that does not fit, with its limits.
    pub fn check(&self) -> Result<(), LimitError> {
        within("duration_ns", self.duration_ns, 1, TIME_MAX_NS)?;
        within("start_at_ns", self.start_at_ns, 0, u64::MAX / 2)?;
        within("iterations_per_ms", self.iterations_per_ms, 1, 1_000_000_000)?;
        within("number of tasks", self.tasks.len() as u64, 0, TASKS_MAX as u64)?;
        let mut most = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let of_task = |error| LimitError::Task { task: index, error: Box::new(error) };
            task.work.check().map_err(of_task)?;
            most += task.work.jobs_max(self.duration_ns);
        }
        if let Some(network) = &self.network {
            network.check(&self.tasks)?;
        }
        if most > JOBS_MAX { Err(LimitError::Jobs { most }) } else { Ok(()) }
    }
}

impl Work {
    fn check(&self) -> Result<(), LimitError> {
        match *self {
            Work::Hog { start_ns } => within("start_ns", start_ns, 0, TIME_MAX_NS),
            Work::ForkBomb { start_ns, threads } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                within("threads", threads.into(), 1, THREADS_MAX.into())
            }
            Work::WakeFlood { start_ns, interval_ns } => {
                within("start_ns", start_ns, 0, TIME_MAX_NS)?;
                within("interval_ns", interval_ns, FLOOD_INTERVAL_MIN_NS, TIME_MAX_NS)
            }
            Work::Jobs(JobStream { arrival, cost_min_ns, cost_max_ns, .. }) => {
                check_cost(cost_min_ns, cost_max_ns)?;
                check_arrival(arrival)
            }
            Work::Served { cost_min_ns, cost_max_ns, .. } => check_cost(cost_min_ns, cost_max_ns),
        }
    }

    /// The most jobs that it releases within `duration_ns`.
    pub fn jobs_max(&self, duration_ns: u64) -> u64 {
        if let Work::Served { .. } = self {
            return SERVED_JOBS_MAX;
        }
        let (distance_ns, offset_ns) = match self.job_stream().map(|stream| stream.arrival) {
            None => return 0,
            Some(Arrival::Periodic { period_ns, offset_ns }) => (period_ns, offset_ns),
            Some(Arrival::Sporadic { separation_ns, offset_ns, .. }) => (separation_ns, offset_ns),
        };
        duration_ns.saturating_sub(offset_ns).div_ceil(distance_ns)
    }
}

fn check_cost(min_ns: u64, max_ns: u64) -> Result<(), LimitError> {
    within("cost_max_ns", max_ns, 1, TIME_MAX_NS)?;
    within("cost_min_ns", min_ns, 0, max_ns)
}

fn check_arrival(arrival: Arrival) -> Result<(), LimitError> {
    let offset_ns = match arrival {
        Arrival::Periodic { period_ns, offset_ns } => {
            within("period_ns", period_ns, DISTANCE_MIN_NS, TIME_MAX_NS)?;
            offset_ns
        }
        Arrival::Sporadic { separation_ns, slack_mean_ns, offset_ns } => {
            within("separation_ns", separation_ns, DISTANCE_MIN_NS, TIME_MAX_NS)?;
            within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
            offset_ns
        }
    };
    within("offset_ns", offset_ns, 0, TIME_MAX_NS)
}

impl Cyclictest {
    /// Can this be run?
    ///
    /// # Errors
    /// The first number that does not fit, with its limits.
    pub fn check(&self) -> Result<(), LimitError> {
        within("interval_us", self.interval_us.into(), 10, 10_000_000)?;
        within("loops", self.loops.into(), 1, u64::from(u32::MAX))?;
        within("priority", self.priority.into(), 0, 99)?;
        within("histogram_us", self.histogram_us.into(), 1, HISTOGRAM_US_MAX.into())?;
        within("duration in us", u64::from(self.interval_us) * u64::from(self.loops), 1, TIME_MAX_NS / 1000)
    }
}
