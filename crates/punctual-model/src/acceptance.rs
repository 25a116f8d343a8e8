//! What an acceptance test of a machine must not exceed: the validated form of a limits file
//! ([`file::parse_limits`](crate::file::parse_limits)), which `punctual certify` judges by.

use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// How late a thread runs after its absolute timer expired, as cyclictest measures it.
    Wakeup,
    /// Gaps in the execution of a thread that spins, as oslat measures them.
    Noise,
    /// Those parts of the gaps that the kernel does not know of: firmware, hardware, a hypervisor below.
    Hardware,
}

impl Measure {
    /// All, in the order of reports.
    pub const ALL: [Measure; 3] = [Measure::Wakeup, Measure::Noise, Measure::Hardware];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Wakeup => "wakeup",
            Measure::Noise => "noise",
            Measure::Hardware => "hardware",
        }
    }
}

/// A number that describes many latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The median.
    P50,
    /// 90 % of the values do not exceed it.
    P90,
    /// 99 %.
    P99,
    /// 99.9 %.
    P999,
    /// 99.99 %.
    P9999,
    /// 99.999 %.
    P99999,
    /// The greatest value.
    Max,
    /// The time lost in gaps, in millionths of the time watched.
    Lost,
}

impl Statistic {
    /// The key of its limit, with the unit.
    pub const fn key(self) -> &'static str {
        match self {
            Statistic::P50 => "p50_us",
            Statistic::P90 => "p90_us",
            Statistic::P99 => "p99_us",
            Statistic::P999 => "p999_us",
            Statistic::P9999 => "p9999_us",
            Statistic::P99999 => "p99999_us",
            Statistic::Max => "max_us",
            Statistic::Lost => "lost_ppm",
        }
    }

    /// The share of values that do not exceed it, in millionths; 1,000,000 for the maximum, `None` for lost
    /// time.
    pub const fn ppm(self) -> Option<u32> {
        match self {
            Statistic::P50 => Some(500_000),
            Statistic::P90 => Some(900_000),
            Statistic::P99 => Some(990_000),
            Statistic::P999 => Some(999_000),
            Statistic::P9999 => Some(999_900),
            Statistic::P99999 => Some(999_990),
            Statistic::Max => Some(1_000_000),
            Statistic::Lost => None,
        }
    }
}

/// A limit of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Of what.
    pub measure: Measure,
    /// Of which of its numbers.
    pub statistic: Statistic,
    /// The greatest value that passes, in us, or in millionths for [`Statistic::Lost`].
    pub most: u64,
}

/// Limits of the host, or of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceLimits {
    /// For each processor that is measured.
    pub every: Vec<Limit>,
    /// For single processors or vCPUs, in place of those of the same statistic for each one.
    pub single: Vec<(usize, Vec<Limit>)>,
}

impl PlaceLimits {
    /// The limits of one processor or vCPU.
    pub fn of(&self, processor: usize) -> Vec<Limit> {
        let own: &[Limit] =
            self.single.iter().find(|(number, _)| *number == processor).map_or(&[], |(_, limits)| limits);
        let is_replaced = |limit: &&Limit| {
            own.iter().any(|one| (one.measure, one.statistic) == (limit.measure, limit.statistic))
        };
        let mut limits: Vec<Limit> = self.every.iter().filter(|limit| !is_replaced(limit)).copied().collect();
        limits.extend(own);
        limits.sort_by_key(|limit| (limit.measure, limit.statistic));
        limits
    }

    /// Is there no limit?
    pub fn is_empty(&self) -> bool {
        self.every.is_empty() && self.single.iter().all(|(_, limits)| limits.is_empty())
    }
}

/// A limits file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The test takes at least so long, in s; 0 if any length will do.
    pub seconds_min: u64,
    /// Loads that the test must run beside, by name.
    pub loads: Vec<String>,
    /// Limits of the host's processors.
    pub host: PlaceLimits,
    /// Limits of guests by name.
    pub guests: Vec<(String, PlaceLimits)>,
}

/// Loads that a test may run beside, in the order of reports.
pub const LOADS: [&str; 5] = ["cpu", "memory", "cache", "disk", "net"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_a_single_processor_replaces_the_one_for_all() {
        let limit = |statistic, most| Limit { measure: Measure::Wakeup, statistic, most };
        let limits = PlaceLimits {
            every: vec![limit(Statistic::Max, 50), limit(Statistic::P99, 20)],
            single: vec![(3, vec![limit(Statistic::Max, 90)])],
        };
        assert_eq!(limits.of(3), [limit(Statistic::P99, 20), limit(Statistic::Max, 90)]);
        assert_eq!(limits.of(1), [limit(Statistic::P99, 20), limit(Statistic::Max, 50)]);
    }
}
