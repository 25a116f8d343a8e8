//! Distributions: cumulative, by percentile, and in numbers.

use maud::{Markup, html};
use punctual_model::Recorder;

use super::markup::{Cell, Section, Table, details};
use super::page::Page;
use super::plot::{self, Line, Quantity};
use crate::Column;
use crate::format::{fmt_count, fmt_duration};

/// More lines than this are not legible in one plot.
const LINES_MAX: usize = 8;
/// More plots than this are not looked at; the tables have everything.
const DOMAINS_MAX: usize = 24;

/// The section; nothing when no job finished.
pub fn section(page: &Page<'_>) -> Option<Section> {
    let mut domains: Vec<&str> = Vec::new();
    for task in page.columns.iter().flat_map(|column| &column.results.tasks) {
        if task.jobs.response.count() > 0 && !domains.contains(&task.parent.as_str()) {
            domains.push(&task.parent);
        }
    }
    if domains.is_empty() {
        return None;
    }
    let of_domain = |domain| match page.columns {
        [one] => by_task(one, domain),
        several => by_column(several, domain),
    };
    let body = html! {
        p.note {
            "Left: the share of jobs whose response time is at most the value below. Right: the response \
             time by percentile, on a scale that gives every further nine the same room, so that the tail \
             shows. Markers stand at 50 %, 90 %, 99 % and 99.9 %."
        }
        @for domain in domains.iter().take(DOMAINS_MAX) { (of_domain(domain)) }
        @if domains.len() > DOMAINS_MAX {
            p.note {
                "The first " (DOMAINS_MAX) " of " (domains.len()) " domains; the tables below have all."
            }
        }
        @if let [one] = page.columns { (wake_ups(one)) }
    };
    Some(Section::new("latency", "Response times", body))
}

fn by_task(column: &Column, domain: &str) -> Markup {
    let tasks = column
        .results
        .tasks
        .iter()
        .filter(|task| task.parent == domain && task.jobs.response.count() > 0)
        .map(|task| (task.name.clone(), &task.jobs.response));
    legible(Some(domain), ["task", "tasks"], plot::RESPONSE, tasks.collect())
}

/// A figure of as many lines as are legible: those with the longest tail, in their own order.
pub fn legible(
    name: Option<&str>,
    [one, many]: [&str; 2],
    of: Quantity,
    mut lines: Vec<(String, &Recorder)>,
) -> Markup {
    let all = lines.len();
    let mut note = String::new();
    if all > LINES_MAX {
        let mut tails: Vec<_> = lines.iter().map(|(_, of)| of.quantile_ppm(990_000)).collect();
        tails.sort_unstable();
        let least = tails[all - LINES_MAX];
        lines.retain(|(_, of)| of.quantile_ppm(990_000) >= least);
        lines.truncate(LINES_MAX);
        note = format!("The {LINES_MAX} of {all} {many} with the longest tail.");
    }
    figure(name, one, of, &note, lines)
}

fn by_column(columns: &[Column], domain: &str) -> Markup {
    let merged: Vec<(String, Recorder)> = columns
        .iter()
        .map(|column| {
            let mut all = Recorder::new();
            let of = column.results.tasks.iter().filter(|task| task.parent == domain);
            of.for_each(|task| all.merge(&task.jobs.response));
            (column.label.clone(), all)
        })
        .filter(|(_, of)| of.count() > 0)
        .collect();
    figure(
        Some(domain),
        "result",
        plot::RESPONSE,
        "",
        merged.iter().map(|(name, of)| (name.clone(), of)).collect(),
    )
}

/// Two plots, their legend, and their numbers; of everything there is when `name` does not say of what.
pub fn figure(
    name: Option<&str>,
    what: &str,
    of: Quantity,
    note: &str,
    lines: Vec<(String, &Recorder)>,
) -> Markup {
    let lines: Vec<Line<'_>> = lines.into_iter().map(|(name, of)| Line { name, of }).collect();
    let title = name.map_or_else(|| of.title.to_owned(), |name| format!("{} of {name}", of.title));
    let alternative = format!("{title}; the table below has the numbers");
    html! {
        figure {
            h3 { (name.unwrap_or(of.title)) }
            div.pair {
                (plot::cumulative(&format!("Cumulative: {alternative}"), of, &lines))
                (plot::percentiles(&format!("By percentile: {alternative}"), of, &lines))
            }
            (plot::legend(lines.iter().map(|line| line.name.as_str())))
            @if !note.is_empty() { p.note { (note) } }
            (details("The numbers", table(&title, what, &lines)))
        }
    }
}

fn table(caption: &str, what: &str, lines: &[Line<'_>]) -> Table {
    let columns = ["count", "least", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "greatest"];
    let mut table = Table::new(format!("{caption}, in numbers"), what, &columns);
    for Line { name, of } in lines {
        let quantile = |ppm| fmt_duration(of.quantile_ppm(ppm));
        let cells = [
            fmt_count(of.count()),
            fmt_duration(of.min()),
            fmt_duration(of.mean()),
            quantile(500_000),
            quantile(900_000),
            quantile(990_000),
            quantile(999_000),
            quantile(999_900),
            fmt_duration(of.max()),
        ];
        table.row(name, cells.map(Cell::number));
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
        .map(|vcpu| Line { name: vcpu.name.clone(), of: &vcpu.wake_latency })
        .collect();
    html! {
        @if !of.is_empty() {
            h3 { "From wake-up to running" }
            (table("Wake-up latency of vCPUs", "vCPU", &of))
        }
    }
}
