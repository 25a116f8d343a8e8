//! What was run: everything that is needed to run it again.

use punctual_model::Results;
use punctual_model::results::Source;

use super::markup::{Cell, Section, Table, escape};
use super::{Page, time};
use crate::format::fmt_count;

/// The policies of the pools, each once.
pub fn policies(results: &Results) -> String {
    let mut names: Vec<&str> = Vec::new();
    for pool in &results.pools {
        if !names.contains(&pool.policy.as_str()) {
            names.push(&pool.policy);
        }
    }
    names.join(" + ")
}

/// One line below the title.
pub fn subtitle(page: &Page<'_>) -> String {
    match page.columns {
        [one] => {
            let results = &one.results;
            let runs = if results.runs == 1 { String::new() } else { format!("{} runs of ", results.runs) };
            format!(
                "{} under {}, {runs}{}, seed {}",
                if results.source == Source::Live { "Measured live" } else { "Simulated" },
                policies(results),
                time(results.duration_ns),
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
pub fn section(page: &Page<'_>) -> Section {
    // One host's name is the page's title.
    let is_one_host = page.columns.iter().all(|column| column.results.host == page.columns[0].results.host);
    let host = (!is_one_host).then_some("Host");
    let columns: Vec<&str> = ["Result", "How"]
        .into_iter()
        .chain(host)
        .chain(["Pools", ">Length", ">Seed", ">Events", "Version"])
        .collect();
    let mut table = Table::new("What was run", &columns);
    for column in page.columns {
        let results = &column.results;
        let pools: Vec<String> = results
            .pools
            .iter()
            .map(|pool| {
                let plural = if pool.processors == 1 { "" } else { "s" };
                let of = escape(&pool.policy);
                format!(
                    "{}: <strong>{of}</strong> on {} processor{plural}",
                    escape(&pool.name),
                    pool.processors
                )
            })
            .collect();
        let length = match results.runs {
            1 => time(results.duration_ns),
            runs => format!("{} x {}", fmt_count(runs.into()), time(results.duration_ns)),
        };
        let how = match results.source {
            Source::Simulation => format!("simulated, {} processors", results.processors.len()),
            Source::Live => match &results.machine {
                Some(machine) => format!("live on {machine}"),
                None => format!("live, {} processors", results.processors.len()),
            },
        };
        let mut row = vec![Cell::text(column.label.clone()), Cell::text(how)];
        row.extend(host.map(|_| Cell::text(results.host.clone())));
        row.extend([
            Cell::Markup(pools.join("<br>")),
            Cell::number(length),
            Cell::number(results.seed.to_string()),
            Cell::number(fmt_count(results.events)),
            Cell::text(results.program.clone()),
        ]);
        table.rows.push(row);
    }
    let mut notes: Vec<String> = Vec::new();
    if page.columns.iter().any(|column| column.results.source == Source::Simulation) {
        let text =
            "The same host file, seed and version of Punctual give the same simulation again, to the byte.";
        notes.push(text.into());
    }
    if let Some((label, timeline)) = page.timeline {
        let (from, to) = (time(timeline.from_ns), time(timeline.to_ns));
        notes.push(format!("The timeline shows {from} to {to} of {}.", escape(label)));
    }
    let note = format!("<p class=\"note\">{}</p>\n", notes.join(" "));
    Section::new("run", "What was run", table.html() + &note).called("Run")
}
