//! Every metric of every task, vCPU, domain, processor, pool and network, folded away.

use punctual_model::Results;
use punctual_model::results::{JobStats, SegmentResult};

use super::markup::{Cell, Section, Table, details, escape};
use super::verdict::chain_name;
use super::{Column, Page, time};
use crate::format::{fmt_count, fmt_share};

/// The section.
pub fn section(page: &Page<'_>) -> Section {
    let body: String = page.columns.iter().map(|column| of_column(column, page.columns.len() > 1)).collect();
    Section::new("details", "All numbers", body)
}

fn of_column(column: &Column, with_heading: bool) -> String {
    let results = &column.results;
    let heading = if with_heading { format!("<h3>{}</h3>\n", escape(&column.label)) } else { String::new() };
    let tables = [
        tasks(results),
        vcpus(results),
        domains(results),
        processors(results),
        pools(results),
        segments(results),
        networks(results),
    ];
    let folded = tables.iter().filter(|table| !table.rows.is_empty()).map(|table| {
        let (title, _) = table.caption.split_once(':').unwrap_or((&table.caption, ""));
        details(&format!("{title} ({})", table.rows.len()), &table.html())
    });
    heading + &folded.collect::<String>()
}

fn count(n: u64) -> Cell {
    Cell::number(fmt_count(n))
}

fn duration(ns: u64) -> Cell {
    Cell::number(time(ns))
}

fn job_cells(jobs: &JobStats) -> Vec<Cell> {
    let latency = |of: &punctual_model::Recorder, ns: u64| match of.count() {
        0 => Cell::number("-"),
        _ => duration(ns),
    };
    vec![
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
    ">Released",
    ">Finished",
    ">Due",
    ">Missed",
    ">Miss ratio",
    ">Response p99",
    ">Longest",
    ">Latest by",
    ">Start latency p99",
];

fn tasks(results: &Results) -> Table {
    let mut columns = vec!["Task"];
    columns.extend(JOBS);
    columns.extend([">Processor time", ">Switches", ">Migrations"]);
    let mut table = Table::new("Tasks: all metrics", &columns);
    for task in &results.tasks {
        let mut row = vec![Cell::text(format!("{}/{}", task.parent, task.name))];
        row.extend(job_cells(&task.jobs));
        row.extend([duration(task.cpu_time_ns), count(task.context_switches), count(task.migrations)]);
        table.rows.push(row);
    }
    table
}

fn vcpus(results: &Results) -> Table {
    let columns = [
        "vCPU",
        ">Processor time",
        ">Idled away",
        ">Budget used up",
        ">Replenished",
        ">Wake-ups",
        ">Sleeps",
        ">Switches",
        ">Migrations",
        ">Wake latency p99",
        ">Longest",
    ];
    let mut table = Table::new("vCPUs: all metrics", &columns);
    for vcpu in &results.vcpus {
        table.rows.push(vec![
            Cell::text(vcpu.name.clone()),
            duration(vcpu.cpu_time_ns),
            duration(vcpu.idled_away_ns),
            count(vcpu.exhaustions),
            count(vcpu.replenishments),
            count(vcpu.wakes),
            count(vcpu.sleeps),
            count(vcpu.context_switches),
            count(vcpu.migrations),
            duration(vcpu.wake_latency.quantile_ppm(990_000).as_ns()),
            duration(vcpu.wake_latency.max().as_ns()),
        ]);
    }
    table
}

fn domains(results: &Results) -> Table {
    let mut columns = vec!["Domain"];
    columns.extend(JOBS);
    columns.extend([
        ">Processor time",
        ">Decisions",
        ">Switches",
        ">Migrations",
        ">Budget used up",
        ">Replenished",
    ]);
    let mut table = Table::new("Domains: all metrics", &columns);
    for domain in &results.domains {
        let mut row = vec![Cell::text(domain.name.clone())];
        row.extend(job_cells(&domain.jobs));
        row.push(duration(domain.cpu_time_ns));
        row.extend(
            [
                domain.decisions,
                domain.context_switches,
                domain.migrations,
                domain.exhaustions,
                domain.replenishments,
            ]
            .map(count),
        );
        table.rows.push(row);
    }
    table
}

fn processors(results: &Results) -> Table {
    let columns = ["Processor", "Pool", ">Executing", ">Idle", ">Scheduling", ">Decisions", ">Switches"];
    let mut table = Table::new("Processors: all metrics", &columns);
    for processor in &results.processors {
        table.rows.push(vec![
            Cell::text(processor.processor.to_string()),
            Cell::text(processor.pool.clone().unwrap_or_else(|| "none".into())),
            duration(processor.busy_ns),
            duration(processor.idle_ns),
            duration(processor.overhead_ns),
            count(processor.decisions),
            count(processor.context_switches),
        ]);
    }
    table
}

fn pools(results: &Results) -> Table {
    let columns = [
        "Pool",
        "Policy",
        ">Processors",
        ">Executing",
        ">Idle",
        ">Scheduling",
        ">Decisions",
        ">Switches",
        ">Migrations",
        ">Budget used up",
        ">Replenished",
    ];
    let mut table = Table::new("Pools: all metrics", &columns);
    for pool in &results.pools {
        table.rows.push(vec![
            Cell::text(pool.name.clone()),
            Cell::text(pool.policy.clone()),
            count(pool.processors as u64),
            duration(pool.busy_ns),
            duration(pool.idle_ns),
            duration(pool.overhead_ns),
            count(pool.decisions),
            count(pool.context_switches),
            count(pool.migrations),
            count(pool.exhaustions),
            count(pool.replenishments),
        ]);
    }
    table
}

/// Each part of the way of each flow and chain.
fn segments(results: &Results) -> Table {
    let columns =
        ["Flow", "Part", ">Packets", ">Least", ">Mean", ">p50", ">p90", ">p99", ">p99.9", ">Longest"];
    let mut table = Table::new("Parts of packets' ways: all metrics", &columns);
    let flows = results.flows.iter().map(|flow| (flow.name.clone(), &flow.segments));
    let chains = results.chains.iter().map(|chain| (chain_name(chain), &chain.segments));
    for (name, parts) in flows.chain(chains) {
        for SegmentResult { segment, time: of } in parts {
            let quantile = |ppm| duration(of.quantile_ppm(ppm).as_ns());
            table.rows.push(vec![
                Cell::text(name.clone()),
                Cell::text(segment.name()),
                count(of.count()),
                duration(of.min().as_ns()),
                duration(of.mean().as_ns()),
                quantile(500_000),
                quantile(900_000),
                quantile(990_000),
                quantile(999_000),
                duration(of.max().as_ns()),
            ]);
        }
    }
    table
}

fn networks(results: &Results) -> Table {
    let columns = [
        "Network",
        "Driver domain",
        "Discipline",
        ">Packets in TX",
        ">softnet",
        ">RX",
        ">Events handled",
        ">Events sent",
    ];
    let mut table = Table::new("Networks: all metrics", &columns);
    for network in &results.networks {
        let mut row: Vec<Cell> =
            [&network.name, &network.driver, &network.discipline].map(|name| Cell::text(name.clone())).into();
        let of = [network.tx, network.softnet, network.rx, network.events_handled, network.events_sent];
        row.extend(of.map(count));
        table.rows.push(row);
    }
    table
}
