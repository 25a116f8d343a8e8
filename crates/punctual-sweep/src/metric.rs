//! One number out of results, or of what the analysis says.

use punctual_model::guarantees::Guarantees;
use punctual_model::host::{Arrival, Host, Task, Work};
use punctual_model::results::{JobStats, ProcessorResult, Results};
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_sched::Duration;
use serde::{Deserialize, Serialize};

/// What a sweep can show in its tables, over all tasks or processors of the host. The last ones are of the
/// analysis ([`Metric::is_analysed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
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
    /// Share of the runs in which no job missed its deadline.
    NoMiss,
    /// Share of the tasks whose deadlines `check` guarantees.
    Guaranteed,
    /// Share of the tasks whose deadlines `check` refutes.
    Refuted,
    /// Share of the runs in which `check` guarantees every deadline (schedulability ratio).
    Schedulable,
    /// The same, each run weighted by the utilization of its tasks (weighted schedulability; Bastoni,
    /// Brandenburg, Anderson, OSPERT 2010).
    WeightedSchedulable,
}

/// Each metric with its name and a line about it, in the order of the variants.
const METRICS: [(Metric, &str, &str); 20] = [
    (Metric::MissRatio, "miss-ratio", "Share of the jobs due that missed their deadline"),
    (Metric::Missed, "missed", "Jobs that missed their deadline"),
    (Metric::MeanResponse, "mean-response", "Mean response time"),
    (Metric::P50Response, "p50-response", "Response time that 50 % of the jobs do not exceed"),
    (Metric::P99Response, "p99-response", "Response time that 99 % of the jobs do not exceed"),
    (Metric::P999Response, "p999-response", "Response time that 99.9 % of the jobs do not exceed"),
    (Metric::MaxResponse, "max-response", "Greatest response time"),
    (Metric::P99Tardiness, "p99-tardiness", "How late 99 % of the jobs are at most"),
    (Metric::MaxTardiness, "max-tardiness", "How late the latest job is"),
    (Metric::Busy, "busy", "Share of the processors' time in which tasks executed"),
    (Metric::Overhead, "overhead", "Share of the processors' time taken by scheduling itself"),
    (Metric::Decisions, "decisions", "Scheduling decisions"),
    (Metric::ContextSwitches, "context-switches", "Changes of the unit that a processor runs"),
    (Metric::Migrations, "migrations", "Units resumed on another processor"),
    (Metric::Exhaustions, "exhaustions", "How often a budget was used up"),
    (Metric::NoMiss, "no-miss", "Share of the runs in which no job missed its deadline"),
    (Metric::Guaranteed, "guaranteed", "Share of the tasks whose deadlines `check` guarantees"),
    (Metric::Refuted, "refuted", "Share of the tasks whose deadlines `check` refutes"),
    (
        Metric::Schedulable,
        "schedulable",
        "Share of the runs in which `check` guarantees every deadline (schedulability ratio)",
    ),
    (
        Metric::WeightedSchedulable,
        "weighted-schedulable",
        "The same, each run weighted by the utilization of its tasks (weighted schedulability; \
         Bastoni, Brandenburg, Anderson, OSPERT 2010)",
    ),
];

/// What `check` says about the runs of a point.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Analysed {
    runs: u64,
    schedulable: u64,
    /// Tasks with deadlines.
    tasks: u64,
    guaranteed: u64,
    refuted: u64,
    utilization_ppm: u64,
    schedulable_utilization_ppm: u64,
}

impl Analysed {
    /// One run: what `check` says about the host.
    pub fn of(host: &Host, guarantees: &Guarantees) -> Self {
        let tasks = &guarantees.tasks;
        let guaranteed = tasks.iter().filter(|task| task.verdict.is_guaranteed()).count() as u64;
        let is_schedulable = guaranteed == tasks.len() as u64
            && guarantees.chains.iter().all(|chain| chain.verdict.is_guaranteed());
        let utilization_ppm = utilization_ppm(host);
        Analysed {
            runs: 1,
            schedulable: is_schedulable.into(),
            tasks: tasks.len() as u64,
            guaranteed,
            refuted: tasks.iter().filter(|task| task.verdict.is_refuted()).count() as u64,
            utilization_ppm,
            schedulable_utilization_ppm: utilization_ppm * u64::from(is_schedulable),
        }
    }

    pub fn merge(&mut self, other: &Analysed) {
        self.runs += other.runs;
        self.schedulable += other.schedulable;
        self.tasks += other.tasks;
        self.guaranteed += other.guaranteed;
        self.refuted += other.refuted;
        self.utilization_ppm += other.utilization_ppm;
        self.schedulable_utilization_ppm += other.schedulable_utilization_ppm;
    }

    /// The value of a metric of the analysis.
    pub fn value(&self, metric: Metric) -> Option<Value> {
        let (part, whole) = match metric {
            Metric::Guaranteed => (self.guaranteed, self.tasks),
            Metric::Refuted => (self.refuted, self.tasks),
            Metric::Schedulable => (self.schedulable, self.runs),
            Metric::WeightedSchedulable => (self.schedulable_utilization_ppm, self.utilization_ppm),
            _ => return None,
        };
        Some(Value::Share(part, whole))
    }
}

/// What the host's tasks ask for at most, in parts of a million of a processor.
fn utilization_ppm(host: &Host) -> u64 {
    let of_task = |task: &Task| match task.work {
        Work::Jobs { arrival, cost, .. } => {
            let (Arrival::Periodic { period: separation, .. } | Arrival::Sporadic { separation, .. }) =
                arrival;
            (u128::from(cost.max.as_ns()) * 1_000_000 / u128::from(separation.as_ns().max(1))) as u64
        }
        Work::Served { .. } | Work::Hog { .. } => 0,
    };
    host.tasks.iter().map(of_task).sum()
}

/// A metric's value, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// Part and whole.
    Share(u64, u64),
    /// A length of time; `None` when no job finished.
    Time(#[serde(with = "ns")] Option<Duration>),
    /// A number of things.
    Count(u64),
}

/// Times in files of points, in ns.
mod ns {
    use punctual_sched::Duration;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
        time.map(Duration::as_ns).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_ns))
    }
}

impl Metric {
    /// All metrics, in the order of the variants, which is that of columns.
    pub const ALL: [Metric; METRICS.len()] = {
        let mut all = [Metric::MissRatio; METRICS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = METRICS[at].0;
            at += 1;
        }
        all
    };

    /// Its name on the command line and in Python.
    pub const fn name(self) -> &'static str {
        METRICS[self as usize].1
    }

    /// What it is, in a line.
    pub const fn summary(self) -> &'static str {
        METRICS[self as usize].2
    }

    /// The name of its column in CSV, with the unit.
    pub fn column(self) -> String {
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

    /// Is it the analysis that tells it, not a simulation?
    pub fn is_analysed(self) -> bool {
        Analysed::default().value(self).is_some()
    }

    /// Its value in `results`, of this many runs of which so many missed nothing.
    pub fn of(self, results: &Results, without_miss: u64) -> Value {
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
        match self {
            // Without pools there are no deadlines.
            Metric::NoMiss if results.pools.is_empty() => Value::Share(0, 0),
            Metric::NoMiss => Value::Share(without_miss, results.runs.into()),
            _ => self.value(&jobs, &results.processors, counts),
        }
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
            Metric::NoMiss
            | Metric::Guaranteed
            | Metric::Refuted
            | Metric::Schedulable
            | Metric::WeightedSchedulable => Value::Share(0, 0),
        }
    }
}

impl Value {
    /// For people.
    pub fn show(self) -> String {
        match self {
            Value::Share(part, whole) => fmt_share(part, whole),
            Value::Time(time) => time.map_or_else(|| "-".into(), fmt_duration),
            Value::Count(n) => fmt_count(n),
        }
    }

    /// As a whole number in the unit of [`Metric::column`], shares rounded to nearest; `None` when there is
    /// nothing to measure.
    pub fn exact(self) -> Option<u64> {
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
    fn metrics_are_in_the_order_of_their_variants() {
        assert!(Metric::ALL.iter().enumerate().all(|(at, metric)| *metric as usize == at));
    }

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
