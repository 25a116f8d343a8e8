//! `punctual policies`: what the registries of scheduling policies and packet disciplines know.

use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser};
use punctual_net::discipline::DisciplineInfo;
use punctual_net::registry::{disciplines, find as find_discipline};
use punctual_sched::registry::{self, ParamInfo, ParamKind, PolicyInfo, WorkConservation};
use serde_json::{Value, json};

use super::error::Error;
use super::exit;
use super::output::{Ui, wrapped};

/// List the scheduling policies and packet disciplines, or describe one in full.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual policies\n  \
    punctual policies rtds\n  \
    punctual policies rtca\n  \
    punctual policies --json")]
pub(super) struct Args {
    /// Describe this policy or discipline in full.
    #[arg(value_name = "NAME", hide_possible_values = true, value_parser = names())]
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    let policies = registry::policies().iter().map(|p| (p.name, p.summary));
    let disciplines = disciplines().iter().map(|d| (d.name, d.summary));
    PossibleValuesParser::new(
        policies.chain(disciplines).map(|(name, help)| PossibleValue::new(name).help(help)),
    )
}

/// Runs `punctual policies`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let name = args.name.as_deref();
    let (policy, discipline) = (name.and_then(registry::find), name.and_then(find_discipline));
    match (policy, discipline, args.json) {
        (Some(policy), _, true) => ui.print_json(&to_json(policy))?,
        (Some(policy), _, false) => ui.print(describe(policy))?,
        (None, Some(discipline), true) => ui.print_json(&discipline_to_json(discipline))?,
        (None, Some(discipline), false) => ui.print(describe_discipline(discipline))?,
        (None, None, true) => {
            let policies = registry::policies().iter().map(to_json);
            let all: Vec<Value> = policies.chain(disciplines().iter().map(discipline_to_json)).collect();
            ui.print_json(&all)?;
        }
        (None, None, false) => ui.print(list())?,
    }
    Ok(exit::OK)
}

fn list() -> String {
    let policies = registry::policies().iter().map(|p| (p.name, p.summary));
    let disciplines = disciplines().iter().map(|d| (d.name, d.summary));
    let width = policies.clone().chain(disciplines.clone()).map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, summary) in policies {
        out += &entry("", name, width, summary);
    }
    out += "\nPacket disciplines of a network's driver domain:\n";
    for (name, summary) in disciplines {
        out += &entry("", name, width, summary);
    }
    out + "\n`punctual policies NAME` describes one in full.\n"
}

fn describe_discipline(discipline: &DisciplineInfo) -> String {
    let mut out = format!("{}: {}\n\n", discipline.name, discipline.summary);
    let _ = writeln!(out, "Source: {}", discipline.source);
    section(&mut out, "Parameters of a guest's interface", discipline.interface_params);
    let title = format!("Options of the discipline, in a table `{}` of the network", discipline.name);
    section(&mut out, &title, discipline.options);
    out
}

fn describe(policy: &PolicyInfo) -> String {
    let mut out = format!("{}: {}\n\n", policy.name, policy.summary);
    let _ = writeln!(out, "Source: {}", policy.source);
    let _ = writeln!(out, "Idle processors: {}.", promise(policy.work_conservation));
    let _ = writeln!(
        out,
        "Run queue: {}.",
        if policy.shared_queue { "one for the pool" } else { "one per processor" }
    );
    section(&mut out, "Parameters of a unit (a vCPU, or a task in a guest)", policy.unit_params);
    section(
        &mut out,
        &format!("Options of the policy, in a table `{}` of the pool", policy.name),
        policy.options,
    );
    out
}

fn section(out: &mut String, title: &str, params: &[ParamInfo]) {
    if params.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}:");
    let width = params.iter().map(|p| p.name.len()).max().unwrap_or(0);
    for param in params {
        let default = match param.default {
            Some(default) => format!("default {default}"),
            None => "no default".into(),
        };
        let text = format!("{} ({}; {default})", param.help, takes(param.kind));
        *out += &entry("  ", param.name, width, &text);
    }
}

/// A name and, beside it, a text wrapped to the width of the tables.
fn entry(indent: &str, name: &str, width: usize, text: &str) -> String {
    let hanging = " ".repeat(indent.len() + width + 2);
    let first = format!("{indent}{name:width$}  ");
    wrapped(&first, &hanging, text)
}

fn promise(promise: WorkConservation) -> &'static str {
    match promise {
        WorkConservation::Always => "none idles while a runnable unit waits",
        WorkConservation::WithinBudget => "none idles while a runnable unit with budget waits",
        WorkConservation::Never => "may idle although a unit waits",
    }
}

fn takes(kind: ParamKind) -> String {
    match kind {
        ParamKind::Duration => "duration".into(),
        ParamKind::DurationOr(words) => format!("duration or {}", words.join(", ")),
        ParamKind::Count { min, max } => format!("{min} to {max}"),
        ParamKind::Flag => "true or false".into(),
        ParamKind::Choice(words) => words.join(", "),
    }
}

fn to_json(policy: &PolicyInfo) -> Value {
    json!({
        "kind": "policy",
        "name": policy.name,
        "summary": policy.summary,
        "source": policy.source,
        "work_conservation": match policy.work_conservation {
            WorkConservation::Always => "always",
            WorkConservation::WithinBudget => "within-budget",
            WorkConservation::Never => "never",
        },
        "shared_queue": policy.shared_queue,
        "unit_params": policy.unit_params.iter().map(param_to_json).collect::<Vec<_>>(),
        "options": policy.options.iter().map(param_to_json).collect::<Vec<_>>(),
    })
}

fn discipline_to_json(discipline: &DisciplineInfo) -> Value {
    json!({
        "kind": "discipline",
        "name": discipline.name,
        "summary": discipline.summary,
        "source": discipline.source,
        "interface_params": discipline.interface_params.iter().map(param_to_json).collect::<Vec<_>>(),
        "options": discipline.options.iter().map(param_to_json).collect::<Vec<_>>(),
    })
}

fn param_to_json(param: &ParamInfo) -> Value {
    let kind = match param.kind {
        ParamKind::Duration => json!({ "type": "duration" }),
        ParamKind::DurationOr(words) => json!({ "type": "duration-or-word", "words": words }),
        ParamKind::Count { min, max } => json!({ "type": "count", "min": min, "max": max }),
        ParamKind::Flag => json!({ "type": "flag" }),
        ParamKind::Choice(words) => json!({ "type": "word", "words": words }),
    };
    let default = param.default.map(|default| default.to_string());
    json!({ "name": param.name, "kind": kind, "default": default, "help": param.help })
}
