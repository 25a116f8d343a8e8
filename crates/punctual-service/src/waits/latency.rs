//! How long threads wait from their wake-up until they run.

/// Upper bounds of the buckets, in ns; one more bucket has the rest.
pub const BOUNDS_NS: [u64; 7] = [10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 20_000_000];

/// Counts of latencies by bucket, their sum and the greatest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) counts: [u64; BOUNDS_NS.len() + 1],
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
}

impl Latency {
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[BOUNDS_NS.partition_point(|bound| *bound < ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts others, too.
    pub(crate) fn add(&mut self, others: &Latency) {
        self.counts.iter_mut().zip(others.counts).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.saturating_add(others.sum_ns);
        self.max_ns = self.max_ns.max(others.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A bound below which this share of them lies; beyond the last bound, the greatest one.
    pub(crate) fn quantile_ns(&self, permille: u64) -> u64 {
        let rank = (self.count() * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let bound = bucket.and_then(|bucket| BOUNDS_NS.get(bucket)).copied();
        bound.unwrap_or(self.max_ns).min(self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_quantiles_are_bounds() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile_ns(500), 0);
        for ns in [0, 10_000, 10_001, 20_000_001] {
            latency.record(ns);
        }
        assert_eq!(latency.counts, [2, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!((latency.count(), latency.sum_ns, latency.max_ns), (4, 20_020_002, 20_000_001));
        assert_eq!(
            [500, 750, 1000].map(|permille| latency.quantile_ns(permille)),
            [10_000, 50_000, 20_000_001]
        );
    }
}
