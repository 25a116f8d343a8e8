//! The timeline: the numbers that the page's script draws, its controls, and the same as a table.

use std::collections::HashMap;

use maud::{Markup, html};
use serde::Serialize;

use super::markup::{Cell, Section, Table, details, script_json};
use super::page::Page;
use super::plot::{self, COLOURS};
use crate::format::{fmt_count, fmt_ns, fmt_share};
use crate::timeline::{Row, RowHeader, RowKind, Timeline, Use};

/// Steps of the busiest budget in the printed strips.
const STEPS_MAX: usize = 120;
const STRIPS_MAX: usize = 16;

/// What the script reads.
#[derive(Serialize)]
struct Header<'a> {
    from: u64,
    to: u64,
    /// Name, use, colour.
    labels: Vec<(&'a str, Use, usize)>,
    rows: &'a [RowHeader<'a>],
    /// Of each row.
    colours: Vec<usize>,
}

/// A colour per group that is not `processors`, in their order.
fn colours(timeline: &Timeline) -> HashMap<&str, usize> {
    let mut of = HashMap::new();
    for row in timeline.rows.iter().filter(|row| row.kind != RowKind::Processor) {
        let next = of.len() % COLOURS;
        of.entry(row.group.as_str()).or_insert(next);
    }
    of
}

/// The colour of a row; processors share the first.
fn colour_of(colours: &HashMap<&str, usize>, row: &Row) -> usize {
    colours.get(row.group.as_str()).copied().unwrap_or(0)
}

/// On a processor a slice has the colour of the vCPU's domain; elsewhere rows have theirs.
fn label_colours(timeline: &Timeline, colours: &HashMap<&str, usize>) -> Vec<usize> {
    let of_row: HashMap<&str, usize> = timeline
        .rows
        .iter()
        .rev()
        .filter(|row| row.kind != RowKind::Processor)
        .map(|row| (row.name.as_str(), colour_of(colours, row)))
        .collect();
    timeline.labels.iter().map(|(name, _)| of_row.get(name.as_str()).copied().unwrap_or(0)).collect()
}

/// The section, when there is a trace.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let (label, timeline) = page.timeline?;
    let colours = colours(timeline);
    let encoded = timeline.encode();
    let header = Header {
        from: timeline.from_ns,
        to: timeline.to_ns,
        labels: timeline
            .labels
            .iter()
            .zip(label_colours(timeline, &colours))
            .map(|((name, what), colour)| (name.as_str(), *what, colour))
            .collect(),
        rows: &encoded.rows,
        colours: timeline.rows.iter().map(|row| colour_of(&colours, row)).collect(),
    };
    let body = html! {
        p.note {
            "What executed when" @if page.columns.len() > 1 { " of " (label) }
            ", from " (fmt_ns(timeline.from_ns)) " to " (fmt_ns(timeline.to_ns)) ": "
            (fmt_count(timeline.items() as u64)) " items."
            @if timeline.cut { " The run went on; showing more would make the page too large." }
        }
        (controls(timeline))
        (legend(timeline))
        @if timeline.rows.iter().any(|row| row.kind == RowKind::Network) {
            p.note {
                "Rows called network show the steps of a kernel's network work, with the time in which its \
                 vCPU waited for a processor in between."
            }
        }
        (details("The interval shown, as a table", rows_table(timeline)))
        script type="application/json" id="timeline-header" { (script_json(&header)) }
        "\n"
        script type="application/base64" id="timeline-data" { (encoded.base64) }
    };
    Some(Section::new("timeline", "Timeline", body))
}

fn legend(timeline: &Timeline) -> Markup {
    html! {
        ul.legend {
            li {
                i.swatch.f1 aria-hidden="true" {}
                "executes (a colour per domain, the name in the slice)"
            }
            li { i.swatch.f0.ruled aria-hidden="true" {} "idles, or a budget idles away" }
            li { i.swatch.f9 aria-hidden="true" {} "scheduling" }
            @if timeline.labels.iter().any(|(_, of)| *of == Use::Away) {
                li { i.swatch.away aria-hidden="true" {} "taken away: stood still, or another thread ran" }
            }
            li { i.swatch.stepped aria-hidden="true" {} "budget left" }
            li {
                i.swatch.jobline aria-hidden="true" {}
                "job, from release to completion; a stroke at its deadline"
            }
            li { i.swatch.miss aria-hidden="true" { "▼" } "deadline missed" }
        }
        p.note {
            "Where slices are narrower than a pixel, a bar is as high as the share of time in which \
             something executed."
        }
    }
}

fn controls(timeline: &Timeline) -> Markup {
    html! {
        div id="chart" data-state="loading" {
            (tools(timeline))
            canvas id="overview" aria-hidden="true" {}
            div id="rows" tabindex="0" role="application" aria-roledescription="timeline"
                aria-label="Timeline of processors, vCPUs and tasks" aria-describedby="chart-keys" {
                div id="rows-height" { canvas id="rows-canvas" {} }
            }
            div id="tip" hidden {}
            p.note id="chart-status" aria-live="polite" {
                "This part needs JavaScript; the table below does not."
            }
            p.note.keys id="chart-keys" {
                "Keys: " kbd { "+" } " " kbd { "-" } " zoom, " kbd { "←" } " " kbd { "→" } " move, "
                kbd { "Home" } " " kbd { "End" } " ends, " kbd { "0" } " whole, "
                kbd { "↑" } " " kbd { "↓" } " choose a row, " kbd { "," } " " kbd { "." } " its slices, "
                kbd { "m" } " " kbd { "M" } " next and previous missed deadline. "
                "Mouse: drag to move, Ctrl and wheel to zoom, double click to zoom in."
            }
        }
    }
}

fn tools(timeline: &Timeline) -> Markup {
    let mut groups: Vec<&str> = Vec::new();
    for row in timeline.rows.iter().filter(|row| row.kind != RowKind::Processor) {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    html! {
        div.tools role="toolbar" aria-label="Timeline" {
            span.buttons {
                button type="button" data-do="in" { "Zoom in" }
                button type="button" data-do="out" { "Zoom out" }
                button type="button" data-do="all" { "Whole" }
            }
            span.buttons {
                button type="button" data-do="left" aria-label="Earlier" { "◀" }
                button type="button" data-do="right" aria-label="Later" { "▶" }
            }
            span.buttons {
                button type="button" data-do="miss-before" { "◀ miss" }
                button type="button" data-do="miss-after" { "miss ▶" }
            }
            label { "From " input id="chart-from" size="9" autocomplete="off"; }
            label { "to " input id="chart-to" size="9" autocomplete="off"; }
            label {
                "Domain "
                select id="chart-group" {
                    option value="" { "all" }
                    @for group in groups { option value=(group) { (group) } }
                }
            }
            label {
                "Rows "
                select id="chart-rows" {
                    option value="all" { "all" }
                    option value="no-tasks" { "processors and vCPUs" }
                    option value="tasks" { "tasks" }
                }
            }
        }
    }
}

/// A row's numbers over the whole interval; the script keeps them those of the interval shown.
fn rows_table(timeline: &Timeline) -> Table {
    let columns = ["Executing", "Slices", "Jobs released", "Deadlines missed", "Budget at least"];
    let mut table = Table::new("The interval of the timeline, as a table", "Row", &columns);
    for row in &timeline.rows {
        let jobs = |text: String| if row.jobs.is_empty() { "-".into() } else { text };
        let least = row.budget.iter().map(|step| step.1).min();
        let released = row.jobs.iter().filter(|job| job.release_ns >= timeline.from_ns).count();
        let executing = row.executing_ns(&timeline.labels);
        let cells = [
            executing.map_or_else(|| "-".into(), |time| fmt_share(time, timeline.length_ns())),
            fmt_count(row.slices.len() as u64),
            jobs(fmt_count(released as u64)),
            jobs(fmt_count(row.missed(timeline.to_ns) as u64)),
            least.map_or_else(|| "-".into(), fmt_ns),
        ];
        table.row(full_name(row), cells.map(Cell::number));
    }
    table
}

fn full_name(row: &Row) -> String {
    match row.kind {
        RowKind::Task => format!("{}/{}", row.group, row.name),
        _ => row.name.clone(),
    }
}

/// Budgets over time as steps, for the begin of the timeline: readable on paper and without a script.
pub(super) fn budgets(page: &Page<'_>) -> Option<Section> {
    let (_, timeline) = page.timeline?;
    let colours = colours(timeline);
    let rows: Vec<&Row> = timeline.rows.iter().filter(|row| row.budget.len() > 1).collect();
    let busiest = rows.iter().max_by_key(|row| row.budget.len())?;
    let to_ns = busiest.budget.get(STEPS_MAX).map_or(timeline.to_ns, |step| step.0);
    let window = (timeline.from_ns, to_ns);
    let shown = &rows[..rows.len().min(STRIPS_MAX)];
    let columns = ["At most", "At least", "Replenished", "Used up", "Time at zero"];
    let mut table = Table::new("Budgets over the whole timeline", "Budget of", &columns);
    for row in &rows {
        table.row(full_name(row), budget_cells(row, timeline));
    }
    let strip = |i: usize, row: &Row| {
        let title = format!("Budget of {} over time; the table below has the numbers", full_name(row));
        plot::step_strip(&title, colour_of(&colours, row), window, &row.budget, i + 1 == shown.len())
    };
    let more = rows.len() - shown.len();
    let body = html! {
        p.note {
            "What is left of each budget in the first " (fmt_ns(to_ns - timeline.from_ns))
            " of the timeline; the timeline above shows any interval."
            @if more > 0 { " " (more) " more are in the table and in the timeline." }
        }
        figure {
            @for (i, row) in shown.iter().enumerate() {
                div.strip-row { h3 { (full_name(row)) } (strip(i, row)) }
            }
            (details("The numbers, over the whole timeline", table))
        }
    };
    Some(Section::new("budgets", "Budgets over time", body).called("Budgets"))
}

fn budget_cells(row: &Row, timeline: &Timeline) -> [Cell; 5] {
    let steps = &row.budget;
    let pairs = || steps.windows(2).map(|pair| (pair[0], pair[1]));
    let rises = pairs().filter(|(before, after)| after.1 > before.1).count();
    let zeros = pairs().filter(|(before, after)| before.1 > 0 && after.1 == 0).count();
    let ends = steps.iter().skip(1).map(|step| step.0).chain([timeline.to_ns]);
    let at_zero: u64 = steps
        .iter()
        .zip(ends)
        .filter(|(step, _)| step.1 == 0)
        .map(|(step, end)| end.saturating_sub(step.0))
        .sum();
    [
        fmt_ns(steps.iter().map(|step| step.1).max().unwrap_or(0)),
        fmt_ns(steps.iter().map(|step| step.1).min().unwrap_or(0)),
        fmt_count(rises as u64),
        fmt_count(zeros as u64),
        fmt_share(at_zero, timeline.length_ns()),
    ]
    .map(Cell::number)
}
