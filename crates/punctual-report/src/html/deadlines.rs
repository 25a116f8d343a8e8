//! Response times against deadlines and bounds, and miss ratios as bars.

use maud::{Markup, html};
use punctual_model::guarantees::Verdict;
use punctual_model::results::JobStats;
use punctual_model::{Guarantees, Results};

use super::markup::{Cell, Section, Table, details, percent};
use super::page::Page;
use super::processors::share_bar;
use super::verdict::chain_name;
use crate::Column;
use crate::format::{fmt_count, fmt_duration, fmt_ns};

/// The scale ends at most here, in per mille of the deadline; what is longer gets an arrow.
const SCALE_MAX: u64 = 2500;

/// The section; nothing when no job was due anywhere.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let due = |column: &Column| column.results.tasks.iter().any(|task| task.jobs.due > 0);
    if !page.columns.iter().any(due) {
        return None;
    }
    let body = html! {
        @if let Some(guarantees) = page.guarantees { (responses(page.columns, guarantees)) }
        h3 { "Miss ratios" }
        @match page.columns {
            [one] => (misses_by_task(&one.results)),
            several => (misses_side_by_side(several)),
        }
    };
    Some(Section::new("deadlines", "Deadlines", body))
}

/// Per mille of the deadline.
fn of_deadline(ns: u64, deadline_ns: u64) -> u64 {
    (u128::from(ns) * 1000 / u128::from(deadline_ns.max(1))).min(u64::MAX.into()) as u64
}

fn responses(columns: &[Column], guarantees: &Guarantees) -> Markup {
    let tables = columns.iter().map(|column| (column, response_table(column, guarantees)));
    html! {
        h3 { "Response times against deadlines" }
        p.note {
            "Each row is scaled to the task's own deadline. The line reaches from the shortest to the \
             longest response measured, the box from the median to the 99th percentile; the diamond is the \
             bound that the analysis guarantees. Nothing should lie beyond the deadline, and no response \
             beyond its diamond."
        }
        @for (column, table) in tables.filter(|(_, table)| !table.is_empty()) {
            @if columns.len() == 1 {
                (table)
            } @else {
                (details(&format!("Response times of {}", column.label), table))
            }
        }
    }
}

fn response_table(column: &Column, guarantees: &Guarantees) -> Table {
    let Column { label, results } = column;
    let columns = ["Response", "p50", "p99", "Longest", "Bound", "Deadline"];
    let mut table = Table::new(format!("Response times against deadlines: {label}"), "Task", &columns);
    let known: Vec<_> = results
        .tasks
        .iter()
        .filter(|task| task.jobs.response.count() > 0)
        .filter_map(|task| Some((task, guarantees.task(&task.parent, &task.name)?)))
        .collect();
    let bound = |verdict: &Verdict| match verdict {
        Verdict::Guaranteed { bound_ns, .. } => Some(*bound_ns),
        _ => None,
    };
    let reach = known.iter().map(|(task, of)| {
        let most = task.jobs.response.max().as_ns().max(bound(&of.verdict).unwrap_or(0));
        of_deadline(most, of.deadline_ns)
    });
    let scale = reach.max().unwrap_or(0).clamp(1000, SCALE_MAX) * 104 / 100;
    for (task, of) in known {
        let response = &task.jobs.response;
        let bound_ns = bound(&of.verdict);
        let cells = [
            Cell::text(range(&task.jobs, bound_ns, of.deadline_ns, scale)),
            Cell::number(fmt_duration(response.quantile_ppm(500_000))),
            Cell::number(fmt_duration(response.quantile_ppm(990_000))),
            Cell::number(fmt_duration(response.max())),
            match (&of.verdict, bound_ns) {
                (_, Some(ns)) => Cell::number(fmt_ns(ns)),
                (Verdict::NotGuaranteed { .. }, _) => Cell::number("refuted"),
                _ => Cell::number("undecided"),
            },
            Cell::number(fmt_ns(of.deadline_ns)),
        ];
        table.row(format!("{}/{}", task.parent, task.name), cells);
    }
    table
}

/// The picture of one row.
fn range(jobs: &JobStats, bound_ns: Option<u64>, deadline_ns: u64, scale: u64) -> Markup {
    let at = |ns: u64| of_deadline(ns, deadline_ns).min(scale);
    let response = &jobs.response;
    let [least, p50, p99, most] =
        [response.min(), response.quantile_ppm(500_000), response.quantile_ppm(990_000), response.max()]
            .map(|value| at(value.as_ns()));
    let span = |class: &str, from: u64, to: u64| {
        let (left, width) = (percent(from, scale), percent(to - from, scale));
        html! { i class=(class) style={ "left:" (left) "%;width:" (width) "%" } {} }
    };
    let point = |class: &str, at: u64| {
        html! { i class=(class) style={ "left:" (percent(at, scale)) "%" } {} }
    };
    let is_beyond = of_deadline(response.max().as_ns(), deadline_ns) > scale;
    html! {
        div.range.late[jobs.missed > 0] aria-hidden="true" {
            (point("due", 1000))
            (span("whisker", least, most))
            (span("box", p50, p99.max(p50)))
            (point("end", most))
            @if let Some(bound_ns) = bound_ns { (point("bound", at(bound_ns))) }
            @if is_beyond { b { "»" } }
        }
    }
}

/// The share of jobs that missed.
fn bar(missed: u64, due: u64) -> Markup {
    match due {
        0 => html! { "no deadline" },
        _ => share_bar(if missed > 0 { "bar bad" } else { "bar" }, missed, due),
    }
}

fn misses_by_task(results: &Results) -> Markup {
    let tasks = results.tasks.iter().map(|task| (format!("{}/{}", task.parent, task.name), &task.jobs));
    let chains = results.chains.iter().map(|chain| (chain_name(chain), &chain.jobs));
    let judged: Vec<(String, &JobStats)> = tasks.chain(chains).filter(|(_, jobs)| jobs.due > 0).collect();
    let late: Vec<_> = judged.iter().filter(|(_, jobs)| jobs.missed > 0).collect();
    let what = if results.chains.is_empty() { "tasks" } else { "tasks and chains" };
    if late.is_empty() {
        return html! { p { "None of the " (judged.len()) " " (what) " with a job due missed a deadline." } };
    }
    let mut table = Table::new(
        "Miss ratios by task",
        "Task",
        &["Share of jobs that missed", "Missed", "Due", "Latest by"],
    );
    for (name, jobs) in &late {
        let cells = [
            Cell::text(bar(jobs.missed, jobs.due)),
            Cell::number(fmt_count(jobs.missed)),
            Cell::number(fmt_count(jobs.due)),
            Cell::number(fmt_duration(jobs.tardiness.max())),
        ];
        table.row(name, cells);
    }
    let rest = judged.len() - late.len();
    html! {
        (table)
        @if rest > 0 { p.note { "The other " (rest) " of " (judged.len()) " " (what) " missed none." } }
    }
}

/// Jobs due and missed of a domain, a pool's own tasks or a chain.
fn counts(results: &Results, name: &str) -> (u64, u64) {
    let tasks = results.tasks.iter().filter(|task| task.parent == name).map(|task| &task.jobs);
    let chains = results.chains.iter().filter(|chain| chain_name(chain) == name).map(|chain| &chain.jobs);
    tasks
        .chain(chains)
        .fold((0u64, 0u64), |sum, jobs| (sum.0.saturating_add(jobs.missed), sum.1.saturating_add(jobs.due)))
}

fn misses_side_by_side(columns: &[Column]) -> Table {
    let mut table = Table::new("Miss ratios by domain and result", "Domain", &[]);
    columns.iter().for_each(|column| table.column(&column.label));
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: String| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    columns.iter().flat_map(|column| &column.results.tasks).for_each(|task| add(task.parent.clone()));
    columns.iter().flat_map(|column| &column.results.chains).for_each(|chain| add(chain_name(chain)));
    for name in names {
        let counts = columns.iter().map(|column| counts(&column.results, &name));
        let cells: Vec<Cell> = counts.map(|(missed, due)| Cell::text(bar(missed, due))).collect();
        table.row(name, cells);
    }
    table.upright(columns.len())
}
