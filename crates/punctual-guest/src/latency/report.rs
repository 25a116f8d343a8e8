//! What was measured.

use punctual_jobs::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// Parts of equal length that a measurement is divided into, each with statistics of its own.
pub const SLICES: usize = 10;
/// Latencies that are kept with their times.
pub const WORST: usize = 10;
/// What a thread measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// How late it woke up.
    Wakeup,
    /// Gaps in its execution.
    Noise,
    /// The parts of gaps that the kernel does not know of.
    Hardware,
}

/// A long latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// When it ended, in ns of the monotonic clock.
    pub at_ns: u64,
    /// How long it was.
    pub length_ns: u64,
}

/// Counts of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub count: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
    /// The least value of each bucket of [`punctual_jobs::histogram`], ascending, and how many fell into it.
    pub buckets: Vec<(u64, u32)>,
}

impl From<&Histogram> for Counts {
    fn from(from: &Histogram) -> Counts {
        let min_ns = if from.count == 0 { 0 } else { from.min_ns };
        let buckets = from.buckets().collect();
        Counts { count: from.count, min_ns, max_ns: from.max_ns, sum_ns: from.sum_ns, buckets }
    }
}

/// What was measured on a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The processor.
    pub processor: usize,
    /// What.
    pub kind: Kind,
    /// For how long it was looked at, in ns: pauses between bursts are not in it.
    pub watched_ns: u64,
    /// Gaps shorter than this could not be seen; 0 for wake-ups.
    pub resolution_ns: u64,
    /// Wake-ups that were due while an earlier one was late, and so were not measured.
    pub skipped: u64,
    /// The latencies, in [`SLICES`] parts of equal length of the whole time.
    pub slices: Vec<Counts>,
    /// The longest, with their times, the longest first.
    pub worst: Vec<Slow>,
}

/// What was measured in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// By kind and processor.
    pub measured: Vec<Measured>,
    /// Was it stopped before its time?
    pub stopped: bool,
    /// Were all pages locked into memory? If not, page faults are among the latencies.
    pub locked: bool,
    /// When the monotonic clock was 0, in us since 1970 by the machine's own clock.
    pub epoch_us: u64,
    /// The release of the kernel.
    pub kernel: String,
}
