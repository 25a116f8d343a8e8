//! Every metric of every task, vCPU, domain, processor, pool and network, folded away.

use maud::{Markup, html};
use punctual_model::results::{JobStats, SegmentResult, UnitCounts};
use punctual_model::{Histogram, Results};

use super::markup::{Cell, Section, Table, details};
use super::page::Page;
use super::verdict::chain_name;
use crate::Column;
use crate::format::{fmt_count, fmt_ns, fmt_share};

pub(super) fn section(page: &Page<'_>) -> Section {
    let body = html! { @for column in page.columns { (of_column(column, page.columns.len() > 1)) } };
    Section::new("details", "All numbers", body)
}

fn of_column(column: &Column, with_heading: bool) -> Markup {
    let results = &column.results;
    let tables = [
        tasks(results),
        vcpus(results),
        domains(results),
        processors(results),
        pools(results),
        enforcement(results),
        deliveries(results),
        segments(results),
        networks(results),
    ];
    let title = |table: &Table| {
        let (title, _) = table.caption.split_once(':').unwrap_or((&table.caption, ""));
        format!("{title} ({})", table.len())
    };
    html! {
        @if with_heading { h3 { (column.label) } }
        @for table in tables.iter().filter(|table| !table.is_empty()) { (details(&title(table), table)) }
    }
}

fn count(n: impl Into<Option<u64>>) -> Cell {
    Cell::number(n.into().map_or_else(|| "-".into(), fmt_count))
}

/// A property of a distribution, `-` where it counted nothing.
fn latency(of: &Histogram, ns: u64) -> Cell {
    if of.count() == 0 { Cell::number("-") } else { duration(ns) }
}

fn duration(ns: u64) -> Cell {
    Cell::number(fmt_ns(ns))
}

fn job_cells(jobs: &JobStats) -> [Cell; 9] {
    [
        count(jobs.released),
        count(jobs.completed),
        count(jobs.due),
        count(jobs.missed),
        Cell::number(fmt_share(jobs.missed, jobs.due)),
        latency(&jobs.response, jobs.response.quantile_ppm(990_000).as_ns()),
        latency(&jobs.response, jobs.response.max().as_ns()),
        latency(&jobs.tardiness, jobs.tardiness.max().as_ns()),
        latency(&jobs.start_latency, jobs.start_latency.quantile_ppm(990_000).as_ns()),
    ]
}

const JOBS: [&str; 9] = [
    "Released",
    "Finished",
    "Due",
    "Missed",
    "Miss ratio",
    "Response p99",
    "Longest",
    "Latest by",
    "Start latency p99",
];

fn tasks(results: &Results) -> Table {
    let columns = [&JOBS[..], &["Processor time", "Switches", "Migrations"]].concat();
    let mut table = Table::new("Tasks: all metrics", "Task", &columns);
    for task in &results.tasks {
        let rest = [duration(task.cpu_time_ns), count(task.context_switches), count(task.migrations)];
        table.row(format!("{}/{}", task.parent, task.name), job_cells(&task.jobs).into_iter().chain(rest));
    }
    table
}

fn vcpus(results: &Results) -> Table {
    let columns = [
        "Processor time",
        "Idled away",
        "Budget used up",
        "Replenished",
        "Wake-ups",
        "Sleeps",
        "Switches",
        "Migrations",
        "Wake latency p99",
        "Longest",
    ];
    let mut table = Table::new("vCPUs: all metrics", "vCPU", &columns);
    for vcpu in &results.vcpus {
        let of = |count: fn(UnitCounts) -> u64| vcpu.counts.map(count);
        let cells = [
            duration(vcpu.cpu_time_ns),
            of(|counts| counts.idled_away_ns).map_or_else(|| Cell::number("-"), duration),
            count(of(|counts| counts.exhaustions)),
            count(of(|counts| counts.replenishments)),
            count(of(|counts| counts.wakes)),
            count(of(|counts| counts.sleeps)),
            count(vcpu.context_switches),
            count(vcpu.migrations),
            latency(&vcpu.wake_latency, vcpu.wake_latency.quantile_ppm(990_000).as_ns()),
            latency(&vcpu.wake_latency, vcpu.wake_latency.max().as_ns()),
        ];
        table.row(&vcpu.name, cells);
    }
    table
}

fn domains(results: &Results) -> Table {
    let rest = ["Processor time", "Decisions", "Switches", "Migrations", "Budget used up", "Replenished"];
    let mut table = Table::new("Domains: all metrics", "Domain", &[&JOBS[..], &rest].concat());
    for domain in &results.domains {
        let rest = [
            duration(domain.cpu_time_ns),
            count(domain.decisions),
            count(domain.context_switches),
            count(domain.migrations),
            count(domain.exhaustions),
            count(domain.replenishments),
        ];
        table.row(&domain.name, job_cells(&domain.jobs).into_iter().chain(rest));
    }
    table
}

fn processors(results: &Results) -> Table {
    let columns = ["Pool", "Executing", "Idle", "Scheduling", "Decisions", "Switches"];
    let mut table = Table::new("Processors: all metrics", "Processor", &columns);
    for processor in &results.processors {
        let cells = [
            Cell::text(processor.pool.as_deref().unwrap_or("none")),
            duration(processor.busy_ns),
            duration(processor.idle_ns),
            duration(processor.overhead_ns),
            count(processor.decisions),
            count(processor.context_switches),
        ];
        table.row(processor.processor.to_string(), cells);
    }
    table
}

fn pools(results: &Results) -> Table {
    let columns = [
        "Policy",
        "Processors",
        "Executing",
        "Idle",
        "Scheduling",
        "Decisions",
        "Switches",
        "Migrations",
        "Budget used up",
        "Replenished",
    ];
    let mut table = Table::new("Pools: all metrics", "Pool", &columns);
    for pool in &results.pools {
        let cells = [
            Cell::text(&pool.policy),
            count(pool.processors as u64),
            duration(pool.busy_ns),
            duration(pool.idle_ns),
            duration(pool.overhead_ns),
            count(pool.decisions),
            count(pool.context_switches),
            count(pool.migrations),
            count(pool.exhaustions),
            count(pool.replenishments),
        ];
        table.row(&pool.name, cells);
    }
    table
}

/// What vCPUs of a live run were delivered.
fn deliveries(results: &Results) -> Table {
    let columns = [
        "Periods",
        "Budget delivered or not wanted",
        "Longest without the processor, ready",
        "Waited for the processor p50",
        "p99",
        "Longest",
    ];
    let mut table = Table::new("vCPUs: what they were delivered", "vCPU", &columns);
    for (vcpu, of) in results.vcpus.iter().filter_map(|vcpu| Some((vcpu, vcpu.delivery.as_ref()?))) {
        let wait = |ns: u64| latency(&of.wait, ns);
        let cells = [
            count(of.periods),
            Cell::number(fmt_share(of.delivered, of.periods)),
            duration(of.longest_without_ns),
            wait(of.wait.quantile_ppm(500_000).as_ns()),
            wait(of.wait.quantile_ppm(990_000).as_ns()),
            wait(of.wait.max().as_ns()),
        ];
        table.row(&vcpu.name, cells);
    }
    table
}

/// What enforcement did, of pools that were under it.
fn enforcement(results: &Results) -> Table {
    let columns = [
        "Looks",
        "Enforcers' share",
        "Overrun p50",
        "p99",
        "Longest",
        "Replenished late p99",
        "Longest",
        "Look late p99",
        "Longest",
        "Stolen, charged to no budget",
    ];
    let mut table = Table::new("Enforcement: all metrics", "Pool", &columns);
    for (pool, done) in results.pools.iter().filter_map(|pool| Some((pool, pool.enforcement.as_ref()?))) {
        let latency = |of: &punctual_model::Histogram, ns: u64| match of.count() {
            0 => Cell::number("-"),
            _ => duration(ns),
        };
        let p99 = |of: &punctual_model::Histogram| latency(of, of.quantile_ppm(990_000).as_ns());
        let most = |of: &punctual_model::Histogram| latency(of, of.max().as_ns());
        let cells = [
            count(done.looks),
            Cell::number(fmt_share(done.enforcer_ns, done.session_ns)),
            latency(&done.overrun, done.overrun.quantile_ppm(500_000).as_ns()),
            p99(&done.overrun),
            most(&done.overrun),
            p99(&done.replenishment_lateness),
            most(&done.replenishment_lateness),
            p99(&done.look_lateness),
            most(&done.look_lateness),
            duration(done.stolen_ns),
        ];
        table.row(&pool.name, cells);
    }
    table
}

/// Each part of the way of each flow and chain.
fn segments(results: &Results) -> Table {
    let columns = ["Part", "Packets", "Least", "Mean", "p50", "p90", "p99", "p99.9", "Longest"];
    let mut table = Table::new("Parts of packets' ways: all metrics", "Flow", &columns);
    let flows = results.flows.iter().map(|flow| (flow.name.clone(), &flow.segments));
    let chains = results.chains.iter().map(|chain| (chain_name(chain), &chain.segments));
    for (name, parts) in flows.chain(chains) {
        for SegmentResult { segment, time: of } in parts {
            let quantile = |ppm| duration(of.quantile_ppm(ppm).as_ns());
            let cells = [
                Cell::text(segment.name()),
                count(of.count()),
                duration(of.min().as_ns()),
                duration(of.mean().as_ns()),
                quantile(500_000),
                quantile(900_000),
                quantile(990_000),
                quantile(999_000),
                duration(of.max().as_ns()),
            ];
            table.row(&name, cells);
        }
    }
    table
}

fn networks(results: &Results) -> Table {
    let columns =
        ["Driver domain", "Discipline", "Packets in TX", "softnet", "RX", "Events handled", "Events sent"];
    let mut table = Table::new("Networks: all metrics", "Network", &columns);
    for network in &results.networks {
        let cells = [
            Cell::text(&network.driver),
            Cell::text(&network.discipline),
            count(network.tx),
            count(network.softnet),
            count(network.rx),
            count(network.events_handled),
            count(network.events_sent),
        ];
        table.row(&network.name, cells);
    }
    table
}
