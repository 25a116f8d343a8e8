//! `punctual policies`: what the registry knows.

use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser};
use punctual_report::table::WIDTH;
use punctual_sched::registry::{self, ParamInfo, ParamKind, PolicyInfo, WorkConservation};
use serde_json::{Value, json};

use super::output::Ui;
use super::{Failure, exit};

/// List the scheduling policies, or say everything about one.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  punctual policies\n  punctual policies rtds\n  punctual policies --json"
)]
pub struct Args {
    /// Say everything about this policy.
    #[arg(value_name = "NAME", hide_possible_values = true, value_parser = names())]
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(registry::policies().iter().map(|p| PossibleValue::new(p.name).help(p.summary)))
}

/// Runs `punctual policies`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Failure> {
    let one = args.name.as_deref().and_then(registry::find);
    match (one, args.json) {
        (Some(policy), true) => ui.print_json(&to_json(policy))?,
        (None, true) => {
            let all: Vec<Value> = registry::policies().iter().map(to_json).collect();
            ui.print_json(&all)?;
        }
        (Some(policy), false) => ui.print(describe(policy))?,
        (None, false) => ui.print(list())?,
    }
    Ok(exit::OK)
}

fn list() -> String {
    let width = registry::policies().iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for policy in registry::policies() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{}", entry("", policy.name, width, policy.summary));
    }
    out + "\n`punctual policies NAME` says everything about one.\n"
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
        let _ = writeln!(out, "{}", entry("  ", param.name, width, &text));
    }
}

/// A name and, beside it, a text wrapped to the width of the tables.
fn entry(indent: &str, name: &str, width: usize, text: &str) -> String {
    let hanging = " ".repeat(indent.len() + width + 2);
    let first = format!("{indent}{name:width$}  ");
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(&first)
        .subsequent_indent(&hanging)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
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

fn param_to_json(param: &ParamInfo) -> Value {
    let kind = match param.kind {
        ParamKind::Duration => json!({ "type": "duration" }),
        ParamKind::DurationOr(words) => json!({ "type": "duration-or-word", "words": words }),
        ParamKind::Count { min, max } => json!({ "type": "count", "min": min, "max": max }),
        ParamKind::Flag => json!({ "type": "flag" }),
        ParamKind::Choice(words) => json!({ "type": "word", "words": words }),
    };
    json!({ "name": param.name, "kind": kind, "default": param.default, "help": param.help })
}
