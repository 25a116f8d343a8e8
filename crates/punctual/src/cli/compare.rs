//! `punctual compare`: results of the same host side by side, with their differences.

use std::path::{Path, PathBuf};

use punctual_report::comparison::{Tolerances, compare};
use punctual_report::html::Page;
use punctual_report::{Column, json};

use super::error::Error;
use super::input::read_text;
use super::output::{OutFile, Ui, keep_inputs};
use super::{exit, report};

/// Compare results of the same host metric by metric, simulated or live.
///
/// Takes files that `punctual sim --json` or `punctual run --json` wrote. Differences are relative to the
/// first file. Pools, domains, vCPUs and tasks must have the same names; policies, seeds and durations may
/// differ, so that counts are shown per second. Exit code 0: compared; 1: a difference is beyond --tolerance;
/// 2: the command line or a file is wrong, or the hosts differ.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual compare sim.json live.json                               was the prediction right?\n  \
    punctual compare sim.json live.json --tolerance 'miss<=1%,p99<=20%'\n  \
    punctual compare sim.json live.json --report both.html            to look at and to print\n  \
    punctual compare deferrable.json periodic.json rtds.json --detail\n  \
    punctual compare sim.json xen.json live.json --label simulated,Xen,Linux\n  \
    punctual compare sim.json live.json --json | jq '.rows[] | select(.metric == \"p99\")'")]
pub(super) struct Args {
    /// The files with results; the first is the reference. `-` reads standard input.
    #[arg(value_name = "RESULTS.json", num_args = 2.., required = true)]
    files: Vec<PathBuf>,
    /// The greatest difference that passes, by metric: miss, cpu and enforcers in percentage points, p50,
    /// p99, max, exhaustions, decisions, switches, overrun, replenished-late, flow-mean, flow-p50, flow-p99,
    /// delivered and dropped in percent of the first file's value.
    #[arg(long, value_name = "METRIC<=N%,...", value_parser = Tolerances::parse)]
    tolerance: Option<Tolerances>,
    /// Labels of the results, in their order, instead of their own labels or file names.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    label: Vec<String>,
    /// Also show the tasks of each domain.
    #[arg(long)]
    detail: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a report as one HTML page with the results side by side.
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
}

/// Runs `punctual compare`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    keep_inputs(&args.files, &[&args.report])?;
    let mut columns: Vec<Column> = args.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    for (column, label) in columns.iter_mut().zip(report::labels(&args.label, args.files.len())?) {
        column.results.label = Some(label.clone());
    }
    let comparison = compare(&columns, args.detail, args.tolerance.as_ref()).map_err(Error::usage)?;
    if let Some(path) = &args.report {
        columns.iter_mut().zip(comparison.labels()).for_each(|(column, label)| column.label = label);
        let page = Page { columns: &columns, guarantees: None, timeline: None };
        report::write(OutFile::create(path)?, &page)?;
    }
    if args.json {
        ui.print_json(&comparison)?;
    } else {
        ui.print(comparison.text(ui.stdout_has_colour()))?;
    }
    Ok(if comparison.exceeded.is_empty() { exit::OK } else { exit::MISSED })
}

fn read(path: &Path) -> Result<Column, Error> {
    let (name, text) = read_text(path)?;
    if text.trim_start().starts_with('[') {
        let how = "`punctual sim --json` writes one for a single file and policy";
        return Err(Error::Usage(format!("{name} has several results in an array, expected one; {how}")));
    }
    let results = json::from_json(&text, &name).map_err(Error::usage)?;
    Ok(Column { label: name, results })
}
