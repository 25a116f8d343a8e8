//! Simulation against reality: the same tasks, one beside the other.

use maud::{Markup, html};
use punctual_model::results::{Source, TaskResult};

use super::markup::{Cell, Section, Table, percent};
use super::page::Page;
use super::verdict::{Tone, pill};
use super::what::policies;
use crate::Column;
use crate::format::{fmt_duration, fmt_share};

/// The section, when there are results of both kinds with tasks in common.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let of = |source| page.columns.iter().filter(move |column| column.results.source == source);
    let first = of(Source::Simulation).next()?;
    // The simulation of the same policies, such as a replay; otherwise the first one.
    let simulated = |live: &Column| {
        let same = |column: &&Column| policies(&column.results) == policies(&live.results);
        of(Source::Simulation).find(same).unwrap_or(first)
    };
    let tables: Vec<Table> =
        of(Source::Live).map(|live| table(simulated(live), live)).filter(|table| !table.is_empty()).collect();
    if tables.is_empty() {
        return None;
    }
    let body = html! {
        p.note {
            "Each row has one scale, from zero to the longest response of both. A ring is the simulation, a \
             disc the live run; the line between them is the difference of their 99th percentiles."
        }
        @for table in &tables { (table) }
    };
    Some(Section::new("paired", "Simulated against live", body).called("Simulated and live"))
}

fn table(simulated: &Column, live: &Column) -> Table {
    let columns = [
        "99th percentile",
        "p50 sim.",
        "live",
        "p99 sim.",
        "live",
        "Longest sim.",
        "live",
        "Missed sim.",
        "live",
    ];
    let caption = format!("Response times: {} against {}", simulated.label, live.label);
    let mut table = Table::new(caption, "Task", &columns);
    for a in &simulated.results.tasks {
        let same = |b: &&TaskResult| b.parent == a.parent && b.name == a.name;
        let Some(b) = live.results.tasks.iter().find(same) else { continue };
        if a.jobs.response.count() == 0 || b.jobs.response.count() == 0 {
            continue;
        }
        let quantile =
            |task: &TaskResult, ppm| Cell::number(fmt_duration(task.jobs.response.quantile_ppm(ppm)));
        let most = |task: &TaskResult| Cell::number(fmt_duration(task.jobs.response.max()));
        let cells = [
            Cell::text(dumbbell(a, b)),
            quantile(a, 500_000),
            quantile(b, 500_000),
            quantile(a, 990_000),
            quantile(b, 990_000),
            most(a),
            most(b),
            missed(a),
            missed(b),
        ];
        table.row(format!("{}/{}", a.parent, a.name), cells);
    }
    table
}

fn missed(task: &TaskResult) -> Cell {
    match (task.jobs.due, task.jobs.missed) {
        (0, _) => Cell::number("-"),
        (_, 0) => Cell::number("0"),
        (due, missed) => Cell::text(pill(Tone::Bad, &fmt_share(missed, due))),
    }
}

fn dumbbell(simulated: &TaskResult, live: &TaskResult) -> Markup {
    let scale = simulated.jobs.response.max().max(live.jobs.response.max()).as_ns();
    let [a, b] = [simulated, live].map(|task| task.jobs.response.quantile_ppm(990_000).as_ns());
    let (left, width) = (percent(a.min(b), scale), percent(a.abs_diff(b), scale));
    html! {
        div.range aria-hidden="true" {
            i.whisker style={ "left:" (left) "%;width:" (width) "%" } {}
            i.ring style={ "left:" (percent(a, scale)) "%" } {}
            i.disc style={ "left:" (percent(b, scale)) "%" } {}
        }
    }
}
