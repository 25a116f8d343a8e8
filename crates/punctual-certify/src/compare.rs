//! Two certificates side by side: what got worse beyond noise, and what differs in the machines.
//!
//! **The rule.** A measurement is divided into ten parts of equal length. The medians of the parts, their
//! 99th percentiles and their maxima (for gaps: their lost time and maxima) of both certificates are compared
//! by the Mann-Whitney test (H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables
//! is stochastically larger than the other", Annals of Mathematical Statistics 18, 1947): one-sided, exact,
//! ties counted against a difference. A statistic is worse if the test finds it at [`LEVEL_PPM`] and its
//! median over the parts grew by more than the tolerance. The first asks whether it can be chance, the second
//! whether it matters. Nothing is assumed about how latencies are distributed.
//!
//! Ten parts of one test do not show how tests differ from each other. So there may be several baselines:
//! then a statistic is worse only if it is worse than each of them ([`compare_all`]).
//!
//! A single outlier is no difference by this rule, however large: the greatest of two equal tests is in the
//! later one half of the time. What must never happen is a matter of limits.

use punctual_model::acceptance::Measure;
use serde::Serialize;

use crate::certificate::{Certificate, Measurement, Slice};

/// How likely a difference by chance alone may be, in millionths: 1 %.
pub const LEVEL_PPM: u64 = 10_000;
/// A growth by less, in percent, does not matter, unless the caller says otherwise.
pub const TOLERANCE_PERCENT: u64 = 10;
/// Nor does a growth of less than this, in ns: cyclictest counts in steps of 1 us.
const TOLERANCE_NS: u64 = 1_000;
/// Nor lost time of fewer millionths.
const TOLERANCE_PPM: u64 = 10;

/// What findings of `punctual doctor` are called among the facts.
const DOCTOR: &str = "doctor: ";

/// What became of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Greater, beyond noise and tolerance.
    Worse,
    /// Less, beyond noise and tolerance.
    Better,
    /// Neither.
    Same,
}

/// A statistic in both certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The guest; `None`: the host.
    pub guest: Option<String>,
    /// The processor or vCPU.
    pub processor: usize,
    /// The measure.
    pub measure: Measure,
    /// `p50`, `p99`, `max` or `lost`.
    pub statistic: &'static str,
    /// The median over the parts of the first certificate, in ns, or in millionths for `lost`.
    pub before: u64,
    /// That of the second.
    pub after: u64,
    /// How likely so great a growth is by chance, in millionths; with [`Change::Better`], so great a fall.
    pub chance_ppm: u64,
    /// The answer.
    pub change: Change,
}

/// A fact of the machine that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is called.
    pub name: String,
    /// In the first certificate; `None`: not known.
    pub before: Option<String>,
    /// In the second.
    pub after: Option<String>,
}

/// Two certificates side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Always `punctual-certificate-comparison`.
    pub format: &'static str,
    /// The version of the JSON form.
    pub version: u32,
    /// What is in both, by place.
    pub rows: Vec<Row>,
    /// What differs in the machines.
    pub differences: Vec<Difference>,
    /// Why the comparison may mislead: different loads, classes or methods, or measures of only one of both.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Did anything get worse?
    pub fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| row.change == Change::Worse)
    }
}

/// Compares an earlier certificate with a later one.
pub fn compare(before: &Certificate, after: &Certificate, tolerance_percent: u64) -> Comparison {
    let mut rows = Vec::new();
    let mut warnings = conduct(before, after);
    for one in &before.measurements {
        match after.measurement(one.place()) {
            Some(other) => {
                if one.method != other.method {
                    warnings.push(format!(
                        "{} by another method: {}, then {}",
                        one.place(),
                        one.method,
                        other.method
                    ));
                }
                rows.extend(
                    statistics(one)
                        .into_iter()
                        .zip(statistics(other))
                        .map(|(one_of, other_of)| row(one, one_of, other_of.1, tolerance_percent)),
                );
            }
            None => warnings.push(format!("{} only in the first certificate", one.place())),
        }
    }
    for other in after.measurements.iter().filter(|other| before.measurement(other.place()).is_none()) {
        warnings.push(format!("{} only in the second certificate", other.place()));
    }
    let differences = differences(before, after);
    Comparison { format: "punctual-certificate-comparison", version: 1, rows, differences, warnings }
}

/// Compares a certificate with several earlier ones. A statistic is worse, or better, if it is so compared
/// with each of them; the row is that of the nearest one. `None` without an earlier one.
pub fn compare_all(
    before: &[Certificate],
    after: &Certificate,
    tolerance_percent: u64,
) -> Option<Comparison> {
    let mut all = before.iter().map(|one| compare(one, after, tolerance_percent));
    let mut merged = all.next()?;
    for other in all {
        for row in other.rows {
            let is_same = |there: &&mut Row| {
                let place = |row: &Row| (row.guest.clone(), row.processor, row.measure, row.statistic);
                place(there) == place(&row)
            };
            match merged.rows.iter_mut().find(is_same) {
                Some(there) => *there = nearest(there.clone(), row),
                None => merged.rows.push(row),
            }
        }
        let is_new = |one: &Difference| !merged.differences.iter().any(|there| there.name == one.name);
        merged.differences.extend(other.differences.into_iter().filter(is_new).collect::<Vec<_>>());
        let is_new = |one: &String| !merged.warnings.contains(one);
        merged.warnings.extend(other.warnings.into_iter().filter(is_new).collect::<Vec<_>>());
    }
    Some(merged)
}

/// The row of two that says less.
fn nearest(one: Row, other: Row) -> Row {
    match (one.change, other.change) {
        (Change::Same, _) => one,
        (_, Change::Same) => other,
        (Change::Worse, Change::Worse) if other.before > one.before => other,
        (Change::Better, Change::Better) if other.before < one.before => other,
        (before, after) if before == after => one,
        // Worse than one, better than another.
        _ => Row { change: Change::Same, ..one },
    }
}

/// What was done differently.
fn conduct(before: &Certificate, after: &Certificate) -> Vec<String> {
    let (one, other) = (&before.conduct, &after.conduct);
    let class = |priority: u32| if priority == 0 { "fair".into() } else { format!("FIFO {priority}") };
    let pairs = [
        ("loads", one.loads.join(" "), other.loads.join(" ")),
        ("scheduling", class(one.priority), class(other.priority)),
        ("interval", format!("{} ns", one.interval_ns), format!("{} ns", other.interval_ns)),
        ("host", before.host.clone(), after.host.clone()),
    ];
    let differ = pairs.into_iter().filter(|(_, one, other)| one != other);
    differ.map(|(what, one, other)| format!("{what}: \"{one}\", then \"{other}\"")).collect()
}

/// The facts that differ, findings of `punctual doctor` among them.
fn differences(before: &Certificate, after: &Certificate) -> Vec<Difference> {
    let facts = |of: &Certificate| {
        let items = of.fingerprint.iter().map(|item| (item.name.clone(), item.value.clone()));
        let found =
            |one: &crate::certificate::Finding| (format!("{DOCTOR}{}", one.id), Some(one.severity.clone()));
        items.chain(of.findings.iter().map(found)).collect::<Vec<_>>()
    };
    let (one, other) = (facts(before), facts(after));
    let value = |of: &[(String, Option<String>)], name: &str| match of.iter().find(|(other, _)| other == name)
    {
        Some((_, value)) => value.clone(),
        // What is ok is not in a certificate.
        None => name.starts_with(DOCTOR).then(|| "ok".to_owned()),
    };
    let mut names: Vec<&String> = one.iter().map(|(name, _)| name).collect();
    names.extend(
        other.iter().map(|(name, _)| name).filter(|name| !one.iter().any(|(first, _)| first == *name)),
    );
    let pairs = names.into_iter().map(|name| Difference {
        name: name.clone(),
        before: value(&one, name),
        after: value(&other, name),
    });
    pairs.filter(|difference| difference.before != difference.after).collect()
}

/// The statistics of each part, by name.
fn statistics(of: &Measurement) -> Vec<(&'static str, Vec<u64>)> {
    let each = |read: &dyn Fn(&Slice) -> u64| of.slices.iter().map(read).collect::<Vec<u64>>();
    let part_ns = of.watched_ns / of.slices.len().max(1) as u64;
    match of.measure {
        Measure::Wakeup => vec![
            ("p50", each(&|slice| slice.p50_ns)),
            ("p99", each(&|slice| slice.p99_ns)),
            ("max", each(&|slice| slice.max_ns)),
        ],
        Measure::Noise | Measure::Hardware => vec![
            ("lost", each(&|slice| crate::certificate::lost_ppm(slice.sum_ns.into(), part_ns))),
            ("max", each(&|slice| slice.max_ns)),
        ],
    }
}

fn row(of: &Measurement, before: (&'static str, Vec<u64>), after: Vec<u64>, tolerance_percent: u64) -> Row {
    let (statistic, before) = before;
    let (from, to) = (median(&before), median(&after));
    let least = if statistic == "lost" { TOLERANCE_PPM } else { TOLERANCE_NS };
    let beyond = |less: u64, more: u64| {
        let tolerated = u128::from(less) * u128::from(tolerance_percent) / 100;
        u128::from(more.saturating_sub(less)) > tolerated.max(least.into())
    };
    let (grown, fallen) = (chance_ppm(&before, &after), chance_ppm(&after, &before));
    let (change, chance_ppm) = if grown <= LEVEL_PPM && beyond(from, to) {
        (Change::Worse, grown)
    } else if fallen <= LEVEL_PPM && beyond(to, from) {
        (Change::Better, fallen)
    } else {
        (Change::Same, grown)
    };
    let Measurement { guest, processor, measure, .. } = of;
    let (guest, processor, measure) = (guest.clone(), *processor, *measure);
    Row { guest, processor, measure, statistic, before: from, after: to, chance_ppm, change }
}

/// The upper median; 0 of nothing.
fn median(of: &[u64]) -> u64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// The most parts that are compared: the exact distribution takes the cube of their number.
const PARTS_MAX: usize = 64;

/// How likely it is by chance that `after` is so much greater than `before`, in millionths, rounded up: the
/// upper tail of Mann and Whitney's U, the number of pairs in which the later value is greater. 1,000,000 if
/// there is nothing to compare.
pub(crate) fn chance_ppm(before: &[u64], after: &[u64]) -> u64 {
    let (before, after) = (&before[..before.len().min(PARTS_MAX)], &after[..after.len().min(PARTS_MAX)]);
    let greater = |one: &u64| before.iter().filter(|other| one > other).count();
    let u: usize = after.iter().map(greater).sum();
    let tail: f64 = shares(before.len(), after.len()).iter().skip(u).sum();
    // Rounding of the sum must not make a chance of 1 a greater one.
    ((tail.min(1.0) * 1e6).ceil() as u64).min(1_000_000)
}

/// The share of all orders of `n` and `m` distinct values that have each U from 0 to `n * m`. The number of
/// orders follows Mann and Whitney's recurrence: the greatest value of all is one of the `m`, which exceeds
/// all `n`, or one of the `n`.
fn shares(n: usize, m: usize) -> Vec<f64> {
    // Row by row of m; in a row by n. Shares instead of counts: those would exceed 64 bits.
    let mut of_fewer: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for m in 1..=m {
        let mut row: Vec<Vec<f64>> = vec![vec![1.0]];
        for n in 1..=n {
            let (by_m, by_n) = (m as f64 / (n + m) as f64, n as f64 / (n + m) as f64);
            let mut shares = vec![0.0; n * m + 1];
            of_fewer[n].iter().enumerate().for_each(|(u, share)| shares[u + n] += by_m * share);
            row[n - 1].iter().enumerate().for_each(|(u, share)| shares[u] += by_n * share);
            row.push(shares);
        }
        of_fewer = row;
    }
    of_fewer.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Item;
    use crate::made_up::{certificate, measurement};
    use proptest::prelude::*;

    #[test]
    fn the_distribution_is_that_of_the_published_tables() {
        // n = m = 3: 20 orders, of which 1, 1, 2, 3, 3, 3, 3, 2, 1, 1 have U = 0 to 9 (Mann and Whitney 1947,
        // table I, gives their sums).
        let counts: Vec<f64> = shares(3, 3).iter().map(|share| (share * 20.0).round()).collect();
        assert_eq!(counts, [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0, 1.0]);
        // The critical value for n = m = 10 at 1 %, one-sided, is U = 19 in tables of the test: 81
        // from above.
        let tail = |u: usize| shares(10, 10).iter().skip(u).sum::<f64>();
        assert!(tail(81) <= 0.01 && tail(80) > 0.01, "{} {}", tail(81), tail(80));
        assert!((tail(0) - 1.0).abs() < 1e-9);
    }

    /// 1,000 latencies in no order, about `base` ns, by Knuth's multiplicative hash.
    fn latencies(base: u64, seed: u64) -> Vec<u64> {
        let noise = |at: u64| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 7) % 4_000;
        (0..1_000).map(|at| base + noise(at)).collect()
    }

    fn measured(latencies_ns: &[u64]) -> Certificate {
        certificate(vec![measurement(None, 1, Measure::Wakeup, latencies_ns)], None)
    }

    #[test]
    fn a_slower_kernel_is_worse_and_is_named() {
        let before = measured(&latencies(20_000, 1));
        let mut after = measured(&latencies(40_000, 2));
        after.fingerprint = vec![Item { value: Some("6.13.0".into()), ..after.fingerprint[0].clone() }];
        let comparison = compare(&before, &after, TOLERANCE_PERCENT);
        assert!(comparison.is_worse());
        assert!(comparison.rows.iter().all(|row| row.change == Change::Worse), "{comparison:#?}");
        let kernel = Difference {
            name: "kernel release".into(),
            before: Some("6.12.1".into()),
            after: Some("6.13.0".into()),
        };
        assert_eq!(comparison.differences, [kernel]);
        let back = compare(&after, &before, TOLERANCE_PERCENT);
        assert!(back.rows.iter().all(|row| row.change == Change::Better));
    }

    #[test]
    fn one_outlier_is_no_regression_and_a_growth_within_the_tolerance_does_not_matter() {
        let before = measured(&latencies(20_000, 1));
        let mut outlier = latencies(20_000, 2);
        outlier[500] = 40_000_000;
        assert!(!compare(&before, &measured(&outlier), TOLERANCE_PERCENT).is_worse());
        let little = measured(&latencies(23_000, 2));
        assert!(compare(&before, &little, 0).is_worse());
        assert!(!compare(&before, &little, 50).is_worse());
    }

    #[test]
    fn with_several_baselines_only_what_is_worse_than_each_is_worse() {
        let [quick, slow] = [20_000, 40_000].map(|base| measured(&latencies(base, 1)));
        let [middle, slower] = [30_000, 60_000].map(|base| measured(&latencies(base, 2)));
        let both = [quick, slow];
        let change = |after: &Certificate| {
            let comparison = compare_all(&both, after, TOLERANCE_PERCENT).expect("two baselines");
            comparison.rows.iter().map(|row| row.change).collect::<Vec<_>>()
        };
        assert_eq!(change(&middle), [Change::Same; 3]);
        assert_eq!(change(&slower), [Change::Worse; 3]);
        let nearest = compare_all(&both, &slower, TOLERANCE_PERCENT).expect("two baselines");
        assert!(nearest.rows.iter().all(|row| row.before >= 40_000), "{nearest:#?}");
        assert!(compare_all(&[], &slower, TOLERANCE_PERCENT).is_none());
    }

    #[test]
    fn what_is_in_one_certificate_alone_is_a_warning() {
        let before = measured(&latencies(20_000, 1));
        let after = certificate(vec![measurement(Some("vm1"), 0, Measure::Noise, &[5])], None);
        let comparison = compare(&before, &after, TOLERANCE_PERCENT);
        let expected = [
            "wakeup of processor 1 only in the first certificate",
            "noise of vCPU 0 of vm1 only in the second certificate",
        ];
        assert_eq!(comparison.warnings, expected);
        assert!(comparison.rows.is_empty() && !comparison.is_worse());
    }

    proptest! {
        /// The same distribution is called worse as rarely as the level says: the chance of a chance of at
        /// most p is at most p, for any order of the same values.
        #[test]
        fn equal_values_are_never_worse(values in proptest::collection::vec(0u64..1_000_000, 1..200)) {
            let certificate = measured(&values);
            let comparison = compare(&certificate, &certificate, 0);
            prop_assert!(comparison.rows.iter().all(|row| row.change == Change::Same));
        }

        /// Both directions together are never both significant, and growth everywhere is the least chance.
        #[test]
        fn chances_of_both_directions_add_up(
            before in proptest::collection::vec(0u64..100, 10),
            after in proptest::collection::vec(0u64..100, 10),
        ) {
            let (grown, fallen) = (chance_ppm(&before, &after), chance_ppm(&after, &before));
            prop_assert!(grown + fallen >= 1_000_000, "{} {}", grown, fallen);
            let shifted: Vec<u64> = before.iter().map(|value| value + 100).collect();
            // One of the 184,756 orders of 10 and 10 values.
            prop_assert_eq!(chance_ppm(&before, &shifted), 6);
        }
    }

    #[test]
    fn parts_drawn_from_one_distribution_differ_as_often_as_the_level_says() {
        let mut state = 1u64;
        let mut next = || {
            // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 1_000_000
        };
        let mut draw = || (0..10).map(|_| next()).collect::<Vec<u64>>();
        let rounds = 20_000;
        let found = (0..rounds).filter(|_| chance_ppm(&draw(), &draw()) <= LEVEL_PPM).count();
        // 1 % is 200; the exact test has 0.93 %. Five standard deviations of 14 either side.
        assert!((110..=270).contains(&found), "{found} of {rounds}");
    }
}
