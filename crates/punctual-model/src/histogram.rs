//! A compact high-dynamic-range histogram of durations.
//!
//! Same buckets as HdrHistogram with two significant digits (Tene; 128 linear sub-buckets per octave, so a
//! reported quantile is at most 1/128 above the true value), but only the buckets that were ever touched are
//! kept, four bytes each: a machine of 10,000 vCPUs has 30,000 histograms, and a dense one takes 18 KiB.
//! Minimum, maximum, mean and standard deviation are exact. Histograms merge without loss.
//!
//! Recording appends; the entries are sorted and added up only when there is no room left, because a search
//! for the bucket would touch several cache lines of a histogram that was not used for long.

use punctual_jobs::histogram::{bounds_of, bucket_of};
use punctual_sched::Duration;
use serde::{Deserialize, Serialize};

/// An entry holds the bucket in its upper bits and a count of at most this in the lower ones. Buckets of all
/// 64-bit values need 13 bits.
const COUNT_BITS: u32 = 19;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// Counts of durations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct Histogram {
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    sum_squares: u128,
    /// Buckets and counts, in any order and a bucket any number of times; see `settled`. Zeros have no entry:
    /// they are what `count` says beyond the entries' counts.
    entries: Vec<u32>,
}

/// Sorts entries and adds up those of a bucket, as far as a count reaches; full ones come first.
fn settle(entries: &mut Vec<u32>) {
    // A stable sort takes the long sorted part as it is.
    entries.sort();
    let mut kept = 0;
    for at in 0..entries.len() {
        let entry = entries[at];
        match entries[..kept].last_mut() {
            Some(last) if *last >> COUNT_BITS == entry >> COUNT_BITS => {
                let moved = (entry & COUNT_MAX).min(COUNT_MAX - (*last & COUNT_MAX));
                *last += moved;
                if (entry & COUNT_MAX) > moved {
                    entries[kept] = entry - moved;
                    kept += 1;
                }
            }
            _ => {
                entries[kept] = entry;
                kept += 1;
            }
        }
    }
    entries.truncate(kept);
}

impl Histogram {
    /// An empty histogram; allocates nothing.
    pub fn new() -> Self {
        Histogram::default()
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, value: Duration) {
        self.record_n(value, 1);
    }

    /// Counts one duration `n` times.
    pub fn record_n(&mut self, value: Duration, n: u32) {
        let ns = value.as_ns();
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += u64::from(n);
        self.sum_ns += u128::from(ns) * u128::from(n);
        self.sum_squares =
            self.sum_squares.saturating_add((u128::from(ns) * u128::from(ns)).saturating_mul(n.into()));
        self.bump(bucket_of(ns), n.into());
    }

    #[inline]
    fn bump(&mut self, bucket: usize, mut n: u64) {
        if bucket == 0 {
            return;
        }
        while n > u64::from(COUNT_MAX) {
            self.push(((bucket as u32) << COUNT_BITS) | COUNT_MAX);
            n -= u64::from(COUNT_MAX);
        }
        self.push(((bucket as u32) << COUNT_BITS) | n as u32);
    }

    #[inline]
    fn push(&mut self, entry: u32) {
        if self.entries.len() == self.entries.capacity() {
            self.make_room();
        }
        self.entries.push(entry);
    }

    #[cold]
    fn make_room(&mut self) {
        settle(&mut self.entries);
        let (len, capacity) = (self.entries.len(), self.entries.capacity());
        // At least a fifth for what is yet to be sorted: then sorting costs a few entries for each recorded.
        if capacity - len < 4 + capacity / 5 {
            self.entries.reserve_exact(4 + len / 3);
        }
    }

    /// From counts of buckets, each by its least value and ascending, and what is known exactly of all
    /// values: the least, the greatest and the sum. The standard deviation follows from the buckets.
    ///
    /// # Errors
    /// When the numbers do not belong together.
    pub fn from_buckets(
        buckets: &[(u64, u32)],
        (min_ns, max_ns): (u64, u64),
        sum_ns: u64,
    ) -> Result<Histogram, String> {
        let mut histogram = Histogram::new();
        for &(low_ns, count) in buckets {
            histogram.record_n(Duration::from_ns(low_ns), count);
        }
        if histogram.count == 0 {
            return Ok(histogram);
        }
        (histogram.min_ns, histogram.max_ns, histogram.sum_ns) = (min_ns, max_ns, sum_ns.into());
        let saved = Saved::from(histogram.clone());
        saved.check(sum_ns.into()).map(|()| histogram)
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        for &entry in &other.entries {
            self.push(entry);
        }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least duration; zero when empty.
    pub fn min(&self) -> Duration {
        Duration::from_ns(self.min_ns)
    }

    /// The greatest duration; zero when empty.
    pub fn max(&self) -> Duration {
        Duration::from_ns(self.max_ns)
    }

    /// The mean, rounded down to whole ns; zero when empty.
    pub fn mean(&self) -> Duration {
        Duration::from_ns(self.sum_ns.checked_div(u128::from(self.count)).unwrap_or(0) as u64)
    }

    /// The population standard deviation, rounded down to whole ns; zero when empty.
    pub fn stddev(&self) -> Duration {
        let n = u128::from(self.count);
        let Some(mean_square) = self.sum_squares.checked_div(n) else { return Duration::ZERO };
        // Var = E[x^2] - E[x]^2 with E[x]^2 = sum^2 / n^2, computed without losing the fraction of the mean.
        let (whole, rest) = (self.sum_ns / n, self.sum_ns % n);
        let mean_squared = whole * whole + 2 * whole * rest / n + rest * rest / n / n;
        Duration::from_ns(mean_square.saturating_sub(mean_squared).isqrt() as u64)
    }

    /// The duration that at least `per_million` millionths of the counted durations do not exceed, at most
    /// 1/128 above the true one and never above the maximum; zero when empty.
    pub fn quantile_ppm(&self, per_million: u32) -> Duration {
        let rank = (u128::from(self.count) * u128::from(per_million)).div_ceil(1_000_000).max(1) as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets() {
            seen += n;
            if seen >= rank {
                return Duration::from_ns(bounds_of(bucket).1.min(self.max_ns));
            }
        }
        Duration::from_ns(self.max_ns)
    }

    /// Non-empty buckets ascending: least value, greatest value (ns), count.
    pub fn ranges_ns(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.buckets().into_iter().map(|(bucket, n)| {
            let (low, high) = bounds_of(bucket);
            (low, high, n)
        })
    }

    /// Buckets ascending with their counts.
    fn buckets(&self) -> Vec<(usize, u64)> {
        let mut entries = self.entries.clone();
        settle(&mut entries);
        let count = |entry: &u32| u64::from(entry & COUNT_MAX);
        let zeros = self.count - entries.iter().map(count).sum::<u64>();
        let same_bucket = |a: &u32, b: &u32| a >> COUNT_BITS == b >> COUNT_BITS;
        let others = entries
            .chunk_by(same_bucket)
            .map(|same| ((same[0] >> COUNT_BITS) as usize, same.iter().map(count).sum()));
        (zeros > 0).then_some((0, zeros)).into_iter().chain(others).collect()
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let scalars = |r: &Histogram| (r.count, r.min_ns, r.max_ns, r.sum_ns, r.sum_squares);
        scalars(self) == scalars(other) && self.buckets() == other.buckets()
    }
}

impl Eq for Histogram {}

/// The JSON form: summary for readers, `buckets` (least value in ns, count) for merging again.
#[derive(Serialize, Deserialize)]
struct Saved {
    count: u64,
    min_ns: u64,
    mean_ns: u64,
    stddev_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    /// Exact sums as decimal strings: they do not fit a JSON number.
    sum_ns: String,
    sum_squares_ns2: String,
    buckets: Vec<(u64, u64)>,
}

impl Saved {
    /// Do the numbers belong together, and stay far from any overflow?
    fn check(&self, sum_ns: u128) -> Result<(), String> {
        const COUNT_LIMIT: u64 = 1 << 40;
        const NS_LIMIT: u64 = 1 << 62;
        if self.count > COUNT_LIMIT || self.max_ns > NS_LIMIT {
            return Err(format!("`count` must be at most {COUNT_LIMIT} and `max_ns` at most {NS_LIMIT}"));
        }
        let counted: u128 = self.buckets.iter().map(|(_, n)| u128::from(*n)).sum();
        if counted != u128::from(self.count) {
            return Err(format!("the counts of `buckets` add up to {counted}, `count` says {}", self.count));
        }
        if !self.buckets.windows(2).all(|pair| bucket_of(pair[0].0) < bucket_of(pair[1].0)) {
            return Err("`buckets` must be in ascending order, each once".into());
        }
        let [least, most] = [self.min_ns, self.max_ns].map(|ns| u128::from(ns) * u128::from(self.count));
        if self.min_ns > self.max_ns || !(least..=most).contains(&sum_ns) {
            return Err("`sum_ns` / `count` must lie between `min_ns` and `max_ns`".into());
        }
        Ok(())
    }
}

impl From<Histogram> for Saved {
    fn from(r: Histogram) -> Self {
        Saved {
            count: r.count,
            min_ns: r.min_ns,
            mean_ns: r.mean().as_ns(),
            stddev_ns: r.stddev().as_ns(),
            p50_ns: r.quantile_ppm(500_000).as_ns(),
            p99_ns: r.quantile_ppm(990_000).as_ns(),
            p999_ns: r.quantile_ppm(999_000).as_ns(),
            max_ns: r.max_ns,
            sum_ns: r.sum_ns.to_string(),
            sum_squares_ns2: r.sum_squares.to_string(),
            buckets: r.ranges_ns().map(|(low, _, n)| (low, n)).collect(),
        }
    }
}

impl TryFrom<Saved> for Histogram {
    type Error = String;

    fn try_from(saved: Saved) -> Result<Self, String> {
        let number = |name: &str, text: &str| {
            text.parse::<u128>()
                .map_err(|_| format!("`{name}` must be a whole number in quotes, not \"{text}\""))
        };
        let (sum_ns, sum_squares) =
            (number("sum_ns", &saved.sum_ns)?, number("sum_squares_ns2", &saved.sum_squares_ns2)?);
        saved.check(sum_ns)?;
        let mut histogram = Histogram {
            count: saved.count,
            min_ns: saved.min_ns,
            max_ns: saved.max_ns,
            sum_ns,
            sum_squares,
            entries: Vec::new(),
        };
        for (low, n) in saved.buckets {
            histogram.bump(bucket_of(low), n);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_do_not_overlap() {
        let mut next = 0;
        for bucket in 0..2000 {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            next = high + 1;
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of(u64::MAX - 1));
    }

    #[test]
    fn mean_and_standard_deviation_are_exact() {
        let mut r = Histogram::new();
        for ns in [2, 4, 4, 4, 5, 5, 7, 9] {
            r.record(Duration::from_ns(ns * 1_000_001));
        }
        assert_eq!(r.mean().as_ns(), 5_000_005);
        assert_eq!(r.stddev().as_ns(), 2_000_002);
    }

    #[test]
    fn counts_beyond_one_entry_add_up() {
        let mut r = Histogram::new();
        for n in [1, COUNT_MAX, COUNT_MAX - 1, 5, 3 * COUNT_MAX] {
            r.record_n(Duration::from_ns(1000), n);
            r.record_n(Duration::from_ns(10), 1);
        }
        let total = u64::from(COUNT_MAX) * 5 + 5;
        assert_eq!(r.ranges_ns().map(|(_, _, n)| n).collect::<Vec<_>>(), [5, total]);
        assert_eq!(r.count(), total + 5);
        assert_eq!(serde_json::from_str::<Histogram>(&serde_json::to_string(&r).unwrap()).unwrap(), r);
    }

    #[test]
    fn the_empty_histogram_reports_zeros_and_survives_json() {
        let r = Histogram::new();
        assert_eq!(r.quantile_ppm(990_000), Duration::ZERO);
        let text = serde_json::to_string(&r).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), r);
    }

    #[test]
    fn numbers_that_do_not_belong_together_are_refused() {
        let mut r = Histogram::new();
        for ns in [3, 5, 900] {
            r.record(Duration::from_ns(ns));
        }
        let text = serde_json::to_string(&r).unwrap();
        for (good, bad, expected) in [
            ("\"count\":3", "\"count\":4", "the counts of `buckets` add up to 3, `count` says 4"),
            ("\"908\"", "\"2701\"", "`sum_ns` / `count` must lie between"),
            ("\"908\"", "\"many\"", "`sum_ns` must be a whole number in quotes, not \"many\""),
            ("[3,1],[5,1]", "[5,1],[3,1]", "`buckets` must be in ascending order"),
            ("\"max_ns\":900", "\"max_ns\":9223372036854775807", "`max_ns` at most"),
        ] {
            assert!(text.contains(good), "{text}");
            let error = serde_json::from_str::<Histogram>(&text.replace(good, bad)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn quantiles_equal_those_of_hdrhistogram(
            values in proptest::collection::vec(0u64..10_000_000_000, 1..300),
        ) {
            let mut ours = Histogram::new();
            let mut theirs = hdrhistogram::Histogram::<u32>::new_with_bounds(1, 1 << 40, 2).unwrap();
            for &v in &values {
                ours.record(Duration::from_ns(v));
                theirs.record(v).unwrap();
            }
            for ppm in [1u32, 250_000, 500_000, 900_000, 990_000, 999_000, 1_000_000] {
                let theirs = theirs.value_at_quantile(f64::from(ppm) / 1e6).min(theirs.max());
                let theirs = theirs.min(ours.max().as_ns());
                prop_assert_eq!(ours.quantile_ppm(ppm).as_ns(), theirs, "{} ppm", ppm);
            }
        }

        #[test]
        fn merging_equals_recording_everything_in_one(a in proptest::collection::vec(any::<u32>(), 0..100),
                                                      b in proptest::collection::vec(any::<u32>(), 0..100)) {
            let record = |values: &[u32]| {
                let mut r = Histogram::new();
                values.iter().for_each(|&v| r.record(Duration::from_ns(v.into())));
                r
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            prop_assert_eq!(&merged, &record(&[a, b].concat()));
            let text = serde_json::to_string(&merged).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), merged);
        }
    }
}
