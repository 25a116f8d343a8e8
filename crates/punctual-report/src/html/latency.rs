//! Distributions: cumulative, by percentile, and in numbers.

use maud::{Markup, html};
use punctual_model::Histogram;
use punctual_model::results::TaskResult;

use super::markup::{Cell, Section, Table, details};
use super::page::Page;
use super::plot::{self, Line, Quantity};
use crate::Column;
use crate::format::{fmt_count, fmt_duration, fmt_ns};

/// More lines than this are not legible in one plot.
const LINES_MAX: usize = 8;
/// More plots than this are not looked at; the tables have everything.
const FIGURES_MAX: usize = 24;
/// More tasks than this are counted instead of named.
const NAMED_MAX: usize = 4;

/// The section; nothing when no job finished.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let groups = groups(page.columns);
    if !page.columns.iter().flat_map(|column| &column.results.tasks).any(has_finished) {
        return None;
    }
    let figure_of = |group: &Group<'_>| match page.columns {
        [one] => by_task(one, group.domain),
        several => by_column(several, group, &groups),
    };
    let body = html! {
        p.note {
            "The first plot has the share of jobs whose response time is at most the value below. The second \
             has the response time by percentile, on a scale that gives every further nine the same room, so \
             that the tail shows. Markers stand at 50 %, 90 %, 99 % and 99.9 %. The straight stroke is the \
             deadline. A curve with jobs that missed it and never finished stops below 100 %."
        }
        @for group in groups.iter().take(FIGURES_MAX) { (figure_of(group)) }
        @if groups.len() > FIGURES_MAX {
            p.note {
                "The first " (FIGURES_MAX) " of " (groups.len()) " figures; the tables below have all."
            }
        }
        @if let [one] = page.columns { (wake_ups(one)) }
    };
    Some(Section::new("latency", "Response times", body))
}

fn has_finished(task: &TaskResult) -> bool {
    task.jobs.response.count() > 0
}

/// Tasks whose responses are shown together.
#[derive(PartialEq)]
struct Group<'a> {
    domain: &'a str,
    /// Of several results, only tasks with the same deadline are one curve.
    deadline_ns: Option<u64>,
}

impl Group<'_> {
    fn has(&self, task: &TaskResult) -> bool {
        task.parent == self.domain && task.deadline_ns == self.deadline_ns
    }
}

/// By domain; of several results by domain and deadline.
fn groups(columns: &[Column]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let tasks = columns.iter().flat_map(|column| &column.results.tasks);
    for task in tasks.filter(|task| has_finished(task) || task.jobs.unfinished() > 0) {
        let deadline_ns = task.deadline_ns.filter(|_| columns.len() > 1);
        let group = Group { domain: &task.parent, deadline_ns };
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn by_task(column: &Column, domain: &str) -> Markup {
    let tasks = column.results.tasks.iter().filter(|task| task.parent == domain);
    let is_there = |task: &&TaskResult| has_finished(task) || task.jobs.unfinished() > 0;
    let lines = tasks.filter(is_there).enumerate().map(|(style, task)| Line {
        deadline_ns: task.deadline_ns,
        unfinished: task.jobs.unfinished(),
        ..Line::new(&task.name, style, &task.jobs.response)
    });
    legible(Some(domain), ["task", "tasks"], plot::RESPONSE, lines.collect())
}

/// A figure of as many lines as are legible: those with the longest tail, in their own order.
pub(crate) fn legible(
    name: Option<&str>,
    [one, many]: [&str; 2],
    of: Quantity,
    mut lines: Vec<Line<'_>>,
) -> Markup {
    let all = lines.len();
    let mut note = String::new();
    if all > LINES_MAX {
        let tail = |line: &Line<'_>| (line.unfinished, line.of.quantile_ppm(990_000));
        let mut tails: Vec<_> = lines.iter().map(tail).collect();
        tails.sort_unstable();
        let least = tails[all - LINES_MAX];
        lines.retain(|line| tail(line) >= least);
        lines.truncate(LINES_MAX);
        note = format!("The {LINES_MAX} of {all} {many} with the longest tail.");
    }
    figure(name, one, of, &note, &lines)
}

/// A line for each result. Its colour is that of its place on the page, whether or not others are here too.
fn by_column(columns: &[Column], group: &Group<'_>, groups: &[Group<'_>]) -> Markup {
    let merged: Vec<(Histogram, u64)> = columns
        .iter()
        .map(|column| {
            let (mut response, mut unfinished) = (Histogram::new(), 0u64);
            for task in column.results.tasks.iter().filter(|task| group.has(task)) {
                response.merge(&task.jobs.response);
                unfinished = unfinished.saturating_add(task.jobs.unfinished());
            }
            (response, unfinished)
        })
        .collect();
    let of_columns = columns.iter().zip(&merged).enumerate();
    let lines: Vec<Line<'_>> = of_columns
        .filter(|(_, (_, (response, unfinished)))| response.count() > 0 || *unfinished > 0)
        .map(|(style, (column, (response, unfinished)))| Line {
            deadline_ns: group.deadline_ns,
            unfinished: *unfinished,
            ..Line::new(&column.label, style, response)
        })
        .collect();
    figure(Some(&name(columns, group, groups)), "result", plot::RESPONSE, "", &lines)
}

/// The domain; where its tasks have several deadlines, the tasks too.
fn name(columns: &[Column], group: &Group<'_>, groups: &[Group<'_>]) -> String {
    if groups.iter().filter(|other| other.domain == group.domain).count() == 1 {
        return group.domain.to_owned();
    }
    let mut tasks: Vec<&str> = Vec::new();
    for task in columns.iter().flat_map(|column| &column.results.tasks).filter(|task| group.has(task)) {
        if !tasks.contains(&task.name.as_str()) {
            tasks.push(&task.name);
        }
    }
    match tasks.as_slice() {
        [one] => format!("{}/{one}", group.domain),
        several if several.len() <= NAMED_MAX => format!("{}: {}", group.domain, several.join(", ")),
        several => format!("{}: {} tasks", group.domain, several.len()),
    }
}

/// Two plots, their legend, and their numbers; of everything there is when `name` does not say of what.
pub(super) fn figure(name: Option<&str>, what: &str, of: Quantity, note: &str, lines: &[Line<'_>]) -> Markup {
    let title = name.map_or_else(|| of.title.to_owned(), |name| format!("{} of {name}", of.title));
    let alternative = format!("{title}; the table below has the numbers");
    html! {
        figure {
            h3 { (name.unwrap_or(of.title)) }
            div.pair {
                (plot::cumulative(&format!("Cumulative: {alternative}"), of, lines))
                (plot::percentiles(&format!("By percentile: {alternative}"), of, lines))
            }
            (plot::legend(lines))
            @if !note.is_empty() { p.note { (note) } }
            (details("The numbers", table(&title, what, lines)))
        }
    }
}

/// With the deadlines, and with what never finished, where there are any.
fn table(caption: &str, what: &str, lines: &[Line<'_>]) -> Table {
    let columns = ["count", "least", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "greatest"];
    let mut table = Table::new(format!("{caption}, in numbers"), what, &columns);
    let has_deadlines = lines.iter().any(|line| line.deadline_ns.is_some());
    let has_unfinished = lines.iter().any(|line| line.unfinished > 0);
    if has_deadlines {
        table.column("deadline");
    }
    if has_unfinished {
        table.column("never finished");
    }
    for line in lines {
        let of = line.of;
        let ended = |value: String| if of.count() == 0 { "-".into() } else { value };
        let quantile = |ppm| ended(fmt_duration(of.quantile_ppm(ppm)));
        let cells = [
            fmt_count(of.count()),
            ended(fmt_duration(of.min())),
            ended(fmt_duration(of.mean())),
            quantile(500_000),
            quantile(900_000),
            quantile(990_000),
            quantile(999_000),
            quantile(999_900),
            ended(fmt_duration(of.max())),
        ];
        let deadline = has_deadlines.then(|| line.deadline_ns.map_or_else(|| "-".into(), fmt_ns));
        let unfinished = has_unfinished.then(|| fmt_count(line.unfinished));
        let cells = cells.into_iter().chain(deadline).chain(unfinished);
        table.row(&line.name, cells.map(Cell::number));
    }
    table
}

/// From wake-up to running, for vCPUs: numbers only, since most are the same from run to run.
fn wake_ups(column: &Column) -> Markup {
    let of: Vec<Line<'_>> = column
        .results
        .vcpus
        .iter()
        .filter(|vcpu| vcpu.wake_latency.count() > 0)
        .map(|vcpu| Line::new(&vcpu.name, 0, &vcpu.wake_latency))
        .collect();
    html! {
        @if !of.is_empty() {
            h3 { "From wake-up to running" }
            (table("Wake-up latency of vCPUs", "vCPU", &of))
        }
    }
}
