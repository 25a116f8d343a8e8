//! What was run: everything that is needed to run it again.

use maud::{Markup, html};
use punctual_model::Results;
use punctual_model::results::{PoolResult, Source};

use super::markup::{Cell, Section, Table};
use super::page::Page;
use crate::format::{fmt_count, fmt_ns};

/// The policies of the pools, each once.
pub(super) fn policies(results: &Results) -> String {
    let mut names: Vec<&str> = Vec::new();
    for pool in &results.pools {
        if !names.contains(&pool.policy.as_str()) {
            names.push(&pool.policy);
        }
    }
    names.join(" + ")
}

/// One line below the title.
pub(crate) fn subtitle(page: &Page<'_>) -> String {
    match page.columns {
        [one] => {
            let results = &one.results;
            let runs = if results.runs == 1 { String::new() } else { format!("{} runs of ", results.runs) };
            format!(
                "{}{}, {runs}{}, seed {}",
                if results.source == Source::Live { "Measured live" } else { "Simulated" },
                // The host's network stack has no pools.
                if results.pools.is_empty() {
                    String::new()
                } else {
                    format!(" under {}", policies(results))
                },
                fmt_ns(results.duration_ns),
                results.seed
            )
        }
        several => {
            let labels: Vec<&str> = several.iter().map(|column| column.label.as_str()).collect();
            format!("{} results side by side: {}", several.len(), labels.join(", "))
        }
    }
}

/// A row per result.
pub(super) fn section(page: &Page<'_>) -> Section {
    // One host's name is the page's title.
    let is_one_host = page.columns.iter().all(|column| column.results.host == page.columns[0].results.host);
    let host = (!is_one_host).then_some("Host");
    let columns: Vec<&str> =
        ["How"].into_iter().chain(host).chain(["Pools", "Length", "Seed", "Events", "Version"]).collect();
    let mut table = Table::new("What was run", "Result", &columns);
    for column in page.columns {
        let results = &column.results;
        let length = match results.runs {
            1 => fmt_ns(results.duration_ns),
            runs => format!("{} x {}", fmt_count(runs.into()), fmt_ns(results.duration_ns)),
        };
        let mut row = vec![Cell::text(how(results))];
        row.extend(host.map(|_| Cell::text(&results.host)));
        row.extend([
            Cell::text(pools(&results.pools)),
            Cell::number(length),
            Cell::number(results.seed),
            Cell::number(fmt_count(results.events)),
            Cell::text(&results.program),
        ]);
        table.row(&column.label, row);
    }
    let changes =
        page.columns.iter().map(|column| &column.results.changes).find(|changes| !changes.is_empty());
    let is_simulated = page.columns.iter().any(|column| column.results.source == Source::Simulation);
    let body = html! {
        (table)
        @if let Some(changes) = changes {
            p { "The host changed during the run:" }
            ul {
                @for change in changes {
                    li { "from " (fmt_ns(change.at_ns)) " on, " (change.change) " (" (change.name) ")" }
                }
            }
        }
        p.note {
            @if is_simulated {
                "The same host file, seed and version of Punctual give the same simulation again, to the \
                 byte."
            }
            @if let Some((label, timeline)) = page.timeline {
                " The timeline shows " (fmt_ns(timeline.from_ns)) " to " (fmt_ns(timeline.to_ns))
                " of " (label) "."
            }
        }
    };
    Section::new("run", "What was run", body).called("Run")
}

fn how(results: &Results) -> String {
    let processors = results.processors.len();
    match (results.source, &results.machine) {
        (Source::Simulation, _) => format!("simulated, {processors} processors"),
        (Source::Live, Some(machine)) => format!("live on {machine}"),
        (Source::Live, None) => format!("live, {processors} processors"),
    }
}

fn pools(pools: &[PoolResult]) -> Markup {
    html! {
        @for (i, pool) in pools.iter().enumerate() {
            @if i > 0 { br; }
            (pool.name) ": " strong { (pool.policy) } " on " (pool.processors) " processor"
            @if pool.processors != 1 { "s" }
        }
    }
}
