//! Results as terminal tables, at most [`WIDTH`] columns wide, or as wide as [`set_width`] says.
//!
//! Every view returns text that ends in a newline. Colour is the caller's decision (`colour`): this module
//! does not look at the terminal.

mod blame;
mod cells;
mod flows;
mod layout;
mod smp;

use punctual_model::results::{
    ChangeResult, DomainResult, JobStats, PoolResult, ProcessorResult, TaskResult, UnitCounts, VcpuResult,
};
use punctual_model::{Histogram, Results};

use crate::Column;
use crate::disturbance;
use crate::format::{fmt_count, fmt_ns, fmt_rate, fmt_share};
use crate::headline;
use cells::{
    count_and_rate, counts, cpu, histograms, latency, miss_cell, pool_tasks, processor_time, sum, task_name,
    time, total,
};
use layout::{BOLD, GREEN, RED, Row, Value, blocks, lines, section};

pub use blame::{blame, deliveries};
pub use layout::{WIDTH, set_width, table_width, text_width};

/// How many of the worst tasks or domains a headline names.
const NAMED: usize = 4;

/// The short view: who missed deadlines, worst first, and one row per domain.
pub fn summary(results: &Results, colour: bool) -> String {
    let mut text = title(results, colour);
    let parts = [
        domains(results, colour),
        blame::host_processors(results, colour),
        smp::rounds(results, colour),
        flows::chains(results, colour),
        flows::flows(results, colour),
        flows::congestion(results, colour),
        flows::segments(results, colour),
        flows::parts(results, colour),
        flows::sockets(results, colour),
    ];
    for part in parts {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(&part);
        }
    }
    text
}

/// The long view: every metric of every task, vCPU, domain, processor and pool.
pub fn detail(results: &Results, colour: bool) -> String {
    let sections = [
        title(results, colour),
        section("Tasks", &task_table(results, colour), colour),
        section("Response time", &latency_table(results, |jobs| &jobs.response, colour), colour),
        section("Tardiness", &latency_table(results, |jobs| &jobs.tardiness, colour), colour),
        section("Start latency", &latency_table(results, |jobs| &jobs.start_latency, colour), colour),
        section("Domains", &domain_detail(results, colour), colour),
        section("vCPUs", &vcpu_table(results, colour), colour),
        section("Wake-up latency of vCPUs", &wake_table(results, colour), colour),
        section("Processors", &processor_table(results, colour), colour),
        section("Processors of the host", &blame::host_processors(results, colour), colour),
        blame::deliveries(results, colour),
        blame::blame(results, colour),
        section("vCPUs that wait for each other", &smp::rounds(results, colour), colour),
        section("Pools", &pool_table(results, colour), colour),
        section("Chains", &flows::chains(results, colour), colour),
        section("Flows", &flows::flows(results, colour), colour),
        section("Congestion control", &flows::congestion(results, colour), colour),
        section("Latency of flows", &flows::latencies(results, colour), colour),
        section("Where the time of packets went", &flows::segment_detail(results, colour), colour),
        section("Networks", &flows::networks(results, colour), colour),
        section("Sockets of guests", &flows::sockets(results, colour), colour),
    ];
    sections.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Several results of the same domains, one column each: usually one host under several policies. Below the
/// domains stands what the scheduling cost, below the table a verdict per column.
pub fn side_by_side(columns: &[Column], colour: bool) -> String {
    let names = domain_names(columns);
    let mut rows = miss_rows(columns, &names);
    rows.push((String::new(), Vec::new()));
    // Plain Linux counts none of these.
    let rate = |r: &Results, of: fn(&ProcessorResult) -> Option<u64>| {
        let add = |sum: u64, p: &ProcessorResult| Some(sum.saturating_add(of(p)?));
        r.processors.iter().try_fold(0, add).map_or_else(|| "-".into(), |sum| fmt_rate(sum, time(r)))
    };
    let overhead = |r: &Results| {
        if r.has_policy() { fmt_share(sum(r, |p| p.overhead_ns), processor_time(r)) } else { "-".into() }
    };
    let mut cost = |name: &str, of: &dyn Fn(&Results) -> String| {
        rows.push((name.into(), columns.iter().map(|column| Value::plain(of(&column.results))).collect()));
    };
    cost("overhead", &overhead);
    cost("context switches", &|r| rate(r, |p| p.context_switches));
    cost("decisions", &|r| rate(r, |p| p.decisions));
    rows.extend(smp::rates(columns, &names));
    let labels: Vec<&str> = columns.iter().map(|column| column.label.as_str()).collect();
    let mut text = blocks("misses", &labels, &rows, colour);
    text.push('\n');
    text.push_str(&verdicts(columns, &names, colour));
    text
}

/// Only the misses of [`side_by_side`].
pub fn miss_columns(columns: &[Column], colour: bool) -> String {
    let labels: Vec<&str> = columns.iter().map(|column| column.label.as_str()).collect();
    blocks("misses", &labels, &miss_rows(columns, &domain_names(columns)), colour)
}

fn miss_rows(columns: &[Column], names: &[String]) -> Vec<Row> {
    let cell = |column: &Column, name: &str| match jobs_by_name(&column.results, name) {
        Some(jobs) => miss_cell(jobs),
        None => Value::plain("-"),
    };
    let row = |name: &String| (name.clone(), columns.iter().map(|column| cell(column, name)).collect());
    names.iter().map(row).collect()
}

/// A grid of texts under a title: one row per row label, cut into blocks of columns where it is too wide.
/// Cells that are missing stay empty.
pub fn matrix(
    title: &str,
    row_labels: &[&str],
    column_labels: &[&str],
    cells: &[Vec<String>],
    colour: bool,
) -> String {
    let rows: Vec<Row> = row_labels
        .iter()
        .enumerate()
        .map(|(i, label)| {
            let cell = |column| cells.get(i).and_then(|row| row.get(column)).map_or("", String::as_str);
            ((*label).to_owned(), (0..column_labels.len()).map(|column| Value::plain(cell(column))).collect())
        })
        .collect();
    section(title, &blocks("", column_labels, &rows, colour), colour)
}

/// Which of several results met every deadline, in words.
pub fn verdict(columns: &[Column]) -> String {
    let of = columns.iter().map(|column| (column.label.as_str(), &column.results));
    paragraph(&headline::headline(of).text())
}

/// A text as lines of at most [`WIDTH`] columns.
pub fn paragraph(text: &str) -> String {
    lines(text, "", false)
}

fn title(results: &Results, colour: bool) -> String {
    let runs = if results.runs == 1 {
        String::new()
    } else {
        format!("{} runs of ", fmt_count(results.runs.into()))
    };
    let policies: Vec<_> = results.pools.iter().map(|pool| pool.policy.as_str()).collect();
    let title = format!(
        "{}{} ({runs}{}, seed {})",
        results.host,
        if policies.is_empty() { String::new() } else { format!(" under {}", policies.join(" + ")) },
        fmt_ns(results.duration_ns),
        results.seed
    );
    let change = |change: &ChangeResult| {
        let text = format!("from {} on, {} ({})", fmt_ns(change.at_ns), change.change, change.name);
        lines(&text, "", colour)
    };
    lines(&title, BOLD, colour)
        + &results.changes.iter().map(change).collect::<String>()
        + &disturbances("", results, colour)
        + &misses(results, colour)
        + &headline::packets(results)
            .map_or_else(String::new, |(text, met)| lines(&text, if met { GREEN } else { RED }, colour))
        + &unmeasured("", results, colour)
}

/// Whether the machine disturbed the run: a line for each sentence.
fn disturbances(label: &str, results: &Results, colour: bool) -> String {
    let sentences = disturbance::sentences(results);
    sentences.iter().map(|sentence| lines(&format!("{label}{sentence}"), BOLD, colour)).collect()
}

/// The domains whose jobs are not measured, with the reason: a line each.
fn unmeasured(label: &str, results: &Results, colour: bool) -> String {
    let verdict = |domain: &DomainResult| {
        let verdict = domain.verdict.as_ref()?;
        let (name, words, reason) = (&domain.name, verdict.fault.words(), &verdict.reason);
        let text = format!("{label}{name}: {words}: {reason}. Jobs that it did not report count as missed.");
        Some(lines(&text, RED, colour))
    };
    results.domains.iter().filter_map(verdict).collect()
}

/// Who missed, worst first.
fn misses(results: &Results, colour: bool) -> String {
    let [due, missed] = [|jobs: &JobStats| jobs.due, |jobs: &JobStats| jobs.missed]
        .map(|of| total(results.tasks.iter().map(|t| of(&t.jobs))));
    if due == 0 {
        // A host without tasks answers requests; its flows show them.
        let has_none = results.tasks.is_empty() && !results.flows.is_empty();
        return if has_none { String::new() } else { "No job was due.\n".into() };
    }
    if missed == 0 {
        // Packets have a sentence of their own.
        let lead = match headline::packets(results) {
            Some((_, false)) => "Every job met its deadline",
            _ => "Every deadline was met",
        };
        return lines(&format!("{lead}: {} jobs due, none missed.", fmt_count(due)), GREEN, colour);
    }
    let late = worst(results.tasks.iter().map(|task| (task_name(task), &task.jobs)).collect());
    let count = format!(
        "{} of {} tasks missed deadlines, {} of {} jobs ({}).",
        late.len(),
        results.tasks.iter().filter(|task| task.jobs.due > 0).count(),
        fmt_count(missed),
        fmt_count(due),
        fmt_share(missed, due)
    );
    lines(&count, RED, colour) + &lines(&format!("Worst: {}.", name_some(&late)), "", colour)
}

/// Those that missed, by falling miss ratio; equal ones keep their order.
fn worst(mut jobs: Vec<(String, &JobStats)>) -> Vec<(String, &JobStats)> {
    jobs.retain(|(_, jobs)| jobs.missed > 0);
    jobs.sort_by_key(|(_, jobs)| std::cmp::Reverse(jobs.miss_ppm()));
    jobs
}

fn name_some(worst: &[(String, &JobStats)]) -> String {
    let some =
        worst.iter().take(NAMED).map(|(name, jobs)| format!("{name} {}", fmt_share(jobs.missed, jobs.due)));
    let mut text = some.collect::<Vec<_>>().join(", ");
    if worst.len() > NAMED {
        text.push_str(&format!(" and {} more", worst.len() - NAMED));
    }
    text
}

fn verdicts(columns: &[Column], names: &[String], colour: bool) -> String {
    let width = columns.iter().map(|column| column.label.chars().count()).max().unwrap_or(0);
    let line = |Column { label, results }: &Column| {
        let jobs = names.iter().filter_map(|name| Some((name.clone(), jobs_by_name(results, name)?)));
        let late = worst(jobs.collect());
        let (verdict, style) = match late.len() {
            0 => match headline::packets(results) {
                Some((text, false)) => (text, RED),
                _ => ("every deadline met".into(), GREEN),
            },
            _ => (format!("misses: {}", name_some(&late)), RED),
        };
        let line = lines(&format!("{label:width$}  {verdict}"), style, colour);
        let indent = format!("{label:width$}  ");
        line + &disturbances(&indent, results, colour) + &unmeasured(&indent, results, colour)
    };
    columns.iter().map(line).collect()
}

fn domains(results: &Results, colour: bool) -> String {
    let columns = ["jobs due", "missed", "miss", "p50", "p99", "max", "cpu", "exhaustions"];
    let of_domain = |domain: &DomainResult| {
        let [exhaustions] = counts([domain.exhaustions]);
        (domain.name.clone(), domain_row(results, &domain.jobs, domain.cpu_time_ns, exhaustions))
    };
    let of_task = |task: &TaskResult| {
        (task_name(task), domain_row(results, &task.jobs, task.cpu_time_ns, Value::plain("-")))
    };
    let rows: Vec<_> =
        results.domains.iter().map(of_domain).chain(pool_tasks(results).map(of_task)).collect();
    blocks("domain", &columns, &rows, colour)
}

fn domain_row(results: &Results, jobs: &JobStats, cpu_time_ns: u64, exhaustions: Value) -> Vec<Value> {
    let quantile = |ppm| latency(&jobs.response, jobs.response.quantile_ppm(ppm));
    let mut row = Vec::from(counts([jobs.due, jobs.missed]));
    row.push(miss_cell(jobs));
    row.extend(
        [quantile(500_000), quantile(990_000), latency(&jobs.response, jobs.response.max())]
            .map(Value::plain),
    );
    row.extend([Value::plain(fmt_share(cpu_time_ns, time(results).as_ns())), exhaustions]);
    row
}

fn task_table(results: &Results, colour: bool) -> String {
    let columns =
        ["released", "finished", "due", "missed", "miss", "cpu time", "cpu", "switches", "migrated"];
    let row = |task: &TaskResult| {
        let jobs = &task.jobs;
        let mut row = Vec::from(counts([jobs.released, jobs.completed, jobs.due, jobs.missed]));
        row.push(miss_cell(jobs));
        row.extend(cpu(results, task.cpu_time_ns));
        row.extend(counts([task.context_switches, task.migrations]));
        (task_name(task), row)
    };
    blocks("task", &columns, &results.tasks.iter().map(row).collect::<Vec<_>>(), colour)
}

/// One of the distributions of all tasks that have one.
fn latency_table(results: &Results, of: fn(&JobStats) -> &Histogram, colour: bool) -> String {
    histograms("task", results.tasks.iter().map(|task| (task_name(task), of(&task.jobs))), colour)
}

fn wake_table(results: &Results, colour: bool) -> String {
    histograms("vCPU", results.vcpus.iter().map(|vcpu| (vcpu.name.clone(), &vcpu.wake_latency)), colour)
}

fn domain_detail(results: &Results, colour: bool) -> String {
    let columns =
        ["due", "missed", "miss", "cpu", "decisions", "switches", "migrated", "exhausted", "refilled"];
    let row = |domain: &DomainResult| {
        let DomainResult {
            jobs, decisions, context_switches, migrations, exhaustions, replenishments, ..
        } = domain;
        let mut row = Vec::from(counts([jobs.due, jobs.missed]));
        row.push(miss_cell(jobs));
        row.push(Value::plain(fmt_share(domain.cpu_time_ns, time(results).as_ns())));
        row.extend(counts([*decisions, *context_switches, *migrations, *exhaustions, *replenishments]));
        (domain.name.clone(), row)
    };
    blocks("domain", &columns, &results.domains.iter().map(row).collect::<Vec<_>>(), colour)
}

fn vcpu_table(results: &Results, colour: bool) -> String {
    let columns =
        ["cpu time", "cpu", "idled", "wakes", "sleeps", "exhausted", "refilled", "switches", "migrated"];
    let row = |vcpu: &VcpuResult| {
        let mut row = Vec::from(cpu(results, vcpu.cpu_time_ns));
        let of = |count: fn(UnitCounts) -> u64| vcpu.counts.map(count);
        let idled_away = of(|counts| counts.idled_away_ns).map_or_else(|| "-".into(), fmt_ns);
        row.push(Value::plain(idled_away));
        row.extend(counts([of(|counts| counts.wakes), of(|counts| counts.sleeps)]));
        row.extend(counts([of(|counts| counts.exhaustions), of(|counts| counts.replenishments)]));
        row.extend(counts([vcpu.context_switches, vcpu.migrations]));
        (vcpu.name.clone(), row)
    };
    blocks("vCPU", &columns, &results.vcpus.iter().map(row).collect::<Vec<_>>(), colour)
}

fn processor_table(results: &Results, colour: bool) -> String {
    let columns = ["pool", "busy", "idle", "overhead", "decisions", "decisions/s", "switches", "switches/s"];
    let row = |processor: &ProcessorResult| {
        let ProcessorResult { busy_ns, idle_ns, overhead_ns, decisions, context_switches, .. } = processor;
        let whole = total([*busy_ns, *idle_ns, *overhead_ns]);
        let mut row = vec![Value::plain(processor.pool.as_deref().unwrap_or("-"))];
        row.extend([*busy_ns, *idle_ns, *overhead_ns].map(|part| Value::plain(fmt_share(part, whole))));
        row.extend(count_and_rate(*decisions, time(results)));
        row.extend(count_and_rate(*context_switches, time(results)));
        (format!("cpu {}", processor.processor), row)
    };
    blocks("processor", &columns, &results.processors.iter().map(row).collect::<Vec<_>>(), colour)
}

fn pool_table(results: &Results, colour: bool) -> String {
    let columns =
        ["cpus", "miss", "busy", "overhead", "decisions", "switches", "migrated", "exhausted", "refilled"];
    let row = |pool: &PoolResult| {
        let PoolResult { decisions, context_switches, migrations, exhaustions, replenishments, .. } = pool;
        let whole = total([pool.busy_ns, pool.idle_ns, pool.overhead_ns]);
        let mut row = vec![Value::plain(pool.processors.to_string()), miss_cell(&pool.jobs)];
        row.extend([pool.busy_ns, pool.overhead_ns].map(|part| Value::plain(fmt_share(part, whole))));
        row.extend(counts([*decisions, *context_switches, *migrations, *exhaustions, *replenishments]));
        (format!("{} ({})", pool.name, pool.policy), row)
    };
    blocks("pool", &columns, &results.pools.iter().map(row).collect::<Vec<_>>(), colour)
}

/// Domains and tasks without one, of all columns, in the order of their first appearance.
fn domain_names(columns: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Column { results, .. } in columns {
        let of_domains = results.domains.iter().map(|domain| domain.name.clone());
        for name in of_domains.chain(pool_tasks(results).map(task_name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn jobs_by_name<'a>(results: &'a Results, name: &str) -> Option<&'a JobStats> {
    let domain = results.domains.iter().find(|domain| domain.name == name).map(|domain| &domain.jobs);
    domain.or_else(|| pool_tasks(results).find(|task| task_name(task) == name).map(|task| &task.jobs))
}

#[cfg(test)]
pub(crate) mod tests;
