//! `punctual compare`: results of the same host side by side, with their differences.

mod measure;
mod tolerance;

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use punctual_model::Results;
use punctual_model::results::Source;
use punctual_report::format::fmt_duration;
use punctual_report::html::Page;
use punctual_report::{Column, json, table};
use punctual_sched::Duration;
use serde::Serialize;

use super::error::Error;
use super::output::{OutFile, Ui};
use super::{exit, report};
use measure::{Metric, Value};
use tolerance::Tolerances;

/// Compare results of the same host metric by metric, simulated or live.
///
/// Takes files that `punctual sim --json` or `punctual run --json` wrote. The differences are to the first
/// file. Pools, domains, vCPUs and tasks must have the same names; policies, seeds and durations may differ,
/// so that counts are shown per second. Exit code 0: compared; 1: a difference is beyond --tolerance; 2: the
/// command line or a file is wrong, or the hosts differ.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual compare sim.json live.json                               is the prediction right?\n  \
    punctual compare sim.json live.json --tolerance 'miss<=1%,p99<=20%'\n  \
    punctual compare sim.json live.json --report both.html            to look at and to print\n  \
    punctual compare deferrable.json periodic.json rtds.json --detail\n  \
    punctual compare sim.json live.json --json | jq '.rows[] | select(.metric == \"p99\")'")]
pub struct Args {
    /// The files with results, the one to compare with first; `-` reads standard input.
    #[arg(value_name = "RESULTS.json", num_args = 2.., required = true)]
    files: Vec<PathBuf>,
    /// The greatest difference that passes, by metric: miss and cpu in percentage points, p50, p99, max,
    /// exhaustions, decisions and switches in percent of the first file's value.
    #[arg(long, value_name = "METRIC<=N%,...", value_parser = tolerance::parse)]
    tolerance: Option<Tolerances>,
    /// Show tasks of domains as well.
    #[arg(long)]
    detail: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a report as one HTML page with the results side by side.
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
}

/// Greatest size of a file with results: those of 10,000 vCPUs have some 100 MB.
const BYTES_MAX: u64 = 1 << 30;

/// Everything that is compared.
#[derive(Serialize)]
struct Comparison {
    format: &'static str,
    version: u32,
    files: Vec<Compared>,
    rows: Vec<Row>,
    /// Differences beyond the tolerance; empty without one.
    exceeded: Vec<Exceeded>,
}

/// A file of results.
#[derive(Serialize)]
struct Compared {
    file: String,
    source: Source,
    host: String,
    policies: Vec<String>,
    seed: u64,
    runs: u32,
    duration_ns: u64,
}

/// One metric of one entity in all files.
#[derive(Serialize)]
struct Row {
    metric: Metric,
    unit: &'static str,
    of: String,
    /// In the order of the files; nothing where nothing was measured.
    values: Vec<Option<u64>>,
    /// To the first file, in the same order without it.
    differences: Vec<Option<i64>>,
    /// The same in millionths of the first file's value.
    relative_ppm: Vec<Option<i64>>,
    #[serde(skip)]
    shown: Vec<Option<Value>>,
}

/// A difference beyond the tolerance.
#[derive(Serialize)]
struct Exceeded {
    metric: Metric,
    of: String,
    file: String,
    /// In a sentence.
    what: String,
}

/// Runs `punctual compare`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let results: Vec<(String, Results)> =
        args.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let (first, others) = results.split_first().expect("clap asks for two files");
    others.iter().try_for_each(|other| same_host(first, other))?;
    let comparison = compare(&results, args.detail, args.tolerance.as_ref());
    if let Some(path) = &args.report {
        let columns: Vec<Column> = labels(&comparison.files)
            .into_iter()
            .zip(&results)
            .map(|(label, (_, results))| Column { label, results: results.clone() })
            .collect();
        let page = Page { columns: &columns, guarantees: None, timeline: None };
        report::write(OutFile::create(path)?, &page)?;
    }
    if args.json {
        ui.print_json(&comparison)?;
    } else {
        ui.print(text(&comparison, args.tolerance.is_some(), ui.stdout_has_colour()))?;
    }
    Ok(if comparison.exceeded.is_empty() { exit::OK } else { exit::MISSED })
}

fn read(path: &Path) -> Result<(String, Results), Error> {
    let stdin = path == Path::new("-");
    let name = if stdin { "standard input".into() } else { path.display().to_string() };
    let mut text = String::new();
    let read = match stdin {
        true => std::io::stdin().take(BYTES_MAX).read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|f| f.take(BYTES_MAX).read_to_string(&mut text)),
    };
    read.map_err(|e| Error::Usage(format!("cannot read {name}: {e}")))?;
    if text.trim_start().starts_with('[') {
        let how = "`punctual sim --json` writes one for a single file and policy";
        return Err(Error::Usage(format!("{name} has several results in an array, expected one; {how}")));
    }
    let results = json::from_json(&text, &name).map_err(Error::usage)?;
    Ok((name, results))
}

/// Are the entities the same? How long and under what policy they ran is part of what is compared.
fn same_host(a: &(String, Results), b: &(String, Results)) -> Result<(), Error> {
    type Names = fn(&Results) -> Vec<String>;
    let kinds: [(&str, Names); 4] = [
        ("pool", |r| r.pools.iter().map(|pool| pool.name.clone()).collect()),
        ("domain", |r| r.domains.iter().map(|domain| domain.name.clone()).collect()),
        ("vCPU", |r| r.vcpus.iter().map(|vcpu| vcpu.name.clone()).collect()),
        ("task", |r| r.tasks.iter().map(measure::task_name).collect()),
    ];
    for (kind, names) in kinds {
        let (of_a, of_b) = (names(&a.1), names(&b.1));
        for ((has, of), (lacks, others)) in [((&a.0, &of_a), (&b.0, &of_b)), ((&b.0, &of_b), (&a.0, &of_a))] {
            if let Some(name) = of.iter().find(|name| !others.contains(name)) {
                return Err(Error::Usage(format!(
                    "{lacks} has no {kind} `{name}`, which {has} has: expected results of the same host"
                )));
            }
        }
    }
    Ok(())
}

fn compare(results: &[(String, Results)], detail: bool, tolerances: Option<&Tolerances>) -> Comparison {
    let mut rows = Vec::new();
    let mut exceeded = Vec::new();
    for metric in Metric::ALL {
        for of in metric.entities(&results[0].1, detail) {
            let shown: Vec<Option<Value>> = results.iter().map(|(_, r)| metric.of(r, &of)).collect();
            if shown.iter().all(Option::is_none) {
                continue;
            }
            for ((file, _), value) in results.iter().zip(&shown).skip(1) {
                let what = tolerances.and_then(|t| t.exceeded(metric, shown[0], *value));
                exceeded.extend(what.map(|what| Exceeded {
                    metric,
                    of: of.clone(),
                    file: file.clone(),
                    what,
                }));
            }
            rows.push(row(metric, of, shown));
        }
    }
    let files = results.iter().map(|(file, results)| compared(file, results)).collect();
    Comparison { format: "punctual-comparison", version: 1, files, rows, exceeded }
}

fn compared(file: &str, results: &Results) -> Compared {
    Compared {
        file: file.into(),
        source: results.source,
        host: results.host.clone(),
        policies: results.pools.iter().map(|pool| pool.policy.clone()).collect(),
        seed: results.seed,
        runs: results.runs,
        duration_ns: results.duration_ns,
    }
}

fn row(metric: Metric, of: String, shown: Vec<Option<Value>>) -> Row {
    let difference = |value: &Option<Value>| Some(value.as_ref()?.difference(shown[0].as_ref()?));
    let differences: Vec<_> = shown[1..].iter().map(difference).collect();
    let clamp = |n: i128| i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX });
    Row {
        metric,
        unit: metric.unit(),
        of,
        values: shown.iter().map(|value| value.map(Value::exact)).collect(),
        differences: differences.iter().map(|d| d.map(|d| clamp(d.absolute))).collect(),
        relative_ppm: differences.iter().map(|d| d.and_then(|d| d.relative_ppm).map(clamp)).collect(),
        shown,
    }
}

fn text(comparison: &Comparison, judged: bool, colour: bool) -> String {
    let labels = labels(&comparison.files);
    let mut out = String::new();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    for (label, file) in labels.iter().zip(&comparison.files) {
        let source = match file.source {
            Source::Simulation => "simulated",
            Source::Live => "live",
        };
        let duration = fmt_duration(Duration::from_ns(file.duration_ns));
        let runs = if file.runs == 1 { String::new() } else { format!("{} runs of ", file.runs) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{label:width$}  {source}: {} under {} ({runs}{duration}, seed {})",
            file.host,
            file.policies.join(" + "),
            file.seed
        );
    }
    let mut rows = comparison.rows.as_slice();
    while let Some(first) = rest_of(rows) {
        let (of_metric, others) = rows.split_at(first);
        out += "\n";
        out += &metric_table(of_metric, &labels, colour);
        rows = others;
    }
    for exceeded in &comparison.exceeded {
        let _ = write!(
            out,
            "\n{}: {}: {}: {}",
            exceeded.file,
            exceeded.of,
            exceeded.metric.name(),
            exceeded.what
        );
    }
    match (judged, comparison.exceeded.len()) {
        (false, _) => out,
        (true, 0) => out + "\nEvery difference is within the tolerance.\n",
        (true, n) => out + &format!("\nBeyond the tolerance: {n}.\n"),
    }
}

/// How many of the rows, from the first one on, are about the same metric.
fn rest_of(rows: &[Row]) -> Option<usize> {
    let first = rows.first()?;
    Some(rows.iter().take_while(|row| row.metric == first.metric).count())
}

fn metric_table(rows: &[Row], labels: &[String], colour: bool) -> String {
    let mut columns = vec![labels[0].as_str()];
    for label in &labels[1..] {
        columns.extend([label.as_str(), "difference"]);
    }
    let cells = |row: &Row| {
        let show = |value: &Option<Value>| value.map_or_else(|| "-".into(), Value::show);
        let mut cells = vec![show(&row.shown[0])];
        for value in &row.shown[1..] {
            let difference = match (value, &row.shown[0]) {
                (Some(value), Some(first)) => value.show_difference(first),
                _ => "-".into(),
            };
            cells.extend([show(value), difference]);
        }
        cells
    };
    let names: Vec<&str> = rows.iter().map(|row| row.of.as_str()).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    table::matrix(rows[0].metric.title(), &names, &columns, &cells, colour)
}

/// What heads a file's column: its name without directory and ending where that tells them apart.
fn labels(files: &[Compared]) -> Vec<String> {
    let stem = |file: &Compared| {
        Path::new(&file.file)
            .file_stem()
            .map_or_else(|| file.file.clone(), |s| s.to_string_lossy().into_owned())
    };
    let stems: Vec<String> = files.iter().map(stem).collect();
    let unique = stems.iter().enumerate().all(|(i, stem)| !stems[..i].contains(stem));
    if unique { stems } else { files.iter().map(|file| file.file.clone()).collect() }
}
