//! Counts of durations in buckets of a fixed relative width, as HdrHistogram with two significant digits has
//! them: 128 for each octave.

use alloc::boxed::Box;
use alloc::vec;

const SUB_BITS: u32 = 7;

/// Greater values count as this: 18 minutes.
const VALUE_MAX_NS: u64 = (1 << 40) - 1;

const BUCKETS: usize = bucket_of(VALUE_MAX_NS) + 1;

/// The bucket that a value falls into.
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    let octave = (63 - (ns | ((1 << (SUB_BITS + 1)) - 1)).leading_zeros()) - SUB_BITS;
    ((octave as usize) << SUB_BITS) + (ns >> octave) as usize
}

/// The least and greatest value that fall into a bucket.
pub fn bounds_of(bucket: usize) -> (u64, u64) {
    let octave = (bucket >> SUB_BITS).saturating_sub(1) as u32;
    let low = ((bucket - ((octave as usize) << SUB_BITS)) as u64) << octave;
    (low, low + ((1u64 << octave) - 1))
}

/// Counts of durations. Recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u32]>,
    pub count: u64,
    /// The least; `u64::MAX` when empty.
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice();
        Histogram { counts, count: 0, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(VALUE_MAX_NS);
        let bucket = &mut self.counts[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// The buckets that have something, ascending: their least value, and how many fell into them.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, &count)| (bounds_of(bucket).0, count))
    }
}
