//! Task sets: costs, periods and deadlines for utilizations.

use punctual_sched::Duration;

use super::random::RandomStream;
use super::runnables;
use super::utilization::uunifast_discard;

/// Named distributions of periods in whole ms: SchedCAT's, uniform or log-uniform over 3..33 (short), 10..100
/// (moderate), 50..250 (long), both ends included; and that of engine control (`runnables.rs`).
pub const PERIODS: [&str; 7] = [
    "uni-short",
    "uni-moderate",
    "uni-long",
    "log-uni-short",
    "log-uni-moderate",
    "log-uni-long",
    "automotive",
];

/// SchedCAT's named distributions of utilizations: uniform, exponential, bimodal.
pub(crate) const UTILIZATIONS: [&str; 9] = [
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

/// Periods become at most this long: RT-Xen's recipe divides by utilizations that can be arbitrarily small.
const PERIOD_MAX_MS: f64 = 3_600_000.0;

/// One generated task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Distance of releases.
    pub period: Duration,
    /// Least processor time of a job, at least 1 ns.
    pub cost_min: Duration,
    /// Greatest processor time of a job; all but engine control's have this one alone.
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
/// load) is distributed over the tasks; deadline = period = cost / utilization in whole ms.
///
/// The paper does not say how the utilization is distributed at random; here UUniFast distributes it,
/// uniformly over all ways. The paper says that costs and deadlines are integers; here the period is rounded
/// up, so the real load is never above the nominal one. A period is at most one hour. The costs are drawn
/// before the utilizations, so one seed gives the same costs at every load. `None` as in
/// `uunifast_discard`.
pub fn rt_xen(stream: &mut RandomStream, n: usize, utilization: f64) -> Option<Vec<TaskSpec>> {
    let costs: Vec<u64> = (0..n).map(|_| stream.whole(5, 10)).collect();
    let utilizations = uunifast_discard(stream, n, utilization)?;
    let task = |(cost, u): (u64, f64)| {
        let period_ms = libm::ceil(cost as f64 / u).min(PERIOD_MAX_MS) as u64;
        let period = Duration::from_ms(period_ms);
        let cost = Duration::from_ms(cost);
        TaskSpec { period, cost_min: cost, cost, deadline: period }
    };
    Some(costs.into_iter().zip(utilizations).map(task).collect())
}

/// How many tasks [`schedcat`] draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetLimits {
    /// No more tasks than this.
    pub tasks_max: usize,
    /// Tasks are drawn until the utilizations add up to this; the last task is made to fit exactly (SchedCAT:
    /// `squeeze`).
    pub utilization_max: Option<f64>,
}

/// SchedCAT's task generator: period and utilization of each task are drawn independently from the named
/// distributions (of `PERIODS`, `UTILIZATIONS`, `DEADLINES`) until `limits` is reached.
///
/// # Panics
/// When a name is none of those.
pub fn schedcat(
    stream: &mut RandomStream,
    limits: SetLimits,
    periods: &str,
    utilizations: &str,
    deadlines: &str,
) -> Vec<TaskSpec> {
    let mut tasks = Vec::new();
    let mut total = 0.0;
    while tasks.len() < limits.tasks_max && limits.utilization_max.is_none_or(|max| total < max) {
        let period_ms = period_ms(stream, periods);
        let mut u = utilization(stream, utilizations);
        if let Some(max) = limits.utilization_max {
            u = u.min(max - total);
        }
        total += u;
        tasks.push(task(stream, period_ms, u, deadlines));
    }
    tasks
}

/// Tasks of engine control whose worst cases add up to `utilization` (`runnables.rs`), shortest period
/// first; the deadline is the period.
pub(crate) fn automotive(stream: &mut RandomStream, utilization: f64) -> Vec<TaskSpec> {
    let task = |(period_ms, (best, worst)): (u64, (f64, f64))| {
        let period = Duration::from_ms(period_ms);
        let ns = |ns: f64| Duration::from_ns((libm::round(ns) as u64).clamp(1, period.as_ns()));
        TaskSpec { period, cost_min: ns(best), cost: ns(worst), deadline: period }
    };
    runnables::rate_groups(stream, utilization).map(task).collect()
}

/// Gives each utilization a period and a deadline from the named distributions (of [`PERIODS`] and
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
    let cost = Duration::from_ns(cost_ns);
    TaskSpec { period, cost_min: cost, cost, deadline }
}

/// Draws a period in whole ms from the distribution called `name`, one of `PERIODS`.
///
/// # Panics
/// When there is no such distribution.
pub fn period_ms(stream: &mut RandomStream, name: &str) -> u64 {
    if name == "automotive" {
        return runnables::period_ms(stream);
    }
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

/// Draws a utilization from the distribution called `name`, one of `UTILIZATIONS`. The exponential ones are
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
        other => panic!("no distribution of utilizations is called {other}"),
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
    use super::super::statistics::{assert_mean, mean_of, stream};
    use super::super::utilization::{randfixedsum, uunifast};
    use super::*;

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
                SetLimits { tasks_max: 4, utilization_max: None },
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
    fn named_utilizations_have_their_means() {
        let mut s = stream("utilizations");
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
        let means = [18.0, 55.0, 150.0, log_mean(3, 33), log_mean(10, 100), log_mean(50, 250), 7117.0 / 85.0];
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
        let limits = SetLimits { tasks_max: 1000, utilization_max: Some(2.5) };
        let tasks = schedcat(&mut s, limits, "uni-moderate", "uni-medium", "implicit");
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

    #[test]
    fn worst_cases_of_engine_control_add_up_and_fit_their_periods() {
        for (seed, utilization) in [(1, 0.3), (2, 0.9), (3, 1.0), (4, 7.5), (5, 0.000_01)] {
            let tasks = automotive(&mut RandomStream::new(seed, "engine"), utilization);
            let total: f64 = tasks.iter().map(TaskSpec::utilization).sum();
            assert!((total - utilization).abs() < 1e-5, "{total} for {utilization}");
            assert!(
                tasks.iter().all(|t| t.cost_min < t.cost && t.cost <= t.period && t.deadline == t.period)
            );
            assert!(tasks.is_sorted_by_key(|t| t.period));
        }
    }
}
