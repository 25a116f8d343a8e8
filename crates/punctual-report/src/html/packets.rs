//! Where packets spent their time: a bar per flow and chain, their latencies, what was lost.

use maud::{Markup, html};
use punctual_model::results::{ChainResult, FlowResult, HostPart, PacketCounts, Segment, SegmentResult};
use punctual_model::{Histogram, Results};
use punctual_sched::Duration;

use super::latency::{figure, legible};
use super::markup::{Cell, Section, Table};
use super::page::Page;
use super::plot::{self, Line, Quantity};
use super::processors::{Heads, Part, Stack, bar, stacked};
use super::verdict::{Tone, chain_name, measured, pill};
use crate::Column;
use crate::format::{fmt_bandwidth, fmt_count, fmt_duration, fmt_ns, fmt_share};

/// The section, when there are flows or chains.
pub(super) fn section(page: &Page<'_>) -> Option<Section> {
    let columns = page.columns;
    let has_packets = |results: &Results| !results.flows.is_empty() || !results.chains.is_empty();
    if !columns.iter().any(|column| has_packets(&column.results)) {
        return None;
    }
    let flows = named(columns, |results| {
        results.flows.iter().map(|flow| Line::new(&flow.name, 0, &flow.latency)).collect()
    });
    let chains = named(columns, |results| results.chains.iter().map(chain_line).collect());
    let body = html! {
        (segments(columns))
        (parts(columns))
        (titled("Flows", flow_table(columns)))
        (titled("Chains", chain_table(columns)))
        (figures(columns, ["flow", "flows"], plot::LATENCY, flows))
        (figures(columns, ["chain", "chains"], plot::END_TO_END, chains))
    };
    Some(Section::new("packets", "Where packets spent their time", body).called("Packets"))
}

fn chain_line(chain: &ChainResult) -> Line<'_> {
    Line {
        deadline_ns: chain.deadline_ns,
        unfinished: chain.jobs.unfinished(),
        ..Line::new(chain_name(chain), 0, &chain.jobs.response)
    }
}

/// A table under its heading; nothing when it has no row.
fn titled(title: &str, table: Table) -> Markup {
    html! { @if !table.is_empty() { h3 { (title) } (table) } }
}

/// Distributions of the same name, a line for each result.
struct Named<'a> {
    name: String,
    lines: Vec<Line<'a>>,
}

fn named<'a>(columns: &'a [Column], all: impl Fn(&'a Results) -> Vec<Line<'a>>) -> Vec<Named<'a>> {
    let mut found: Vec<Named<'a>> = Vec::new();
    for (style, column) in columns.iter().enumerate() {
        for line in all(&column.results).into_iter().filter(|line| line.of.count() > 0 || line.unfinished > 0)
        {
            let Line { name, .. } = line;
            let line = Line { name: column.label.clone(), style, ..line };
            match found.iter_mut().find(|named| named.name == name) {
                Some(named) => named.lines.push(line),
                None => found.push(Named { name, lines: vec![line] }),
            }
        }
    }
    found
}

/// One figure with a line each, or, of several results, a figure each with a line per result.
fn figures(columns: &[Column], what: [&str; 2], quantity: Quantity, of: Vec<Named<'_>>) -> Markup {
    if of.is_empty() {
        return html! {};
    }
    if columns.len() == 1 {
        let lines = of.into_iter().enumerate().flat_map(|(style, Named { name, lines })| {
            lines.into_iter().map(move |line| Line { name: name.clone(), style, ..line })
        });
        return legible(None, what, quantity, lines.collect());
    }
    html! {
        @for Named { name, lines } in of { (figure(Some(&name), "result", quantity, "", &lines)) }
    }
}

/// One bar of [`segments`].
struct Way<'a> {
    flow: String,
    result: &'a str,
    parts: &'a [SegmentResult],
    /// The latency of a packet; a chain's packets have one each, but no common one.
    latency: Option<&'a Histogram>,
}

impl Way<'_> {
    fn mean_of(&self, segment: Segment) -> u64 {
        self.parts.iter().find(|part| part.segment == segment).map_or(0, |part| part.time.mean().as_ns())
    }

    fn mean(&self) -> u64 {
        let all = Segment::ALL.iter().chain(&Segment::HOST);
        all.fold(0, |sum, segment| sum.saturating_add(self.mean_of(*segment)))
    }
}

/// The ways of all flows and chains on which packets spent time; the results of a flow stand together.
fn ways(columns: &[Column]) -> Vec<Way<'_>> {
    let mut ways: Vec<Way<'_>> = Vec::new();
    for column in columns {
        let flows = column.results.flows.iter();
        ways.extend(flows.map(|flow| Way {
            flow: flow.name.clone(),
            result: &column.label,
            parts: &flow.segments,
            latency: Some(&flow.latency),
        }));
        ways.extend(column.results.chains.iter().map(|chain| Way {
            flow: chain_name(chain),
            result: &column.label,
            parts: &chain.segments,
            latency: None,
        }));
    }
    ways.retain(|way| way.mean() > 0);
    let order: Vec<String> = ways.iter().map(|way| way.flow.clone()).collect();
    // Stable: the results of one flow keep their order.
    ways.sort_by_key(|way| order.iter().position(|flow| *flow == way.flow));
    ways
}

/// The bars: means of segments add up to the mean latency.
fn segments(columns: &[Column]) -> Markup {
    let ways = ways(columns);
    if ways.is_empty() {
        return html! { p { "No packet reached its receiver." } };
    }
    let is_used = |segment: &Segment| ways.iter().any(|way| way.mean_of(*segment) > 0);
    let used: Vec<Segment> = Segment::ALL.into_iter().chain(Segment::HOST).filter(is_used).collect();
    let part =
        |way: &Way<'_>, segment: Segment| Part { name: segment.name().into(), size: way.mean_of(segment) };
    let stacks: Vec<Stack> = ways
        .iter()
        .map(|way| Stack {
            name: match columns {
                [_] => way.flow.clone(),
                _ => format!("{}: {}", way.flow, way.result),
            },
            parts: used.iter().map(|segment| part(way, *segment)).collect(),
            // The results of one flow have one scale.
            whole: ways.iter().filter(|other| other.flow == way.flow).map(Way::mean).max().unwrap_or(0),
            figures: vec![
                fmt_ns(way.mean()),
                way.latency.map_or_else(|| "-".into(), |of| fmt_duration(of.quantile_ppm(990_000))),
                way.latency.map_or_else(|| "-".into(), |of| fmt_duration(of.max())),
            ],
        })
        .collect();
    let scale = match columns {
        [_] => "Each bar is a flow's mean latency; bars of different flows are not to scale.",
        _ => "Each bar is a mean latency; the results of one flow are to one scale, different flows are not.",
    };
    let heads = Heads {
        caption: "Mean time of a packet in each part of its way",
        kind: "Flow",
        bars: "Parts of the way, in order",
        figures: &["Mean", "p99", "Longest"],
    };
    let show = |size: u64, _| if size == 0 { "-".to_owned() } else { fmt_ns(size) };
    html! {
        p.note {
            (scale) " Of pings and requests, the way there and back."
            @if columns.iter().any(|column| !column.results.chains.is_empty()) {
                " Of a chain, a packet between two steps."
            }
        }
        (stacked(&heads, &stacks, show))
    }
}

/// What `flow`'s requests spent on a part of their way through a Linux host.
fn time_of<'a>(results: &'a Results, flow: &str, part: HostPart) -> Option<&'a Histogram> {
    let flow = results.flows.iter().find(|of| of.name == flow)?;
    flow.parts.iter().find(|of| of.part == part).map(|of| &of.time)
}

/// A table of the parts of each flow's way through a Linux host: of one result with its distribution, of
/// several the means side by side.
fn parts(columns: &[Column]) -> Markup {
    let mut flows: Vec<&str> = Vec::new();
    for flow in columns.iter().flat_map(|column| &column.results.flows) {
        if !flow.parts.is_empty() && !flows.contains(&flow.name.as_str()) {
            flows.push(&flow.name);
        }
    }
    let mean = |results, flow, part| time_of(results, flow, part).map_or(0, |of| of.mean().as_ns());
    html! {
        @for flow in flows {
            @let whole = columns.iter().flat_map(|column| {
                HostPart::ALL.map(|part| mean(&column.results, flow, part))
            }).max().unwrap_or(0);
            h3 { "Waits and costs of a request to " (flow) }
            (part_table(columns, flow, whole))
        }
    }
}

fn part_table(columns: &[Column], flow: &str, whole: u64) -> Table {
    let caption = format!("{flow}: each wait and each cost of a request, in the order of its way");
    let mut table = Table::new(caption, "Part", &["Segment"]);
    match columns {
        [_] => ["Mean time", "Mean", "p99", "Longest"].into_iter().for_each(|name| table.column(name)),
        _ => columns.iter().for_each(|column| table.column(format!("{}: mean", column.label))),
    }
    for part in HostPart::ALL {
        let times: Vec<_> = columns.iter().map(|column| time_of(&column.results, flow, part)).collect();
        if times.iter().flatten().all(|time| time.max().is_zero()) {
            continue;
        }
        let figure =
            |time: Duration| Cell::number(if time.is_zero() { "-".into() } else { fmt_duration(time) });
        let segment = [Cell::text(part.segment().name())].into_iter();
        match times.as_slice() {
            [Some(time)] => {
                let (mean, p99, max) = (time.mean(), time.quantile_ppm(990_000), time.max());
                // In the colour of its segment.
                let sized = |of| Part {
                    name: String::new(),
                    size: if of == part.segment() { mean.as_ns() } else { 0 },
                };
                let parts = Segment::HOST.map(sized).into();
                let stack = Stack { name: String::new(), parts, whole, figures: Vec::new() };
                table.row(
                    part.name(),
                    segment.chain([Cell::text(bar(&stack))]).chain([mean, p99, max].map(figure)),
                );
            }
            times => {
                let means = times.iter().map(|time| figure(time.map_or(Duration::ZERO, Histogram::mean)));
                table.row(part.name(), segment.chain(means));
            }
        }
    }
    table
}

fn dropped(packets: &PacketCounts) -> Cell {
    let dropped = packets.dropped;
    let by_reason = [
        ("at the sender", dropped.send_queue),
        ("at the network card", dropped.nic),
        ("in softnet", dropped.softnet),
        ("at the receiver", dropped.destination_ring),
        ("unknown", dropped.unknown),
    ];
    let reasons: Vec<String> = by_reason
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(place, n)| format!("{} {place}", fmt_count(*n)))
        .collect();
    Cell::text(match (packets.created, dropped.total()) {
        (0, _) => pill(Tone::Plain, "no packet"),
        (_, 0) => pill(Tone::Good, "none"),
        (created, total) => html! {
            (pill(Tone::Bad, &fmt_share(total, created))) " " span.note { (reasons.join(", ")) }
        },
    })
}

fn quantiles(of: &Histogram) -> impl Iterator<Item = Cell> {
    let values = [of.quantile_ppm(500_000), of.quantile_ppm(990_000), of.quantile_ppm(999_000), of.max()];
    let is_empty = of.count() == 0;
    values.into_iter().map(move |value| Cell::number(if is_empty { "-".into() } else { fmt_duration(value) }))
}

/// Rows of all columns that have the same name together, each with its label when there are several.
fn rows<'a, T>(
    columns: &'a [Column],
    all: impl Fn(&'a Results) -> &'a [T],
    name: impl Fn(&T) -> &str,
) -> Vec<(&'a Column, &'a T)> {
    let mut rows: Vec<(&Column, &T)> =
        columns.iter().flat_map(|column| all(&column.results).iter().map(move |of| (column, of))).collect();
    let order: Vec<String> = rows.iter().map(|(_, of)| name(of).to_owned()).collect();
    // Stable: results of one name keep their order.
    rows.sort_by_key(|(_, of)| order.iter().position(|first| first == name(of)));
    rows
}

/// Heads of the columns after the name: of several results, first which.
fn heads<'a>(columns: &[Column], rest: &[&'a str]) -> Vec<&'a str> {
    let result = (columns.len() > 1).then_some("Result");
    result.into_iter().chain(rest.iter().copied()).collect()
}

fn flow_table(columns: &[Column]) -> Table {
    let rest =
        ["From and to", "Lost", "Delivered", "Timeouts", "Bandwidth", "p50", "p99", "p99.9", "Longest"];
    let mut table = Table::new("Flows: latency and losses", "Flow", &heads(columns, &rest));
    for (column, flow) in rows(columns, |results| &results.flows, |flow: &FlowResult| &flow.name) {
        let results = &column.results;
        let length = Duration::from_ns(results.duration_ns.saturating_mul(results.runs.into()));
        let label = (columns.len() > 1).then(|| Cell::text(&column.label));
        let cells = [
            Cell::text(format!("{} → {}", flow.from, flow.to)),
            dropped(&flow.packets),
            Cell::number(fmt_count(flow.packets.delivered)),
            Cell::number(fmt_count(flow.timeouts)),
            Cell::number(fmt_bandwidth(flow.packets.bytes, length)),
        ];
        let cells = label.into_iter().chain(cells).chain(quantiles(&flow.latency));
        table.row(format!("{} ({})", flow.name, flow.kind), cells);
    }
    table
}

fn chain_table(columns: &[Column]) -> Table {
    let rest = ["Steps", "Deadlines", "Packets lost", "Due", "Missed", "p50", "p99", "p99.9", "Longest"];
    let caption = "Chains: from the first release to the last end";
    let mut table = Table::new(caption, "Chain", &heads(columns, &rest));
    for (column, chain) in rows(columns, |results| &results.chains, |chain: &ChainResult| &chain.name) {
        let jobs = &chain.jobs;
        let label = (columns.len() > 1).then(|| Cell::text(&column.label));
        let cells = [
            Cell::text(chain.steps.join(" → ")),
            Cell::text(measured(jobs)),
            dropped(&chain.packets),
            Cell::number(fmt_count(jobs.due)),
            Cell::number(fmt_count(jobs.missed)),
        ];
        let cells = label.into_iter().chain(cells).chain(quantiles(&jobs.response));
        table.row(&chain.name, cells);
    }
    table
}
