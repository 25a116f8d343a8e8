//! Where the processors' time went: stacked bars, one per processor pool and domain.

use punctual_model::Results;
use punctual_model::results::ProcessorResult;

use super::markup::{Cell, Section, Table, details, escape, percent};
use super::{Column, Page, time};
use crate::format::fmt_share;

/// A part of a stacked bar.
pub struct Part {
    /// Name in the legend.
    pub name: String,
    /// Its size.
    pub size: u64,
}

/// Bars of the same parts, each with its name; `whole` is the length of a full bar.
pub struct Stack {
    /// Name of the bar.
    pub name: String,
    /// Parts in order; the same names in every bar.
    pub parts: Vec<Part>,
    /// What a full bar stands for.
    pub whole: u64,
    /// Numbers beside it.
    pub figures: Vec<String>,
}

/// A part that is this wide, in percent, bears its name.
const NAMED: u64 = 14;

/// Stacked bars with a legend; `what` heads the columns of names, bars and numbers, and `show` says a size in
/// words.
pub fn stacked(caption: &str, what: &[&str], stacks: &[Stack], show: impl Fn(u64, u64) -> String) -> String {
    let Some(first) = stacks.first() else { return String::new() };
    let mut bars = Table::new(caption, what);
    let mut numbers = Table::new(format!("{caption}, in numbers"), &what[..1]);
    numbers.columns.extend(first.parts.iter().map(|part| format!(">{}", part.name)));
    for stack in stacks {
        let mut bar = String::from("<div class=\"stack\" aria-hidden=\"true\">");
        let mut row = vec![Cell::text(stack.name.clone())];
        for (i, part) in stack.parts.iter().enumerate() {
            if part.size > 0 {
                let class = class_of(&part.name, i);
                let is_wide = part.size.saturating_mul(100) >= stack.whole.saturating_mul(NAMED);
                let text = if is_wide { escape(&part.name) } else { String::new() };
                let width = percent(part.size, stack.whole);
                bar += &format!("<i class=\"{class}\" style=\"width:{width}%\">{text}</i>");
            }
            row.push(Cell::number(show(part.size, stack.whole)));
        }
        let mut cells = vec![Cell::text(stack.name.clone()), Cell::Markup(bar + "</div>")];
        cells.extend(stack.figures.iter().map(|figure| Cell::number(figure.clone())));
        bars.rows.push(cells);
        numbers.rows.push(row);
    }
    let mut legend = String::from("<ul class=\"legend\">");
    for (i, part) in first.parts.iter().enumerate() {
        let class = class_of(&part.name, i);
        legend +=
            &format!("<li><i class=\"swatch {class}\" aria-hidden=\"true\"></i>{}</li>", escape(&part.name));
    }
    legend += "</ul>\n";
    format!("<figure>\n{}{legend}{}</figure>\n", bars.html(), details("The numbers", &numbers.html()))
}

fn class_of(name: &str, index: usize) -> String {
    match name {
        "idle" => "f0".into(),
        "scheduling" => "f9".into(),
        _ => format!("f{}{}", index % 8 + 1, if index / 8 % 2 == 1 { " hatched" } else { "" }),
    }
}

/// The section.
pub fn section(page: &Page<'_>) -> Option<Section> {
    let bodies: Vec<String> = page.columns.iter().filter_map(|column| of_column(column, page)).collect();
    let note = "<p class=\"note\">All processors that belong to a pool, over the whole run. Scheduling is the time \
                that decisions, context switches, migrations and locks take.</p>\n";
    (!bodies.is_empty())
        .then(|| Section::new("processors", "Where processor time went", note.to_owned() + &bodies.concat()))
        .map(|section| section.called("Processor time"))
}

/// What a processor was there for.
fn whole(processor: &ProcessorResult) -> u64 {
    processor.busy_ns.saturating_add(processor.overhead_ns).saturating_add(processor.idle_ns)
}

fn of_column(column: &Column, page: &Page<'_>) -> Option<String> {
    let results = &column.results;
    let stacks: Vec<Stack> = results
        .processors
        .iter()
        .filter(|processor| processor.pool.is_some())
        .map(|processor| {
            let part = |name: &str, size| Part { name: name.into(), size };
            Stack {
                name: format!("processor {}", processor.processor),
                parts: vec![
                    part("executing", processor.busy_ns),
                    part("scheduling", processor.overhead_ns),
                    part("idle", processor.idle_ns),
                ],
                whole: whole(processor),
                figures: vec![fmt_share(processor.busy_ns, whole(processor))],
            }
        })
        .collect();
    if stacks.is_empty() {
        return None;
    }
    let heading = match page.columns {
        [_] => String::new(),
        _ => format!("<h3>{}</h3>\n", escape(&column.label)),
    };
    let show = |size, whole| format!("{} ({})", fmt_share(size, whole), time(size));
    let by_processor = stacked(
        &format!("Processors of {}", column.label),
        &["Processor", "Parts", ">Executing"],
        &stacks,
        show,
    );
    Some(heading + &by_processor + &by_domain(results, &column.label))
}

/// Which domain got how much, of the time of all processors together.
fn by_domain(results: &Results, label: &str) -> String {
    let whole = results
        .processors
        .iter()
        .filter(|processor| processor.pool.is_some())
        .fold(0u64, |sum, processor| sum.saturating_add(whole(processor)));
    // Nested domains' time is part of their outer domain's; tasks of pools stand for themselves.
    let mut shares: Vec<(String, u64)> =
        results.domains.iter().map(|domain| (domain.name.clone(), domain.cpu_time_ns)).collect();
    for task in &results.tasks {
        if !results.domains.iter().any(|domain| domain.name == task.parent) {
            shares.push((format!("{}/{}", task.parent, task.name), task.cpu_time_ns));
        }
    }
    let mut table = Table::new(
        format!("Processor time by domain: {label}"),
        &["Domain", "Share of all processors", ">Processor time"],
    );
    for (name, cpu_time_ns) in shares {
        let width = percent(cpu_time_ns, whole);
        let share = fmt_share(cpu_time_ns, whole);
        table.rows.push(vec![
            Cell::text(name),
            Cell::Markup(format!(
                "<div class=\"bar\"><span aria-hidden=\"true\"><i style=\"width:{width}%\"></i></span>{share}</div>"
            )),
            Cell::number(time(cpu_time_ns)),
        ]);
    }
    table.html()
}
