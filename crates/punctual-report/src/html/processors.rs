//! Where the processors' time went: stacked bars, one per processor pool and domain.

use maud::{Markup, html};
use punctual_model::Results;
use punctual_model::results::{ProcessorResult, SmpRounds};
use punctual_sched::Duration;

use super::markup::{Cell, Section, Table, details, percent};
use super::page::Page;
use crate::Column;
use crate::format::{fmt_count, fmt_ns, fmt_rate, fmt_share};

/// A part of a stacked bar.
pub(super) struct Part {
    pub name: String,
    pub size: u64,
}

/// Bars of the same parts, each with its name; `whole` is the length of a full bar.
pub(super) struct Stack {
    pub name: String,
    /// Parts in order; the same names in every bar.
    pub parts: Vec<Part>,
    /// What a full bar means.
    pub whole: u64,
    pub figures: Vec<String>,
}

/// A part that is this wide, in percent, bears its name.
const NAMED: u64 = 14;

/// What heads a table of [`stacked`] bars.
pub(crate) struct Heads<'a> {
    pub caption: &'a str,
    pub kind: &'a str,
    pub bars: &'a str,
    pub figures: &'a [&'a str],
}

/// Stacked bars with a legend and their numbers; `show` says a size of a whole in words.
pub(crate) fn stacked(heads: &Heads<'_>, stacks: &[Stack], show: impl Fn(u64, u64) -> String) -> Markup {
    let Some(first) = stacks.first() else { return html! {} };
    let mut bars = Table::new(heads.caption, heads.kind, &[heads.bars]);
    heads.figures.iter().for_each(|name| bars.column(*name));
    let mut numbers = Table::new(format!("{}, in numbers", heads.caption), heads.kind, &[]);
    first.parts.iter().for_each(|part| numbers.column(&part.name));
    for stack in stacks {
        let figures = stack.figures.iter().map(Cell::number);
        bars.row(&stack.name, [Cell::text(bar(stack))].into_iter().chain(figures));
        let sizes = stack.parts.iter().map(|part| Cell::number(show(part.size, stack.whole)));
        numbers.row(&stack.name, sizes);
    }
    html! {
        figure {
            (bars)
            ul.legend {
                @for (i, part) in first.parts.iter().enumerate() {
                    li { i.swatch.(class_of(&part.name, i)) aria-hidden="true" {} (part.name) }
                }
            }
            (details("The numbers", numbers))
        }
    }
}

/// One bar; what it says stands elsewhere, too.
pub(super) fn bar(stack: &Stack) -> Markup {
    let is_wide = |size: u64| size.saturating_mul(100) >= stack.whole.saturating_mul(NAMED);
    html! {
        div.stack aria-hidden="true" {
            @for (i, part) in stack.parts.iter().enumerate().filter(|(_, part)| part.size > 0) {
                i class=(class_of(&part.name, i)) style={ "width:" (percent(part.size, stack.whole)) "%" } {
                    @if is_wide(part.size) { (part.name) }
                }
            }
        }
    }
}

fn class_of(name: &str, index: usize) -> String {
    match name {
        "idle" => "f0".into(),
        "scheduling" => "f9".into(),
        _ => format!("f{}{}", index % 8 + 1, if index / 8 % 2 == 1 { " hatched" } else { "" }),
    }
}

pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let bodies: Vec<Markup> = page.columns.iter().filter_map(|column| of_column(column, page)).collect();
    if bodies.is_empty() {
        return None;
    }
    let body = html! {
        p.note {
            "All processors that belong to a pool, over the whole run. Scheduling is the time that \
             decisions, context switches, migrations and locks take; in a live run, the enforcers' time. \
             Others are threads that are no units."
        }
        @for body in &bodies { (body) }
    };
    Some(Section::new("processors", "Where processor time went", body).called("Processor time"))
}

fn whole(processor: &ProcessorResult) -> u64 {
    let of_host = processor.host.unwrap_or_default();
    let parts = [of_host.others_ns, of_host.interrupts_ns, of_host.steal_ns, processor.idle_ns];
    parts.into_iter().fold(processor.busy_ns.saturating_add(processor.overhead_ns), u64::saturating_add)
}

/// What a processor did; of a live run, what else than its pool's work.
fn parts(processor: &ProcessorResult) -> Vec<Part> {
    let part = |name: &str, size| Part { name: name.into(), size };
    let mut parts = vec![part("executing", processor.busy_ns), part("scheduling", processor.overhead_ns)];
    if let Some(host) = processor.host {
        parts.push(part("others", host.others_ns));
        parts.push(part("interrupts", host.interrupts_ns));
        parts.push(part("steal", host.steal_ns));
    }
    parts.push(part("idle", processor.idle_ns));
    parts
}

fn of_column(column: &Column, page: &Page<'_>) -> Option<Markup> {
    let results = &column.results;
    let stacks: Vec<Stack> = results
        .processors
        .iter()
        .filter(|processor| processor.pool.is_some())
        .map(|processor| Stack {
            name: format!("processor {}", processor.processor),
            parts: parts(processor),
            whole: whole(processor),
            figures: vec![fmt_share(processor.busy_ns, whole(processor))],
        })
        .collect();
    if stacks.is_empty() {
        return None;
    }
    let heads = Heads {
        caption: &format!("Processors of {}", column.label),
        kind: "Processor",
        bars: "Parts",
        figures: &["Executing"],
    };
    let show = |size, whole| format!("{} ({})", fmt_share(size, whole), fmt_ns(size));
    Some(html! {
        @if page.columns.len() > 1 { h3 { (column.label) } }
        (stacked(&heads, &stacks, show))
        (by_domain(results, &column.label))
        (rounds(results, &column.label))
    })
}

/// What vCPUs that wait for the others of their domain did; nothing without any.
fn rounds(results: &Results, label: &str) -> Markup {
    let columns = ["Rounds", "Rounds a second of processor time", "Spinning", "Processor time"];
    let mut table = Table::new(format!("vCPUs that wait for each other: {label}"), "vCPU", &columns);
    for task in &results.tasks {
        let Some(&SmpRounds { rounds, spun_ns }) = task.smp.as_deref() else { continue };
        let rate = fmt_rate(rounds, Duration::from_ns(task.cpu_time_ns));
        let spinning = share_bar("bar", spun_ns, task.cpu_time_ns);
        let cells = [Cell::number(fmt_count(rounds)), Cell::number(rate), Cell::text(spinning)];
        let time = [Cell::number(fmt_ns(task.cpu_time_ns))];
        table.row(format!("{}/{}", task.parent, task.name), cells.into_iter().chain(time));
    }
    html! { @if !table.is_empty() { (table) } }
}

/// Which domain got how much, of the time of all processors together.
fn by_domain(results: &Results, label: &str) -> Table {
    let whole = results
        .processors
        .iter()
        .filter(|processor| processor.pool.is_some())
        .fold(0u64, |sum, processor| sum.saturating_add(whole(processor)));
    // Nested domains' time is part of their outer domain's; tasks of pools have entries of their own.
    let mut shares: Vec<(String, u64)> =
        results.domains.iter().map(|domain| (domain.name.clone(), domain.cpu_time_ns)).collect();
    for task in &results.tasks {
        if !results.domains.iter().any(|domain| domain.name == task.parent) {
            shares.push((format!("{}/{}", task.parent, task.name), task.cpu_time_ns));
        }
    }
    let mut table = Table::new(
        format!("Processor time by domain: {label}"),
        "Domain",
        &["Share of all processors", "Processor time"],
    );
    for (name, cpu_time_ns) in shares {
        let bar = share_bar("bar", cpu_time_ns, whole);
        table.row(name, [Cell::text(bar), Cell::number(fmt_ns(cpu_time_ns))]);
    }
    table
}

pub(crate) fn share_bar(class: &str, part: u64, whole: u64) -> Markup {
    html! {
        div.(class) {
            span aria-hidden="true" { i style={ "width:" (percent(part, whole)) "%" } {} }
            (fmt_share(part, whole))
        }
    }
}
