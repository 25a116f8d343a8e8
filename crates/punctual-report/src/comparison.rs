//! Results of the same host side by side, metric by metric, with their differences to the first ones.

mod metric;
mod tolerance;

use std::fmt::Write as _;
use std::path::Path;

use punctual_model::Results;
use punctual_model::results::Source;
use serde::Serialize;

use crate::format::fmt_ns;
use crate::headline::headline;
use crate::{Column, table};
use metric::task_name;

pub use metric::{Difference, Metric, Value};
pub use tolerance::{ToleranceError, Tolerances};

/// Results of hosts that differ cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lacks} has no {kind} `{name}`, which {has} has: expected results of the same host")]
pub struct Error {
    lacks: String,
    has: String,
    kind: &'static str,
    name: String,
}

/// Everything that is compared. As JSON it is what `punctual compare --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    format: &'static str,
    version: u32,
    /// Which of the results kept every deadline.
    headline: String,
    files: Vec<File>,
    rows: Vec<Row>,
    /// Differences beyond the tolerance; empty without one.
    pub exceeded: Vec<Exceeded>,
    #[serde(skip)]
    has_tolerances: bool,
}

#[derive(Clone, Debug, Serialize)]
struct File {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    source: Source,
    host: String,
    policies: Vec<String>,
    seed: u64,
    runs: u32,
    duration_ns: u64,
}

/// One metric of one entity in all files.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
pub struct Exceeded {
    pub metric: Metric,
    pub of: String,
    pub file: String,
    pub what: String,
}

/// Compares results, whose labels are their files' names, with the first ones; with `detail`, tasks of
/// domains as well.
///
/// # Errors
/// When the entities are not the same. How long and under what policy they ran is part of what is compared.
///
/// # Panics
/// When there are no results.
pub fn compare(
    columns: &[Column],
    detail: bool,
    tolerances: Option<&Tolerances>,
) -> Result<Comparison, Error> {
    let (first, others) = columns.split_first().expect("there is something to compare");
    others.iter().try_for_each(|other| same_host(first, other))?;
    let mut rows = Vec::new();
    let mut exceeded = Vec::new();
    for metric in Metric::ALL {
        for of in entities(metric, columns, detail) {
            let shown: Vec<Option<Value>> = columns.iter().map(|c| metric.of(&c.results, &of)).collect();
            let is_nothing = |value: &Option<Value>| value.is_none_or(|value| metric.hides(value));
            if shown.iter().all(is_nothing) {
                continue;
            }
            for (column, value) in columns.iter().zip(&shown).skip(1) {
                if let Some(what) = tolerances.and_then(|t| t.exceeded(metric, shown[0], *value)) {
                    exceeded.push(Exceeded { metric, of: of.clone(), file: column.label.clone(), what });
                }
            }
            rows.push(row(metric, of, shown));
        }
    }
    let files = columns.iter().map(file).collect();
    let mut comparison = Comparison {
        format: "punctual-comparison",
        version: 1,
        headline: String::new(),
        files,
        rows,
        exceeded,
        has_tolerances: tolerances.is_some(),
    };
    let labels = comparison.labels();
    let named = labels.iter().zip(columns).map(|(label, column)| (label.as_str(), &column.results));
    comparison.headline = headline(named).text();
    Ok(comparison)
}

/// The entities of all results, each once.
fn entities(metric: Metric, columns: &[Column], detail: bool) -> Vec<String> {
    let mut all = Vec::new();
    for name in columns.iter().flat_map(|column| metric.entities(&column.results, detail)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn same_host(a: &Column, b: &Column) -> Result<(), Error> {
    type Names = fn(&Results) -> Vec<String>;
    let kinds: [(&str, Names); 4] = [
        ("pool", |r| r.pools.iter().map(|pool| pool.name.clone()).collect()),
        ("domain", |r| r.domains.iter().map(|domain| domain.name.clone()).collect()),
        ("vCPU", |r| r.vcpus.iter().map(|vcpu| vcpu.name.clone()).collect()),
        ("task", |r| r.tasks.iter().map(task_name).collect()),
    ];
    for (kind, names) in kinds {
        for (has, lacks) in [(a, b), (b, a)] {
            let others = names(&lacks.results);
            if let Some(name) = names(&has.results).into_iter().find(|name| !others.contains(name)) {
                return Err(Error { lacks: lacks.label.clone(), has: has.label.clone(), kind, name });
            }
        }
    }
    Ok(())
}

fn file(Column { label, results }: &Column) -> File {
    File {
        file: label.clone(),
        label: results.label.clone(),
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

impl Comparison {
    /// What heads a file's column: its label, or its name without directory and ending, where that
    /// distinguishes them.
    pub fn labels(&self) -> Vec<String> {
        let stem = |file: &File| {
            let stem = || Path::new(&file.file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            file.label.clone().or_else(stem).unwrap_or_else(|| file.file.clone())
        };
        let stems: Vec<String> = self.files.iter().map(stem).collect();
        let unique = stems.iter().enumerate().all(|(i, stem)| !stems[..i].contains(stem));
        if unique { stems } else { self.files.iter().map(|file| file.file.clone()).collect() }
    }

    /// The comparison for a terminal.
    pub fn text(&self, colour: bool) -> String {
        let labels = self.labels();
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        for (label, file) in labels.iter().zip(&self.files) {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(out, "{label:width$}  {}", file.text());
        }
        out += "\n";
        out += &table::paragraph(&self.headline);
        let mut rows = self.rows.as_slice();
        while let Some(first) = rest_of(rows) {
            let (of_metric, others) = rows.split_at(first);
            out += "\n";
            out += &metric_table(of_metric, &labels, colour);
            rows = others;
        }
        for Exceeded { metric, of, file, what } in &self.exceeded {
            let _ = write!(out, "\n{file}: {of}: {}: {what}", metric.name());
        }
        match (self.has_tolerances, self.exceeded.len()) {
            (false, _) => out,
            (true, 0) => out + "\nEvery difference is within the tolerance.\n",
            (true, n) => out + &format!("\nBeyond the tolerance: {n}.\n"),
        }
    }
}

impl File {
    fn text(&self) -> String {
        let source = match self.source {
            Source::Simulation => "simulated",
            Source::Live => "live",
        };
        let runs = if self.runs == 1 { String::new() } else { format!("{} runs of ", self.runs) };
        format!(
            "{source}: {} under {} ({runs}{}, seed {})",
            self.host,
            self.policies.join(" + "),
            fmt_ns(self.duration_ns),
            self.seed
        )
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
