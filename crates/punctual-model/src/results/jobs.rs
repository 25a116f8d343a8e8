//! How many jobs there were, and how timely.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Jobs and their timeliness, for a task or added up over several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStats {
    /// Jobs released.
    pub released: u64,
    /// Jobs finished.
    pub completed: u64,
    /// Jobs whose deadline lay within the run: the base of the miss ratio.
    pub due: u64,
    /// Of those, jobs that were not finished at their deadline.
    pub missed: u64,
    /// From release to completion, of finished jobs.
    pub response: Histogram,
    /// How long after the deadline a finished job finished; 0 for those in time.
    pub tardiness: Histogram,
    /// From release to the first instruction.
    pub start_latency: Histogram,
}

/// Is a count left out of JSON?
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl JobStats {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &JobStats) {
        self.released += other.released;
        self.completed += other.completed;
        self.due += other.due;
        self.missed += other.missed;
        self.response.merge(&other.response);
        self.tardiness.merge(&other.tardiness);
        self.start_latency.merge(&other.start_latency);
    }

    /// Jobs that missed their deadline and did not finish later either.
    pub fn unfinished(&self) -> u64 {
        // Late by nothing is in time; other durations have buckets of their own from 1 ns on.
        let is_late = |&(low, _, _): &(u64, u64, u64)| low > 0;
        let finished_late: u64 =
            self.tardiness.ranges_ns().filter(is_late).fold(0, |sum, (_, _, n)| sum.saturating_add(n));
        self.missed.saturating_sub(finished_late)
    }

    /// Misses per million jobs due, rounded to nearest; `None` when none was due.
    pub fn miss_ppm(&self) -> Option<u64> {
        let (missed, due) = (u128::from(self.missed), u128::from(self.due));
        (due > 0).then(|| u64::try_from((missed * 1_000_000 + due / 2) / due).unwrap_or(u64::MAX))
    }
}
