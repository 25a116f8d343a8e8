//! `punctual doctor`: what on this host threatens latency.

use std::fmt::Write as _;
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use clap::builder::PossibleValuesParser;
use punctual_doctor::doctor::{self, Change, Cpus, Finding, Findings, Root, Severity, reversible_changes};
use punctual_model::Host;
use punctual_model::text::printable;

use super::error::Error;
use super::input::{Changes, HostFile};
use super::output::{Ui, wrapped};
use super::{exit, live};

/// Find what threatens latency on this machine, explain why, and say what to do about it.
///
/// Reads the kernel's settings and changes nothing. The pools' processors come from the host file; without
/// one they are all but the first. Settings that cannot be read are `unknown`, with the reason. Exit code 0:
/// nothing worse than a note, or unknown; 1: a warning or worse; 2: the command line or a file is wrong.
/// docs/doctor.md explains the checks.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual doctor                          what threatens latency here?\n  \
    punctual doctor examples/five-vms.toml   on the processors of this host's pools\n  \
    punctual doctor --explain irqs           what is read, how it is judged, what was found\n  \
    punctual doctor --json | jq -r '.findings[] | select(.severity == \"warning\").fix'\n  \
    punctual doctor --root /tmp/copy         a copy of another machine's /proc and /sys")]
pub(super) struct Args {
    /// The host file whose pools say which processors matter; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: Option<PathBuf>,
    /// Explain one check: what is read, how it is judged, and what was found.
    #[arg(
        long,
        value_name = "CHECK",
        value_parser = PossibleValuesParser::new(doctor::checks().map(|check| check.id)),
        hide_possible_values = true
    )]
    explain: Option<String>,
    /// Read the files of another machine, copied below this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: Changes,
}

/// Runs `punctual doctor`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let host = match &args.file {
        Some(file) => Some(HostFile::read(file)?.host(&args.changes.overrides(None))?),
        None => None,
    };
    let (pool, named) = (host.as_ref().map(processors), host.is_some());
    let mut findings = doctor::examine(Root::new(&args.root), pool).map_err(|error| {
        Error::Usage(format!("{} is not a running Linux system: {error}", args.root.display()))
    })?;
    if let Some(host) = &host {
        let short = live::beside_fair_server(host, &args.root)?;
        let fair_server = findings.findings.iter_mut().find(|finding| finding.id == "fair-server");
        if let Some(finding) = fair_server.filter(|_| !short.is_empty()) {
            finding.summary = format!("{}; {}", finding.summary, short.join("; "));
        }
    }
    if let Some(id) = &args.explain {
        findings.findings.retain(|finding| finding.id == *id);
    }
    let colour = ui.stdout_has_colour();
    if args.json {
        ui.print_json(&findings)?;
    } else if args.explain.is_some() {
        ui.print(findings.findings.iter().map(|finding| explained(finding, colour)).collect::<String>())?;
    } else {
        ui.print(report(&findings, named, colour))?;
    }
    Ok(if findings.any_bad() { exit::MISSED } else { exit::OK })
}

/// Every processor that a pool uses.
fn processors(host: &Host) -> Cpus {
    host.pools.iter().flat_map(|pool| pool.processors.iter().copied()).collect()
}

fn report(findings: &Findings, named: bool, colour: bool) -> String {
    let list = |cpus: &[usize]| cpus.iter().copied().collect::<Cpus>().to_string();
    let whence = if named { "the host file's" } else { "without a host file all but the first" };
    let (pool, online) = (list(&findings.pool), list(&findings.online));
    let mut out = if findings.pool.iter().all(|cpu| findings.online.contains(cpu)) {
        format!("Processors of pools: {pool} of {online} ({whence})\n")
    } else {
        format!("This machine has processors {online}; the host file asks for {pool}\n")
    };
    for severity in Severity::ALL {
        let of: Vec<&Finding> = findings.findings.iter().filter(|f| f.severity == severity).collect();
        if !of.is_empty() {
            let style = if colour { style(severity) } else { Style::new() };
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(out, "\n{style}{} ({}){style:#}", heading(severity), of.len());
            out.extend(of.into_iter().map(row));
        }
    }
    out + &planned(&reversible_changes(findings))
}

fn heading(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "Critical",
        Severity::Warning => "Warnings",
        Severity::Unknown => "Unknown",
        Severity::Note => "Notes",
        Severity::Ok => "Ok",
    }
}

fn style(severity: Severity) -> Style {
    let colour = match severity {
        Severity::Critical => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Unknown => AnsiColor::Magenta,
        Severity::Note => AnsiColor::Cyan,
        Severity::Ok => AnsiColor::Green,
    };
    Style::new().bold().fg_color(Some(colour.into()))
}

/// Room for the checks' names.
const NAMES: usize = 17;

fn row(finding: &Finding) -> String {
    let indent = " ".repeat(NAMES + 2);
    let mut out = wrapped(&format!("  {:<NAMES$}", finding.id), &indent, &finding.summary);
    if finding.severity.is_bad() {
        out += &wrapped(&indent, &indent, finding.why);
    }
    if let Some(fix) = finding.fix.as_ref().filter(|_| finding.severity != Severity::Ok) {
        // Not wrapped, so that it can be pasted.
        out += &format!("{indent}$ {}\n", printable(fix));
    }
    out
}

/// What can be changed and put back.
fn planned(changes: &[Change]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut out = "\n`punctual run --apply` changes for the time of a run and puts back:\n".to_owned();
    for change in changes {
        out += &format!("  {}\n", printable(&shown(change)));
    }
    out
}

fn shown(change: &Change) -> String {
    match change {
        Change::SetFile { path, value, restore, .. } => {
            format!("{}: {restore} -> {value}", path.display())
        }
        Change::HoldOpen { path, value, .. } => format!("{}: held open with {value}", path.display()),
        Change::SetThreadPriority { tid, name, priority, .. } => {
            format!("thread {tid} ({name}): SCHED_FIFO priority {priority}")
        }
    }
}

fn explained(finding: &Finding, colour: bool) -> String {
    let (bold, style) =
        if colour { (Style::new().bold(), style(finding.severity)) } else { (Style::new(), Style::new()) };
    let mut out = format!("{bold}{}: {}{bold:#}\n\n", finding.id, finding.title);
    let judged = doctor::checks().find(|check| check.id == finding.id).map_or("", |check| check.judged);
    let fields = [("why", finding.why), ("source", finding.source), ("judged", judged)];
    for (name, text) in fields {
        out += &wrapped(&format!("{name:<8}"), &" ".repeat(8), text);
    }
    let _ = writeln!(out, "\n{style}{}{style:#}: {}", finding.severity.name(), printable(&finding.summary));
    for reading in &finding.readings {
        let _ = writeln!(out, "  read  {}: {}", printable(&reading.path), printable(&reading.value));
    }
    if let Some(fix) = &finding.fix {
        let _ = writeln!(out, "  fix   {}", printable(fix));
    }
    for change in &finding.changes {
        let _ = writeln!(out, "  set   {} ({})", printable(&shown(change)), change.why());
    }
    out
}
