//! vCPUs that wait for the others of their domain: what they did, and what they spun away.

use punctual_model::Results;
use punctual_model::results::{SmpRounds, TaskResult};
use punctual_sched::Duration;

use super::cells::{counts, task_name, time};
use super::layout::{Row, Value, blocks};
use crate::Column;
use crate::format::{fmt_rate, fmt_share};

/// A row for each vCPU that has rounds; nothing without any.
pub(super) fn rounds(results: &Results, colour: bool) -> String {
    let columns = ["rounds", "rounds/s", "rounds/s of cpu", "cpu", "spinning"];
    let row = |task: &TaskResult| {
        let SmpRounds { rounds, spun_ns } = *task.smp.as_deref()?;
        let mut row = Vec::from(counts([rounds]));
        let whole = time(results);
        let rates = [whole, Duration::from_ns(task.cpu_time_ns)];
        row.extend(rates.map(|time| Value::plain(fmt_rate(rounds, time))));
        let shares = [(task.cpu_time_ns, whole.as_ns()), (spun_ns, task.cpu_time_ns)];
        row.extend(shares.map(|(part, whole)| Value::plain(fmt_share(part, whole))));
        Some((task_name(task), row))
    };
    let rows: Vec<Row> = results.tasks.iter().filter_map(row).collect();
    if rows.is_empty() { String::new() } else { blocks("vCPU", &columns, &rows, colour) }
}

/// For each domain with rounds a row of several results: rounds a second of its processor time.
pub(super) fn rates(columns: &[Column], names: &[String]) -> Vec<Row> {
    let of = |results: &Results, name: &str| {
        let mut of_domain = results.tasks.iter().filter(|task| task.parent == name).peekable();
        of_domain.peek()?;
        of_domain.try_fold((0_u64, 0_u64), |(rounds, time), task| {
            Some((rounds.saturating_add(task.smp.as_deref()?.rounds), time.saturating_add(task.cpu_time_ns)))
        })
    };
    let cell = |column: &Column, name: &str| {
        let rate = of(&column.results, name).map(|(rounds, time)| fmt_rate(rounds, Duration::from_ns(time)));
        Value::plain(rate.unwrap_or_else(|| "-".into()))
    };
    let has = |name: &&String| columns.iter().any(|column| of(&column.results, name).is_some());
    let row = |name: &String| {
        (format!("rounds/s of cpu, {name}"), columns.iter().map(|column| cell(column, name)).collect())
    };
    names.iter().filter(has).map(row).collect()
}
