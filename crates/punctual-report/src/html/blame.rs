//! Why jobs were late: a stacked bar of causes for each of the worst tasks, and the ten worst jobs.

use maud::{Markup, html};
use punctual_model::Results;
use punctual_model::results::{BlameSum, Cause, JobBlame, TaskBlame, TaskResult};

use super::markup::{Cell, Section, Table};
use super::page::Page;
use super::processors::{Heads, Part, Stack, stacked};
use super::verdict::{Tone, pill};
use crate::Column;
use crate::disturbance::{by_cause, cause};
use crate::format::{fmt_count, fmt_ns, fmt_share};
use crate::timeline::{Row, RowKind, Timeline};

/// How many tasks, and jobs, the section has.
const ROWS_MAX: usize = 10;
/// How many causes of a job are named; the results have all.
const CAUSES_MAX: usize = 4;

/// The section; none where no result has blame.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let tasks: Vec<Vec<(&TaskResult, &TaskBlame)>> =
        page.columns.iter().map(|column| worst_tasks(&column.results)).collect();
    // A cause has the same colour in all results.
    let causes = causes_of(tasks.iter().flatten());
    let columns = page.columns.iter().zip(&tasks).filter(|(_, tasks)| !tasks.is_empty());
    let bodies: Vec<Markup> =
        columns.map(|(column, tasks)| of_column(column, tasks, &causes, page)).collect();
    if bodies.is_empty() {
        return None;
    }
    let body = html! {
        p.note {
            "The response time of each job, split into what it did and what it waited for; the parts add up. \
             A task that missed deadlines is shown by its late jobs, another one by its slowest 1 %."
        }
        @for body in &bodies { (body) }
    };
    Some(Section::new("blame", "Why late", body))
}

fn of_column(
    column: &Column,
    tasks: &[(&TaskResult, &TaskBlame)],
    causes: &[Cause],
    page: &Page<'_>,
) -> Markup {
    let timeline = page.timeline.filter(|(label, _)| *label == column.label).map(|(_, timeline)| timeline);
    let heads = Heads {
        caption: &format!("Why late: {}", column.label),
        kind: "Task",
        bars: "Parts of the response time",
        figures: &["Jobs", "Response time, mean"],
    };
    let stacks: Vec<Stack> = stacks(tasks, causes);
    let show = |size, whole| format!("{} ({})", fmt_share(size, whole), fmt_ns(size));
    html! {
        @if page.columns.len() > 1 { h3 { (column.label) } }
        (stacked(&heads, &stacks, show))
        (worst_jobs(tasks, &column.label, timeline))
    }
}

/// Those that missed most, then those with the slowest jobs.
fn worst_tasks(results: &Results) -> Vec<(&TaskResult, &TaskBlame)> {
    let mut tasks: Vec<(&TaskResult, &TaskBlame)> =
        results.tasks.iter().filter_map(|task| Some((task, task.blame.as_ref()?))).collect();
    tasks.sort_by_key(|(task, blame)| {
        (std::cmp::Reverse(task.jobs.miss_ppm()), std::cmp::Reverse(blame.slowest.response_ns))
    });
    tasks.truncate(ROWS_MAX);
    tasks
}

/// The jobs shown for a task.
fn sum_of(blame: &TaskBlame) -> &BlameSum {
    if blame.late.jobs > 0 { &blame.late } else { &blame.slowest }
}

fn causes_of<'t>(tasks: impl Iterator<Item = &'t (&'t TaskResult, &'t TaskBlame)>) -> Vec<Cause> {
    let sums: Vec<&BlameSum> = tasks.map(|(_, blame)| sum_of(blame)).collect();
    Cause::ALL.into_iter().filter(|of| sums.iter().any(|sum| sum.time_ns(*of) > 0)).collect()
}

fn stacks(tasks: &[(&TaskResult, &TaskBlame)], causes: &[Cause]) -> Vec<Stack> {
    let stack = |(task, blame): &(&TaskResult, &TaskBlame)| {
        let sum = sum_of(blame);
        let which = if blame.late.jobs > 0 { "late" } else { "slowest" };
        let mean = sum.response_ns.checked_div(sum.jobs).unwrap_or(0);
        let parts = by_cause(sum).filter(|(of, _)| causes.contains(of));
        Stack {
            name: format!("{}/{}", task.parent, task.name),
            parts: parts.map(|(of, size)| Part { name: of.words().into(), size }).collect(),
            whole: sum.response_ns,
            figures: vec![format!("{} {which}", fmt_count(sum.jobs)), fmt_ns(mean)],
        }
    };
    tasks.iter().map(stack).collect()
}

fn worst_jobs(tasks: &[(&TaskResult, &TaskBlame)], label: &str, timeline: Option<&Timeline>) -> Table {
    let mut jobs: Vec<(&TaskResult, &JobBlame)> =
        tasks.iter().flat_map(|(task, blame)| blame.worst.iter().map(|job| (*task, job))).collect();
    jobs.sort_by_key(|(_, job)| (std::cmp::Reverse(job.missed), std::cmp::Reverse(job.response_ns)));
    let columns = ["Released", "Response time", "Deadline", "Why"];
    let mut table = Table::new(format!("The worst jobs: {label}"), "Job", &columns);
    for (task, job) in jobs.into_iter().take(ROWS_MAX) {
        let mut why: Vec<String> = job.causes.iter().take(CAUSES_MAX).map(cause).collect();
        if job.causes.len() > why.len() {
            let of_others =
                job.causes.iter().skip(CAUSES_MAX).fold(0u64, |sum, of| sum.saturating_add(of.time_ns));
            let others = job.causes.len() - CAUSES_MAX;
            let noun = if others == 1 { "other" } else { "others" };
            why.push(format!("{others} {noun} {}", fmt_ns(of_others)));
        }
        let cells = [
            Cell::number(released(task, job, timeline)),
            Cell::number(fmt_ns(job.response_ns)),
            Cell::text(if job.missed { pill(Tone::Bad, "missed") } else { pill(Tone::Good, "met") }),
            Cell::text(html! { div.sentence { (why.join(", ")) } }),
        ];
        table.row(format!("{}/{} #{}", task.parent, task.name, job.job), cells);
    }
    table
}

/// When a job was released: a link to it where the timeline shows it. The timeline is that of the first run.
fn released(task: &TaskResult, job: &JobBlame, timeline: Option<&Timeline>) -> Markup {
    let time = fmt_ns(job.release_ns);
    let end_ns = job.release_ns.saturating_add(job.response_ns);
    let is_row = |row: &&Row| {
        let group = row.group.strip_prefix("pool ").unwrap_or(&row.group);
        row.kind == RowKind::Task && group == task.parent && row.name == task.name
    };
    let is_within =
        |timeline: &&Timeline| job.run == 0 && job.release_ns >= timeline.from_ns && end_ns <= timeline.to_ns;
    let row = timeline.filter(is_within).and_then(|timeline| timeline.rows.iter().find(is_row));
    html! {
        @if let Some(row) = row {
            a href="#timeline" data-task={ (row.group) "/" (row.name) } data-from-ns=(job.release_ns)
                data-to-ns=(end_ns) title="Show it in the timeline" { (time) }
        } @else { (time) }
    }
}
