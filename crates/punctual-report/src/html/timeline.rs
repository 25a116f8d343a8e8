//! The timeline: the numbers that the page's script draws, its controls, and the same as a table.

use std::collections::HashMap;

use serde::Serialize;

use super::markup::{Cell, Section, Table, details, escape, script_json};
use super::plot::{self, COLOURS};
use super::{Page, time};
use crate::format::{fmt_count, fmt_share};
use crate::timeline::{Row, RowHeader, RowKind, Timeline, Use};

/// Steps of the busiest budget in the printed strips.
const STEPS_MAX: usize = 120;
/// Strips of budgets.
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
pub fn section(page: &Page<'_>) -> Option<Section> {
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
    let cut = if timeline.cut { " The run went on: more would have made the page too heavy." } else { "" };
    let of = if page.columns.len() > 1 { format!(" of {}", escape(label)) } else { String::new() };
    let intro = format!(
        "<p class=\"note\">What executed when{of}, from {} to {}: {} items.{cut}</p>\n",
        time(timeline.from_ns),
        time(timeline.to_ns),
        fmt_count(timeline.items() as u64)
    );
    let network = match timeline.rows.iter().any(|row| row.kind == RowKind::Network) {
        true => {
            "<p class=\"note\">Rows called network show the steps of a kernel's network work, with the time in which \
             its vCPU waited for a processor in between.</p>\n"
        }
        false => "",
    };
    let table = details("The interval shown, as a table", &rows_table(timeline).html());
    let body = format!(
        "{intro}{}{LEGEND}{network}{table}<script type=\"application/json\" id=\"timeline-header\">{}</script>\n\
         <script type=\"application/base64\" id=\"timeline-data\">{}</script>\n",
        controls(timeline),
        script_json(&header),
        encoded.base64
    );
    Some(Section::new("timeline", "Timeline", body))
}

const LEGEND: &str = "<ul class=\"legend\">\
    <li><i class=\"swatch f1\" aria-hidden=\"true\"></i>executes (a colour per domain, the name in the slice)</li>\
    <li><i class=\"swatch f0 ruled\" aria-hidden=\"true\"></i>idles, or a budget idles away</li>\
    <li><i class=\"swatch f9\" aria-hidden=\"true\"></i>scheduling</li>\
    <li><i class=\"swatch stepped\" aria-hidden=\"true\"></i>budget left</li>\
    <li><i class=\"swatch jobline\" aria-hidden=\"true\"></i>job, from release to completion; a stroke at its deadline</li>\
    <li><i class=\"swatch miss\" aria-hidden=\"true\">▼</i>deadline missed</li></ul>\n\
    <p class=\"note\">Where slices are narrower than a pixel, a bar is as high as the share of time in which \
    something executed.</p>\n";

fn controls(timeline: &Timeline) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for row in timeline.rows.iter().filter(|row| row.kind != RowKind::Processor) {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    let options: String =
        groups.iter().map(|group| format!("<option value=\"{0}\">{0}</option>", escape(group))).collect();
    format!(
        "<div id=\"chart\" data-state=\"loading\">\n\
         <div class=\"tools\" role=\"toolbar\" aria-label=\"Timeline\">\n\
         <span class=\"buttons\"><button type=\"button\" data-do=\"in\">Zoom in</button>\
         <button type=\"button\" data-do=\"out\">Zoom out</button>\
         <button type=\"button\" data-do=\"all\">Whole</button></span>\n\
         <span class=\"buttons\"><button type=\"button\" data-do=\"left\" aria-label=\"Earlier\">◀</button>\
         <button type=\"button\" data-do=\"right\" aria-label=\"Later\">▶</button></span>\n\
         <span class=\"buttons\"><button type=\"button\" data-do=\"miss-before\">◀ miss</button>\
         <button type=\"button\" data-do=\"miss-after\">miss ▶</button></span>\n\
         <label>From <input id=\"chart-from\" size=\"9\" autocomplete=\"off\"></label>\n\
         <label>to <input id=\"chart-to\" size=\"9\" autocomplete=\"off\"></label>\n\
         <label>Domain <select id=\"chart-group\"><option value=\"\">all</option>{options}</select></label>\n\
         <label>Rows <select id=\"chart-rows\"><option value=\"all\">all</option>\
         <option value=\"no-tasks\">processors and vCPUs</option><option value=\"tasks\">tasks</option></select></label>\n\
         </div>\n\
         <canvas id=\"overview\" aria-hidden=\"true\"></canvas>\n\
         <div id=\"rows\" tabindex=\"0\" role=\"application\" aria-roledescription=\"timeline\" \
         aria-label=\"Timeline of processors, vCPUs and tasks\" aria-describedby=\"chart-keys\">\
         <div id=\"rows-height\"><canvas id=\"rows-canvas\"></canvas></div></div>\n\
         <div id=\"tip\" hidden></div>\n\
         <p id=\"chart-status\" class=\"note\" aria-live=\"polite\">This part needs JavaScript; the table below does not.</p>\n\
         <p id=\"chart-keys\" class=\"note keys\">Keys: <kbd>+</kbd> <kbd>-</kbd> zoom, <kbd>←</kbd> <kbd>→</kbd> move, \
         <kbd>Home</kbd> <kbd>End</kbd> ends, <kbd>0</kbd> whole, <kbd>↑</kbd> <kbd>↓</kbd> choose a row, \
         <kbd>,</kbd> <kbd>.</kbd> its slices, <kbd>m</kbd> <kbd>M</kbd> next and previous missed deadline. Mouse: drag \
         to move, Ctrl and wheel to zoom, double click to zoom in.</p>\n</div>\n"
    )
}

/// A row's numbers over the whole interval; the script keeps them those of the interval shown.
fn rows_table(timeline: &Timeline) -> Table {
    let columns = ["Row", ">Executing", ">Slices", ">Jobs released", ">Deadlines missed", ">Budget at least"];
    let mut table = Table::new("The interval of the timeline, as a table", &columns);
    for row in &timeline.rows {
        let jobs = |text: String| Cell::number(if row.jobs.is_empty() { "-".into() } else { text });
        let least = row.budget.iter().map(|step| step.1).min();
        let released = row.jobs.iter().filter(|job| job.release_ns >= timeline.from_ns).count();
        table.rows.push(vec![
            Cell::text(full_name(row)),
            Cell::number(match row.executing_ns(&timeline.labels) {
                Some(time) => fmt_share(time, timeline.length_ns()),
                None => "-".into(),
            }),
            Cell::number(fmt_count(row.slices.len() as u64)),
            jobs(fmt_count(released as u64)),
            jobs(fmt_count(row.missed(timeline.to_ns) as u64)),
            Cell::number(least.map_or_else(|| "-".into(), time)),
        ]);
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
pub fn budgets(page: &Page<'_>) -> Option<Section> {
    let (_, timeline) = page.timeline?;
    let colours = colours(timeline);
    let rows: Vec<&Row> = timeline.rows.iter().filter(|row| row.budget.len() > 1).collect();
    let busiest = rows.iter().max_by_key(|row| row.budget.len())?;
    let to_ns = busiest.budget.get(STEPS_MAX).map_or(timeline.to_ns, |step| step.0);
    let window = (timeline.from_ns, to_ns);
    let shown = &rows[..rows.len().min(STRIPS_MAX)];
    let mut table = Table::new(
        "Budgets over the whole timeline",
        &["Budget of", ">At most", ">At least", ">Replenished", ">Used up", ">Time at zero"],
    );
    let mut strips = String::new();
    for (i, row) in shown.iter().enumerate() {
        let name = full_name(row);
        let title = format!("Budget of {name} over time; the table below has the numbers");
        let last = i + 1 == shown.len();
        strips += &format!("<div class=\"strip-row\"><h3>{}</h3>", escape(&name));
        strips += &plot::step_strip(&title, colour_of(&colours, row), window, &row.budget, last);
        strips += "</div>\n";
    }
    for row in &rows {
        table.rows.push(budget_row(row, timeline));
    }
    let more = match rows.len() - shown.len() {
        0 => String::new(),
        more => format!(" {more} more are in the table and in the timeline."),
    };
    let body = format!(
        "<p class=\"note\">What is left of each budget in the first {} of the timeline; the timeline above shows any \
         interval.{more}</p>\n<figure>\n{strips}{}</figure>\n",
        time(to_ns - timeline.from_ns),
        details("The numbers, over the whole timeline", &table.html())
    );
    Some(Section::new("budgets", "Budgets over time", body).called("Budgets"))
}

fn budget_row(row: &Row, timeline: &Timeline) -> Vec<Cell> {
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
    vec![
        Cell::text(full_name(row)),
        Cell::number(time(steps.iter().map(|step| step.1).max().unwrap_or(0))),
        Cell::number(time(steps.iter().map(|step| step.1).min().unwrap_or(0))),
        Cell::number(fmt_count(rises as u64)),
        Cell::number(fmt_count(zeros as u64)),
        Cell::number(fmt_share(at_zero, timeline.length_ns())),
    ]
}
