//! Bounds of the numbers in messages, and the error of a message that exceeds them. Depends on no other file.

use std::fmt;

/// Most tasks of a run.
pub const TASKS_MAX: usize = 256;
/// Most jobs of a run, over all tasks. The guest keeps their times in locked memory, 40 bytes each.
pub const JOBS_MAX: u64 = 1_000_000;
/// Most jobs in one `jobs` reply: 500 fit a line whatever their numbers.
pub const JOBS_PER_LINE: usize = 500;
/// Longest run and greatest time of anything in it: a day.
pub const TIME_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Shortest distance between releases of a task.
pub const DISTANCE_MIN_NS: u64 = 1000;
/// Most threads of a fork bomb.
pub const THREADS_MAX: u32 = 1024;
/// Most jobs of a task that packets release; later packets release none.
pub const SERVED_JOBS_MAX: u64 = 50_000;
/// Shortest distance between wake-ups of a flood.
pub const FLOOD_INTERVAL_MIN_NS: u64 = 1000;
/// Most buckets, of 1 us each, of cyclictest's histogram.
pub const HISTOGRAM_US_MAX: u32 = 2000;
/// Most flow ends and chain steps of a guest.
pub const ENDS_MAX: usize = 128;
/// Most buckets of a distribution; a finer one has neighbouring buckets merged.
pub const BUCKETS_MAX: usize = 2000;
/// Shortest distance between bursts, and the shortest timeout.
pub const FLOW_DISTANCE_MIN_NS: u64 = 1000;
/// Longest frame without its check sum: Ethernet with the usual 1500 bytes of payload.
pub const FRAME_BYTES_MAX: u32 = 1514;

/// Why a well-formed message is refused.
// Written by hand: the guest program is kept small, so no crate derives its errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// A number is out of its range.
    Range { what: &'static str, value: u64, min: u64, max: u64 },
    /// A number of a task, by the task's place in the request, is out of its range.
    Task { task: usize, error: Box<LimitError> },
    /// The tasks may release more than [`JOBS_MAX`] jobs.
    Jobs { most: u64 },
    /// A job's times contradict each other or the run's length.
    JobTimes { release_ns: u64, start_ns: Option<u64>, finish_ns: Option<u64>, duration_ns: u64 },
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
            LimitError::JobTimes { release_ns, start_ns, finish_ns, duration_ns } => {
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

/// Checks that `value` is from `min` to `max`.
pub(super) fn within(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), LimitError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(LimitError::Range { what, value, min, max }) }
}
