//! Random task sets by the names they have in the literature, the same on every machine.
//!
//! Random numbers come from ChaCha8 with integer seeds; powers, logarithms and exponentials from `libm`,
//! whose results do not depend on the platform's C library. Utilisations are drawn as floating-point
//! numbers and become whole nanoseconds once, at the end.
//!
//! Sources:
//! - UUniFast: E. Bini, G. Buttazzo, *Measuring the performance of schedulability tests*, Real-Time Systems
//!   30(1-2), 2005, Fig. 4.
//! - UUniFast-Discard: R. Davis, A. Burns, *Priority assignment for global fixed priority pre-emptive
//!   scheduling in multiprocessor real-time systems*, RTSS 2009, s. VI.
//! - RandFixedSum: P. Emberson, R. Stafford, R. Davis, *Techniques for the synthesis of multiprocessor
//!   tasksets*, WATERS 2010.
//! - Named distributions of periods, utilisations and deadlines: SchedCAT, `schedcat/generator/tasksets.py`;
//!   the log-uniform periods have the same ranges, as in SchedCAT's use of the WATERS 2010 generator.
//! - `rt-xen`: S. Xi, J. Wilson, C. Lu, C. Gill, *RT-Xen: Towards Real-time Hypervisor Scheduling in Xen*,
//!   EMSOFT 2011, s. 5.5.

use punctual_sched::Duration;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The recipes of `generate` tables.
pub const RECIPES: [&str; 5] = ["rt-xen", "uunifast", "uunifast-discard", "randfixedsum", "schedcat"];

/// SchedCAT's named distributions of periods in whole ms, uniform or log-uniform over 3..33 (short),
/// 10..100 (moderate), 50..250 (long), both ends included.
pub const PERIODS: [&str; 6] =
    ["uni-short", "uni-moderate", "uni-long", "log-uni-short", "log-uni-moderate", "log-uni-long"];

/// SchedCAT's named distributions of utilisations: uniform, exponential, bimodal.
pub const UTILIZATIONS: [&str; 9] = [
    "uni-light",
    "uni-medium",
    "uni-heavy",
    "exp-light",
    "exp-medium",
    "exp-heavy",
    "bimo-light",
    "bimo-medium",
    "bimo-heavy",
];

/// SchedCAT's named distributions of deadlines: the period; uniform between cost and period; uniform between
/// cost and twice the period less the cost.
pub const DEADLINES: [&str; 3] = ["implicit", "uni-constrained", "uni-arbitrary"];

/// Periods become at most this long: RT-Xen's recipe divides by utilisations that can be arbitrarily small.
const PERIOD_MAX_MS: f64 = 3_600_000.0;

/// Sets drawn by [`uunifast_discard`] before it gives up, counted in single utilisations.
const DISCARD_DRAWS_MAX: usize = 1_000_000;

/// A stream of random numbers that is the same on every machine.
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// The stream of `seed` for the thing called `name`: independent for different names.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a spreads the name over 64 bits; ChaCha does the mixing.
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let name_hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&name_hash.to_le_bytes());
        RandomStream(ChaCha8Rng::from_seed(key))
    }

    /// Uniform over [0, 1), in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform over [`min`, `max`).
    pub fn uniform(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.unit()
    }

    /// Uniform over the whole numbers from `min` to `max`, both included.
    ///
    /// # Panics
    /// When `max < min`.
    pub fn whole(&mut self, min: u64, max: u64) -> u64 {
        assert!(min <= max, "{min}..={max} is empty");
        let count = max.wrapping_sub(min).wrapping_add(1);
        if count == 0 {
            return self.0.next_u64();
        }
        // Values beyond the greatest multiple of `count` would favour small results: draw again.
        let beyond = (u64::MAX % count + 1) % count;
        loop {
            let drawn = self.0.next_u64();
            if drawn <= u64::MAX - beyond {
                return min + drawn % count;
            }
        }
    }

    /// Exponentially distributed with mean `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(1.0 - self.unit()) * mean
    }

    fn shuffle(&mut self, values: &mut [f64]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.whole(0, i as u64) as usize);
        }
    }
}

/// `n` utilisations with sum `total`, uniform over all such sets; a single one may exceed 1 when `total`
/// does.
pub fn uunifast(stream: &mut RandomStream, n: usize, total: f64) -> Vec<f64> {
    let mut rest = total;
    let mut set = Vec::with_capacity(n);
    for left in (1..n).rev() {
        let next = rest * libm::pow(stream.unit(), 1.0 / left as f64);
        set.push(rest - next);
        rest = next;
    }
    if n > 0 {
        set.push(rest);
    }
    set
}

/// As [`uunifast`], drawn again until no utilisation exceeds 1. `None` when that does not happen soon, which
/// is so when `total` is near `n`: [`randfixedsum`] has no such limit.
pub fn uunifast_discard(stream: &mut RandomStream, n: usize, total: f64) -> Option<Vec<f64>> {
    (0..DISCARD_DRAWS_MAX / n.max(1))
        .map(|_| uunifast(stream, n, total))
        .find(|set| set.iter().all(|&u| u <= 1.0))
}

/// `n` utilisations in [0, 1] with sum `total`, uniform over all such sets, without discarding (Stafford's
/// algorithm: the set is a point of a simplex found by walking a table of volumes). Takes `n`² memory.
///
/// # Panics
/// When `total` is not between 0 and `n`.
pub fn randfixedsum(stream: &mut RandomStream, n: usize, total: f64) -> Vec<f64> {
    assert!((0.0..=n as f64).contains(&total), "no {n} numbers of [0, 1] add up to {total}");
    if n <= 1 {
        return vec![total; n];
    }
    let k = libm::floor(total).min((n - 1) as f64);
    let moves = simplex_moves(n, total, k);
    let mut set = Vec::with_capacity(n);
    let (mut rest, mut column, mut sum, mut product) = (total, k as usize, 0.0, 1.0);
    for i in (1..n).rev() {
        let up = stream.unit() < moves[(i - 1) * n + column];
        let step = if up { 1.0 } else { 0.0 };
        let shrink = libm::pow(stream.unit(), 1.0 / i as f64);
        sum += (1.0 - shrink) * product * rest / (i + 1) as f64;
        product *= shrink;
        set.push(sum + product * step);
        rest -= step;
        column = column.saturating_sub(usize::from(up));
    }
    set.push(sum + product * rest);
    stream.shuffle(&mut set);
    set
}

/// Row i, column j: with i + 1 dimensions left and j whole units to place, the probability of the step that
/// places one. Rows of `n`.
fn simplex_moves(n: usize, total: f64, k: f64) -> Vec<f64> {
    let below: Vec<f64> = (0..n).map(|i| total - (k - i as f64)).collect();
    let above: Vec<f64> = (0..n).map(|i| (k + (n - i) as f64) - total).collect();
    let mut volumes = vec![0.0; n + 1];
    volumes[1] = f64::MAX;
    let mut moves = vec![0.0; (n - 1) * n];
    for i in 2..=n {
        let mut next = vec![0.0; n + 1];
        for j in 0..i {
            let up = volumes[j + 1] * below[j] / i as f64;
            let down = volumes[j] * above[n - i + j] / i as f64;
            next[j + 1] = up + down;
            let volume = next[j + 1] + f64::MIN_POSITIVE;
            // Of two nearly complementary quotients, take the one that loses less to rounding.
            let move_down = above[n - i + j] > below[j];
            moves[(i - 2) * n + j] = if move_down { down / volume } else { 1.0 - up / volume };
        }
        volumes = next;
    }
    moves
}

/// One generated task: deadline, period and cost in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Distance of releases.
    pub period: Duration,
    /// Processor time of each job, at least 1 ns.
    pub cost: Duration,
    /// Relative deadline.
    pub deadline: Duration,
}

impl TaskSpec {
    /// Cost / period.
    pub fn utilization(&self) -> f64 {
        self.cost.as_ns() as f64 / self.period.as_ns() as f64
    }
}

/// RT-Xen's recipe: each cost is uniform over 5, 6, ... 10 ms; `utilization` (the domain's share times the
/// load) is distributed over the tasks; deadline = period = cost / utilisation in whole ms.
///
/// The paper does not say how the utilisation is distributed at random: here by UUniFast, uniformly over all
/// ways. It says that costs and deadlines are integers: here the period is rounded up, so the real load
/// is never above the nominal one. A period is at most one hour. The costs are drawn before the utilisations,
/// so one seed gives the same costs at every load. `None` as in [`uunifast_discard`].
pub fn rt_xen(stream: &mut RandomStream, n: usize, utilization: f64) -> Option<Vec<TaskSpec>> {
    let costs: Vec<u64> = (0..n).map(|_| stream.whole(5, 10)).collect();
    let utilizations = uunifast_discard(stream, n, utilization)?;
    let task = |(cost, u): (u64, f64)| {
        let period_ms = libm::ceil(cost as f64 / u).min(PERIOD_MAX_MS) as u64;
        let period = Duration::from_ms(period_ms);
        TaskSpec { period, cost: Duration::from_ms(cost), deadline: period }
    };
    Some(costs.into_iter().zip(utilizations).map(task).collect())
}

/// How many tasks [`schedcat`] draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// No more tasks than this.
    pub tasks_max: usize,
    /// Until the utilisations add up to this; the last task is made to fit exactly (SchedCAT: `squeeze`).
    pub utilization_max: Option<f64>,
}

/// SchedCAT's task generator: period and utilisation of each task are drawn independently from the named
/// distributions (of [`PERIODS`], [`UTILIZATIONS`], [`DEADLINES`]) until `extent` is reached.
///
/// # Panics
/// When a name is none of those.
pub fn schedcat(
    stream: &mut RandomStream,
    extent: Extent,
    periods: &str,
    utilizations: &str,
    deadlines: &str,
) -> Vec<TaskSpec> {
    let mut tasks = Vec::new();
    let mut total = 0.0;
    while tasks.len() < extent.tasks_max && extent.utilization_max.is_none_or(|max| total < max) {
        let period_ms = period_ms(stream, periods);
        let mut u = utilization(stream, utilizations);
        if let Some(max) = extent.utilization_max {
            u = u.min(max - total);
        }
        total += u;
        tasks.push(task(stream, period_ms, u, deadlines));
    }
    tasks
}

/// Gives each utilisation a period and a deadline from the named distributions (of [`PERIODS`] and
/// [`DEADLINES`]).
///
/// # Panics
/// When a name is none of those.
pub fn with_periods(
    stream: &mut RandomStream,
    utilizations: &[f64],
    periods: &str,
    deadlines: &str,
) -> Vec<TaskSpec> {
    let mut task_of = |&u: &f64| {
        let period_ms = period_ms(stream, periods);
        task(stream, period_ms, u, deadlines)
    };
    utilizations.iter().map(&mut task_of).collect()
}

fn task(stream: &mut RandomStream, period_ms: u64, utilization: f64, deadlines: &str) -> TaskSpec {
    let period = Duration::from_ms(period_ms);
    let nearest_ns = |ns: f64| (libm::round(ns) as u64).max(1);
    let cost_ns = nearest_ns(period.as_ns() as f64 * utilization);
    let slack = period.as_ns().saturating_sub(cost_ns) as f64;
    let deadline = match deadlines {
        "implicit" => period,
        "uni-constrained" => Duration::from_ns(nearest_ns(cost_ns as f64 + stream.uniform(0.0, slack))),
        "uni-arbitrary" => Duration::from_ns(nearest_ns(cost_ns as f64 + stream.uniform(0.0, 2.0 * slack))),
        other => panic!("no distribution of deadlines is called {other}"),
    };
    TaskSpec { period, cost: Duration::from_ns(cost_ns), deadline }
}

/// Draws a period in whole ms from the distribution called `name`, one of [`PERIODS`].
///
/// # Panics
/// When there is no such distribution.
pub fn period_ms(stream: &mut RandomStream, name: &str) -> u64 {
    let range = |range: &str| match range {
        "short" => (3, 33),
        "moderate" => (10, 100),
        "long" => (50, 250),
        _ => panic!("no distribution of periods is called {name}"),
    };
    if let Some(which) = name.strip_prefix("log-uni-") {
        let (min, max) = range(which);
        let exponent = stream.uniform(libm::log(min as f64), libm::log((max + 1) as f64));
        return (libm::exp(exponent) as u64).clamp(min, max);
    }
    let (min, max) = range(name.strip_prefix("uni-").unwrap_or(name));
    stream.whole(min, max)
}

/// Draws a utilisation from the distribution called `name`, one of [`UTILIZATIONS`]. The exponential ones are
/// drawn again while above 1.
///
/// # Panics
/// When there is no such distribution.
pub fn utilization(stream: &mut RandomStream, name: &str) -> f64 {
    match name {
        "uni-light" => stream.uniform(0.001, 0.1),
        "uni-medium" => stream.uniform(0.1, 0.4),
        "uni-heavy" => stream.uniform(0.5, 0.9),
        "exp-light" => exponential_to_1(stream, 0.10),
        "exp-medium" => exponential_to_1(stream, 0.25),
        "exp-heavy" => exponential_to_1(stream, 0.50),
        "bimo-light" => bimodal(stream, 8),
        "bimo-medium" => bimodal(stream, 6),
        "bimo-heavy" => bimodal(stream, 4),
        other => panic!("no distribution of utilisations is called {other}"),
    }
}

fn exponential_to_1(stream: &mut RandomStream, mean: f64) -> f64 {
    loop {
        let drawn = stream.exponential(mean);
        if drawn <= 1.0 {
            return drawn;
        }
    }
}

/// Light with probability `light_of_9` / 9, else heavy.
fn bimodal(stream: &mut RandomStream, light_of_9: u64) -> f64 {
    if stream.whole(1, 9) <= light_of_9 { stream.uniform(0.001, 0.5) } else { stream.uniform(0.5, 0.9) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(name: &str) -> RandomStream {
        RandomStream::new(20_111_009, name)
    }

    /// Mean and standard error of the mean of `n` draws.
    fn mean_of(n: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1) as f64;
        (mean, (variance / n as f64).sqrt())
    }

    /// Four standard errors: an unbiased generator fails one seed in 16,000, and the seed is fixed.
    fn assert_mean(what: &str, expected: f64, (mean, error): (f64, f64)) {
        assert!((mean - expected).abs() <= 4.0 * error, "{what}: mean {mean} ± {error}, expected {expected}");
    }

    #[test]
    fn streams_are_stable_across_machines_and_versions() {
        let mut s = RandomStream::new(1, "vm1");
        assert_eq!(s.0.next_u64(), 12_539_598_378_874_017_024);
        assert_eq!(s.unit().to_bits(), 4_604_931_041_550_481_996);
        assert_eq!((0..8).map(|_| s.whole(5, 10)).collect::<Vec<_>>(), [8, 10, 8, 7, 8, 10, 7, 10]);
    }

    #[test]
    fn task_sets_are_stable_across_machines_and_versions() {
        let show = |tasks: Vec<TaskSpec>| {
            tasks.iter().map(|t| format!("{}/{}", t.cost, t.period)).collect::<Vec<_>>().join(" ")
        };
        let mut s = RandomStream::new(1, "vm1");
        let got = [
            show(rt_xen(&mut s, 5, 0.14).unwrap()),
            show(with_periods_of(&mut s, uunifast_of(0.65), "uni-moderate", "implicit")),
            show(with_periods_of(
                &mut s,
                |s| uunifast_discard(s, 4, 2.5).unwrap(),
                "log-uni-long",
                "implicit",
            )),
            show(with_periods_of(&mut s, |s| randfixedsum(s, 4, 2.5), "uni-short", "uni-constrained")),
            show(schedcat(
                &mut s,
                Extent { tasks_max: 4, utilization_max: None },
                "uni-long",
                "exp-heavy",
                "implicit",
            )),
        ];
        assert_eq!(
            got,
            [
                "5ms/293ms 5ms/181ms 8ms/351ms 10ms/247ms 8ms/253ms",
                "5090937ns/22ms 813108ns/12ms 3281150ns/47ms 3934324ns/14ms",
                "25009732ns/63ms 183101092ns/209ms 189008953ns/218ms 70545262ns/196ms",
                "6083773ns/7ms 14722865ns/27ms 8478026ns/26ms 7595203ns/10ms",
                "12893823ns/197ms 7391315ns/117ms 56392366ns/205ms 91532295ns/196ms",
            ]
        );
    }

    fn uunifast_of(total: f64) -> impl Fn(&mut RandomStream) -> Vec<f64> {
        move |s| uunifast(s, 4, total)
    }

    fn with_periods_of(
        stream: &mut RandomStream,
        set: impl Fn(&mut RandomStream) -> Vec<f64>,
        periods: &str,
        deadlines: &str,
    ) -> Vec<TaskSpec> {
        let set = set(stream);
        with_periods(stream, &set, periods, deadlines)
    }

    #[test]
    fn whole_numbers_are_uniform() {
        let mut s = stream("whole");
        let mut counts = [0u32; 6];
        (0..60_000).for_each(|_| counts[(s.whole(5, 10) - 5) as usize] += 1);
        let chi_squared: f64 = counts.iter().map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4).sum();
        // 5 degrees of freedom: 20.5 is exceeded with probability 0.001.
        assert!(chi_squared < 20.5, "{counts:?}");
    }

    #[test]
    fn every_task_of_uunifast_and_randfixedsum_has_the_same_mean_share() {
        let mut s = stream("shares");
        for (n, total) in [(2, 0.5), (5, 0.7), (5, 3.0), (8, 7.5), (20, 10.0)] {
            for task in 0..n {
                let expected = total / n as f64;
                let draws = mean_of(4000, || uunifast(&mut s, n, total)[task]);
                assert_mean("uunifast", expected, draws);
                let draws = mean_of(4000, || randfixedsum(&mut s, n, total)[task]);
                assert_mean("randfixedsum", expected, draws);
            }
        }
    }

    /// Uniform over a simplex, the share of one of n tasks has the variance of Beta(1, n - 1).
    #[test]
    fn uunifast_has_the_variance_of_the_uniform_simplex() {
        let mut s = stream("variance");
        let n = 5usize;
        let square = mean_of(20_000, || uunifast(&mut s, n, 1.0)[2].powi(2));
        assert_mean("square", 2.0 / (n * (n + 1)) as f64, square);
    }

    /// Where no utilisation can exceed 1, and where discarding is still practical, RandFixedSum and
    /// UUniFast-Discard draw from the same distribution.
    #[test]
    fn randfixedsum_and_uunifast_discard_agree() {
        let mut s = stream("agree");
        for (n, total) in [(5, 0.8), (4, 2.0), (6, 3.5)] {
            let ours = mean_of(20_000, || randfixedsum(&mut s, n, total)[0].powi(2));
            let discard = mean_of(20_000, || uunifast_discard(&mut s, n, total).unwrap()[0].powi(2));
            let error = ours.1.hypot(discard.1);
            assert!((ours.0 - discard.0).abs() <= 4.0 * error, "{n} {total}: {ours:?} {discard:?}");
        }
    }

    #[test]
    fn uunifast_discard_gives_up_where_nearly_every_set_is_discarded() {
        assert_eq!(uunifast_discard(&mut stream("hopeless"), 20, 19.9), None);
        assert!(uunifast_discard(&mut stream("one"), 1, 1.0).is_some());
    }

    #[test]
    fn named_utilisations_have_their_means() {
        let mut s = stream("utilisations");
        // Mean of an exponential distribution of mean m restricted to [0, 1].
        let truncated = |m: f64| m - 1.0 / ((1.0 / m).exp() - 1.0);
        let bimodal = |light: f64| (light * 0.2505 + (9.0 - light) * 0.7) / 9.0;
        let means = [
            0.0505,
            0.25,
            0.7,
            truncated(0.1),
            truncated(0.25),
            truncated(0.5),
            bimodal(8.0),
            bimodal(6.0),
            bimodal(4.0),
        ];
        for (name, mean) in UTILIZATIONS.iter().zip(means) {
            assert_mean(name, mean, mean_of(40_000, || utilization(&mut s, name)));
        }
    }

    #[test]
    fn named_periods_have_their_means_and_ranges() {
        let mut s = stream("periods");
        // The whole part of exp(uniform(ln a, ln(b + 1))): k has probability ln((k + 1) / k) / ln((b + 1) /
        // a).
        let log_mean = |a: u32, b: u32| {
            let weight =
                |k: u32| (f64::from(k + 1) / f64::from(k)).ln() / (f64::from(b + 1) / f64::from(a)).ln();
            (a..=b).map(|k| f64::from(k) * weight(k)).sum::<f64>()
        };
        let means = [18.0, 55.0, 150.0, log_mean(3, 33), log_mean(10, 100), log_mean(50, 250)];
        for (name, mean) in PERIODS.iter().zip(means) {
            assert_mean(name, mean, mean_of(40_000, || period_ms(&mut s, name) as f64));
        }
        let shorts: Vec<u64> = (0..20_000).map(|_| period_ms(&mut s, "log-uni-short")).collect();
        assert_eq!((shorts.iter().min(), shorts.iter().max()), (Some(&3), Some(&33)));
    }

    #[test]
    fn rt_xen_costs_and_periods_are_whole_ms_and_the_load_is_never_above_the_nominal_one() {
        for seed in 0..200 {
            let tasks = rt_xen(&mut RandomStream::new(seed, "vm"), 5, 0.2).unwrap();
            let load: f64 = tasks.iter().map(TaskSpec::utilization).sum();
            // A period is at least 25 ms, so rounding up by less than 1 ms costs at most 4 %.
            assert!(load <= 0.2 + 1e-12 && load > 0.2 * 0.96, "seed {seed}: {load}");
            for t in tasks {
                assert!(t.cost.as_ns() % 1_000_000 == 0 && t.period.as_ns() % 1_000_000 == 0);
                assert!((5..=10).contains(&(t.cost.as_ns() / 1_000_000)) && t.deadline == t.period);
            }
        }
    }

    #[test]
    fn rt_xen_draws_the_same_costs_at_every_load() {
        let costs = |load: f64| -> Vec<_> {
            rt_xen(&mut stream("costs"), 5, load).unwrap().iter().map(|t| t.cost).collect()
        };
        assert_eq!(costs(0.06), costs(0.2));
    }

    #[test]
    fn schedcat_squeezes_the_last_task_to_the_target() {
        let mut s = stream("squeeze");
        let extent = Extent { tasks_max: 1000, utilization_max: Some(2.5) };
        let tasks = schedcat(&mut s, extent, "uni-moderate", "uni-medium", "implicit");
        let total: f64 = tasks.iter().map(TaskSpec::utilization).sum();
        // Costs are rounded to ns.
        assert!((total - 2.5).abs() < 1e-6, "{total}");
        assert!(tasks[..tasks.len() - 1].iter().all(|t| t.utilization() > 0.0999));
    }

    #[test]
    fn deadlines_lie_where_their_names_say() {
        let mut s = stream("deadlines");
        for t in with_periods(&mut s, &[0.3; 500], "uni-moderate", "uni-constrained") {
            assert!(t.cost <= t.deadline && t.deadline <= t.period);
        }
        let arbitrary = with_periods(&mut s, &[0.3; 500], "uni-moderate", "uni-arbitrary");
        assert!(arbitrary.iter().all(|t| t.cost <= t.deadline));
        assert!(arbitrary.iter().any(|t| t.deadline > t.period));
    }

    proptest! {
        #[test]
        fn sums_equal_the_target_and_nothing_is_negative(seed in any::<u64>(), n in 1usize..60, part in 0.001f64..1.0) {
            let mut s = RandomStream::new(seed, "sum");
            for (total, most) in [(part, 1.0), (part * n as f64, n as f64)] {
                let set = uunifast(&mut s, n, total);
                prop_assert!((set.iter().sum::<f64>() - total).abs() < 1e-9);
                prop_assert!(set.len() == n && set.iter().all(|&u| (0.0..=most).contains(&u)));
                let set = randfixedsum(&mut s, n, total);
                prop_assert!((set.iter().sum::<f64>() - total).abs() < 1e-9, "{set:?}");
                prop_assert!(set.len() == n && set.iter().all(|&u| (-1e-9..=1.0 + 1e-9).contains(&u)), "{set:?}");
            }
        }
    }

    #[test]
    fn randfixedsum_stays_within_bounds_for_the_largest_sets() {
        for total in [0.0, 1.0, 500.0, 999.5, 1000.0] {
            let set = randfixedsum(&mut stream("large"), 1000, total);
            assert!((set.iter().sum::<f64>() - total).abs() < 1e-6);
            assert!(set.iter().all(|&u| (-1e-9..=1.0 + 1e-9).contains(&u)), "{total}");
        }
    }
}
