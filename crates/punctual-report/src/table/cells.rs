//! What stands in cells: numbers of results as texts.

use punctual_model::results::{JobStats, ProcessorResult, TaskResult};
use punctual_model::{Histogram, Results};
use punctual_sched::Duration;

use super::layout::{Value, blocks};
use crate::format::{fmt_count, fmt_duration, fmt_ns, fmt_rate, fmt_share};

pub(super) fn miss_cell(jobs: &JobStats) -> Value {
    Value { text: fmt_share(jobs.missed, jobs.due), bad: jobs.missed > 0 }
}

/// A property of a distribution, `-` when that is empty.
pub(super) fn latency(histogram: &Histogram, value: Duration) -> String {
    if histogram.count() == 0 { "-".into() } else { fmt_duration(value) }
}

pub(super) fn counts<const N: usize>(counts: [impl Into<Option<u64>>; N]) -> [Value; N] {
    counts.map(|count| Value::plain(count.into().map_or_else(|| "-".into(), fmt_count)))
}

pub(super) fn cpu(results: &Results, ns: u64) -> [Value; 2] {
    [fmt_ns(ns), fmt_share(ns, time(results).as_ns())].map(Value::plain)
}

/// A count and how many that are in a second, `-` where it was not measured.
pub(super) fn count_and_rate(count: impl Into<Option<u64>>, time: Duration) -> [Value; 2] {
    let shown = count.into().map(|count| [fmt_count(count), fmt_rate(count, time)]);
    shown.unwrap_or_else(|| ["-".into(), "-".into()]).map(Value::plain)
}

/// A row per distribution that is not empty.
pub(super) fn histograms<'a>(
    what: &str,
    of: impl Iterator<Item = (String, &'a Histogram)>,
    colour: bool,
) -> String {
    let row = |(name, histogram): (String, &Histogram)| {
        let quantile = |ppm| histogram.quantile_ppm(ppm);
        let durations = [
            histogram.min(),
            histogram.mean(),
            histogram.stddev(),
            quantile(500_000),
            quantile(990_000),
            quantile(999_000),
            histogram.max(),
        ];
        let mut row = vec![Value::plain(fmt_count(histogram.count()))];
        row.extend(durations.map(|duration| Value::plain(fmt_duration(duration))));
        (name, row)
    };
    let rows: Vec<_> = of.filter(|(_, histogram)| histogram.count() > 0).map(row).collect();
    blocks(what, &["count", "min", "mean", "sd", "p50", "p99", "p99.9", "max"], &rows, colour)
}

/// Length of all runs together.
pub(super) fn time(results: &Results) -> Duration {
    Duration::from_ns(results.duration_ns) * u64::from(results.runs)
}

pub(super) fn sum(results: &Results, of: fn(&ProcessorResult) -> u64) -> u64 {
    total(results.processors.iter().map(of))
}

pub(super) fn processor_time(results: &Results) -> u64 {
    sum(results, |p| total([p.busy_ns, p.idle_ns, p.overhead_ns]))
}

/// The sum; numbers from a file may exceed what a run can count.
pub(super) fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Tasks that belong to no domain.
pub(super) fn pool_tasks(results: &Results) -> impl Iterator<Item = &TaskResult> {
    results.tasks.iter().filter(|task| !results.domains.iter().any(|domain| domain.name == task.parent))
}

pub(super) fn task_name(task: &TaskResult) -> String {
    format!("{}/{}", task.parent, task.name)
}
