//! One number out of results, for sweeps.

use clap::ValueEnum;
use punctual_model::results::{JobStats, ProcessorResult, Results};
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_sched::Duration;

/// What a sweep can show in its tables, over all tasks or processors of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Metric {
    /// Share of the jobs due that missed their deadline.
    MissRatio,
    /// Jobs that missed their deadline.
    Missed,
    /// Mean response time.
    MeanResponse,
    /// Response time that 50 % of the jobs do not exceed.
    P50Response,
    /// Response time that 99 % of the jobs do not exceed.
    P99Response,
    /// Response time that 99.9 % of the jobs do not exceed.
    P999Response,
    /// Greatest response time.
    MaxResponse,
    /// How late 99 % of the jobs are at most.
    P99Tardiness,
    /// How late the latest job is.
    MaxTardiness,
    /// Share of the processors' time in which tasks executed.
    Busy,
    /// Share of the processors' time taken by scheduling itself.
    Overhead,
    /// Scheduling decisions.
    Decisions,
    /// Changes of the unit that a processor runs.
    ContextSwitches,
    /// Units resumed on another processor.
    Migrations,
    /// How often a budget was used up.
    Exhaustions,
}

/// A metric's value, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Part and whole.
    Share(u64, u64),
    /// A length of time; `None` when no job finished.
    Time(Option<Duration>),
    /// A number of things.
    Count(u64),
}

impl Metric {
    /// The name for the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no metric is hidden").get_name().to_string()
    }

    /// The name of its column in CSV, with the unit.
    pub(super) fn column(self) -> String {
        let unit = match self.of_nothing() {
            Value::Share(..) => "_ppm",
            Value::Time(_) => "_ns",
            Value::Count(_) => "",
        };
        self.name().replace('-', "_") + unit
    }

    fn of_nothing(self) -> Value {
        self.value(&JobStats::default(), &[], [0; 4])
    }

    /// Its value in `results`.
    pub(super) fn of(self, results: &Results) -> Value {
        let mut jobs = JobStats::default();
        results.pools.iter().for_each(|pool| jobs.merge(&pool.jobs));
        // A host with `host_stack` has no pools and no tasks: its jobs are the requests.
        if results.pools.is_empty() {
            results.flows.iter().for_each(|flow| jobs.response.merge(&flow.latency));
        }
        let counts = results.pools.iter().fold([0; 4], |sums: [u64; 4], p| {
            // Everything is measured in a simulation.
            let measured = |count: Option<u64>| count.unwrap_or_default();
            let more = [p.decisions, p.context_switches, p.migrations, p.exhaustions].map(measured);
            std::array::from_fn(|i| sums[i] + more[i])
        });
        self.value(&jobs, &results.processors, counts)
    }

    fn value(self, jobs: &JobStats, processors: &[ProcessorResult], counts: [u64; 4]) -> Value {
        let sum = |of: fn(&ProcessorResult) -> u64| processors.iter().map(of).sum::<u64>();
        let all = || sum(|p| p.busy_ns + p.idle_ns + p.overhead_ns);
        let [decisions, context_switches, migrations, exhaustions] = counts;
        let time = |d| Value::Time((jobs.response.count() > 0).then_some(d));
        match self {
            Metric::MissRatio => Value::Share(jobs.missed, jobs.due),
            Metric::Missed => Value::Count(jobs.missed),
            Metric::MeanResponse => time(jobs.response.mean()),
            Metric::P50Response => time(jobs.response.quantile_ppm(500_000)),
            Metric::P99Response => time(jobs.response.quantile_ppm(990_000)),
            Metric::P999Response => time(jobs.response.quantile_ppm(999_000)),
            Metric::MaxResponse => time(jobs.response.max()),
            Metric::P99Tardiness => time(jobs.tardiness.quantile_ppm(990_000)),
            Metric::MaxTardiness => time(jobs.tardiness.max()),
            Metric::Busy => Value::Share(sum(|p| p.busy_ns), all()),
            Metric::Overhead => Value::Share(sum(|p| p.overhead_ns), all()),
            Metric::Decisions => Value::Count(decisions),
            Metric::ContextSwitches => Value::Count(context_switches),
            Metric::Migrations => Value::Count(migrations),
            Metric::Exhaustions => Value::Count(exhaustions),
        }
    }
}

impl Value {
    /// For people.
    pub(super) fn show(self) -> String {
        match self {
            Value::Share(part, whole) => fmt_share(part, whole),
            Value::Time(time) => time.map_or_else(|| "-".into(), fmt_duration),
            Value::Count(n) => fmt_count(n),
        }
    }

    /// As a whole number in the unit of [`Metric::column`], shares rounded to nearest; `None` when there is
    /// nothing to measure.
    pub(super) fn exact(self) -> Option<u64> {
        match self {
            Value::Share(_, 0) => None,
            Value::Share(part, whole) => {
                let (part, whole) = (u128::from(part), u128::from(whole));
                Some(((part * 1_000_000 + whole / 2) / whole) as u64)
            }
            Value::Time(time) => time.map(Duration::as_ns),
            Value::Count(n) => Some(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_says_its_unit() {
        assert_eq!(Metric::MissRatio.column(), "miss_ratio_ppm");
        assert_eq!(Metric::P99Response.column(), "p99_response_ns");
        assert_eq!(Metric::Decisions.column(), "decisions");
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        assert_eq!(Value::Share(0, 0).exact(), None);
        assert_eq!(Value::Time(None).exact(), None);
        assert_eq!(Value::Share(1, 3).exact(), Some(333_333));
    }
}
