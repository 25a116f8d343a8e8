//! `punctual report`: results as one HTML page, and as files for other programs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use punctual_model::{Guarantees, Results};
use punctual_report::Column;
use punctual_report::html::{self, Page};
use punctual_report::records::{self, Distribution};
use punctual_report::timeline::{self, Reader, Timeline, Window};
use punctual_report::{hdr, json, table};
use punctual_sched::Duration;

use super::error::Error;
use super::input::{read_text, time};
use super::output::{OutFile, Ui, keep_inputs, make_directory};
use super::{exit, interrupt};

/// Write results as one HTML page, and as files for other programs.
///
/// The page needs only a browser. It has verdicts, the host that ran, response times against deadlines,
/// distributions, a timeline to zoom into, budgets, where packets spent their time, and simulation beside
/// live results if both are given. docs/report.md shows and explains it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual sim host.toml --json > sim.json; punctual report sim.json -o sim.html\n  \
    punctual report sim.json live.json --trace sim.pftrace -o both.html\n  \
    punctual check host.toml --json > check.json; punctual report sim.json --check check.json -o sim.html\n  \
    punctual report sim.json --csv tables --parquet sim.parquet --hlog sim.hlog --hgrm percentiles")]
pub(super) struct Args {
    /// Results as `--json` of `sim` or `run` prints them: one, or an array.
    #[arg(value_name = "RESULTS.json", required = true)]
    files: Vec<PathBuf>,
    /// Write the page here; `-` is standard output.
    #[arg(short, long, value_name = "OUT.html")]
    output: Option<PathBuf>,
    /// Show this trace as the timeline: what `sim --trace` wrote.
    #[arg(long, value_name = "TRACE.pftrace", requires = "output")]
    trace: Option<PathBuf>,
    /// Show these guarantees: what `check --json` printed.
    #[arg(long, value_name = "CHECK.json", requires = "output")]
    check: Option<PathBuf>,
    /// Labels of the results, in their order, instead of their own labels or file names.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    label: Vec<String>,
    #[command(flatten)]
    interval: Interval,
    /// Write tables as CSV into this directory; creates it if missing.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write every number as a row of a Parquet file; needs a build with the feature `parquet`.
    #[arg(long, value_name = "OUT.parquet")]
    parquet: Option<PathBuf>,
    /// Write percentiles of every distribution for HdrHistogram's plotters into this directory.
    #[arg(long, value_name = "DIR")]
    hgrm: Option<PathBuf>,
    /// Write every distribution into a log of HdrHistogram.
    #[arg(long, value_name = "OUT.hlog")]
    hlog: Option<PathBuf>,
}

/// The error that an option asks for Parquet, which this program was built without.
pub(super) fn without_parquet(option: &str) -> Error {
    Error::Usage(format!(
        "{option}: this punctual was built without Parquet; build it with: \
         cargo install --path crates/punctual --features parquet"
    ))
}

/// Which part of a run a report's timeline shows.
#[derive(clap::Args, Debug)]
pub(super) struct Interval {
    /// Begin the report's timeline here. By default it begins with the run, or at the first missed deadline
    /// if that would not fit otherwise.
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeline_from: Option<Duration>,
    /// End the report's timeline here instead of at the end of the run.
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeline_to: Option<Duration>,
    /// End the report's timeline after this many slices, budget steps and jobs; each takes 5 to 10 bytes of
    /// the page.
    #[arg(long, value_name = "N", default_value_t = 300_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    timeline_items: u32,
}

impl Interval {
    /// Reads the timeline: `pass` hands all bytes of the trace to a reader. Where no interval was asked for
    /// and the timeline would end before the first missed deadline, it is read again from there.
    pub(super) fn timeline(
        &self,
        pass: impl FnMut(&mut Reader) -> Result<(), Error>,
        name: &dyn Fn(timeline::Error) -> String,
    ) -> Result<Timeline, Error> {
        let is_chosen = self.timeline_from.is_some() || self.timeline_to.is_some();
        timeline::read(self.window(), is_chosen, pass)?.finish().map_err(|e| Error::Usage(name(e)))
    }

    /// As the timeline takes it.
    fn window(&self) -> Window {
        Window {
            from_ns: self.timeline_from.unwrap_or(Duration::ZERO).as_ns(),
            until_ns: self.timeline_to.map_or(u64::MAX, Duration::as_ns),
            items_max: self.timeline_items as usize,
        }
    }
}

/// The explanation of late jobs, as text.
pub(super) fn blame(results: &Results, ui: &Ui) -> String {
    match table::blame(results, ui.stdout_has_colour()) {
        text if text.is_empty() => "The causes of late jobs were not measured.\n".to_owned(),
        text => format!("\n{text}"),
    }
}

/// Says why jobs of one result of several were late.
pub(super) fn print_blame(column: &Column, ui: &Ui) -> Result<(), Error> {
    ui.print(format!("\n{}:\n{}", column.label, blame(&column.results, ui)))
}

/// Runs `punctual report`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    if [&args.output, &args.csv, &args.parquet, &args.hgrm, &args.hlog].iter().all(|out| out.is_none()) {
        let text = "nothing to write: give -o OUT.html, --csv, --parquet, --hgrm or --hlog";
        return Err(Error::Usage(text.into()));
    }
    if args.parquet.is_some() && !cfg!(feature = "parquet") {
        return Err(without_parquet("--parquet"));
    }
    let inputs: Vec<PathBuf> = args.files.iter().chain(&args.trace).chain(&args.check).cloned().collect();
    keep_inputs(&inputs, &[&args.output, &args.parquet, &args.hlog])?;
    let mut columns = columns(&args.files)?;
    let labels = labels(&args.label, columns.len())?;
    columns.iter_mut().zip(labels).for_each(|(column, label)| column.label.clone_from(label));
    if let Some(path) = &args.output {
        write_page(args, path, &columns, ui)?;
    }
    if let Some(directory) = &args.csv {
        for table in records::records(&columns) {
            write_into(directory, &format!("{}.csv", table.name), |out| table.write_csv(out))?;
        }
    }
    #[cfg(feature = "parquet")]
    if let Some(path) = &args.parquet {
        OutFile::write(path, |out| punctual_report::parquet::write(&columns, out).map_err(io::Error::other))?;
    }
    let distributions = records::distributions(&columns);
    if let Some(directory) = &args.hgrm {
        for (name, distribution) in names(&distributions).iter().zip(&distributions) {
            write_into(directory, &format!("{name}.hgrm"), |out| {
                hdr::write_hgrm(distribution.histogram, out)
            })?;
        }
    }
    if let Some(path) = &args.hlog {
        OutFile::write(path, |out| hdr::write_hlog(&distributions, out))?;
    }
    Ok(exit::OK)
}

fn write_page(args: &Args, path: &Path, columns: &[Column], ui: &Ui) -> Result<(), Error> {
    let guarantees = match &args.check {
        Some(path) => {
            let (name, text) = read_text(path)?;
            Some(Guarantees::from_json(&text, &name).map_err(Error::usage)?)
        }
        None => None,
    };
    let timeline = args.trace.as_deref().map(|path| timeline(path, &args.interval)).transpose()?;
    let page = Page {
        columns,
        guarantees: guarantees.as_ref(),
        timeline: timeline.as_ref().map(|timeline| (traced(columns), timeline)),
    };
    if path == Path::new("-") { ui.print(html::render(&page)) } else { write(OutFile::create(path)?, &page) }
}

/// The label of a trace, which has none of its own.
fn traced(columns: &[Column]) -> &str {
    match columns {
        [one] => &one.label,
        _ => "the traced run",
    }
}

/// Takes the directories out of labels that are files' names, unless they tell the labels apart.
pub(super) fn drop_directories(columns: &mut [Column]) {
    let short = |column: &Column| column.label.rsplit('/').next().unwrap_or_default().to_owned();
    let shortened: Vec<String> = columns.iter().map(short).collect();
    let is_unique = |(i, label): (usize, &String)| !shortened[..i].contains(label);
    if shortened.iter().enumerate().all(is_unique) {
        columns.iter_mut().zip(shortened).for_each(|(column, label)| column.label = label);
    }
}

/// Writes a page into a file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(mut out: OutFile, page: &Page<'_>) -> Result<(), Error> {
    out.write_all(html::render(page).as_bytes()).map_err(Error::usage)?;
    out.finish()
}

fn write_into(
    directory: &Path,
    name: &str,
    write: impl FnOnce(&mut OutFile) -> io::Result<()>,
) -> Result<(), Error> {
    make_directory(directory)?;
    OutFile::write(&directory.join(name), write)
}

/// A name for each distribution's file; those that would be equal get a number.
fn names(distributions: &[Distribution<'_>]) -> Vec<String> {
    let mut taken = std::collections::HashMap::new();
    let name = |distribution: &Distribution<'_>| {
        let stem = hdr::file_stem(distribution);
        let times: &mut u32 = taken.entry(stem.clone()).or_default();
        *times += 1;
        if *times == 1 { stem } else { format!("{stem}-{times}") }
    };
    distributions.iter().map(name).collect()
}

fn timeline(path: &Path, interval: &Interval) -> Result<Timeline, Error> {
    let unreadable = |e: io::Error| Error::Usage(format!("cannot read {}: {e}", path.display()));
    let pass = |reader: &mut Reader| {
        io::copy(&mut File::open(path).map_err(unreadable)?, reader).map_err(unreadable)?;
        Ok(())
    };
    interval.timeline(pass, &|e| format!("{}: {e}", path.display()))
}

/// The names that `--label` has: one for each result, or none.
pub(super) fn labels(names: &[String], results: usize) -> Result<&[String], Error> {
    match names.len() {
        0 => Ok(names),
        n if n == results => Ok(names),
        n => Err(Error::Usage(format!("--label has {n} names for {results} results; expected {results}"))),
    }
}

/// All results of all files. They are called by their label or file; where that is not enough, by policy or
/// number too.
fn columns(files: &[PathBuf]) -> Result<Vec<Column>, Error> {
    let mut columns: Vec<Column> = Vec::new();
    for path in files {
        let (name, text) = read_text(path)?;
        let all = json::all_from_json(&text, &name).map_err(Error::usage)?;
        let stem = path.file_stem().map_or(name, |stem| stem.to_string_lossy().into_owned());
        let several = all.len() > 1;
        for results in all {
            let label = match (several, files.len()) {
                _ if results.label.is_some() => results.label.clone().unwrap_or_default(),
                (false, _) => stem.clone(),
                (true, 1) => policies(&results),
                (true, _) => format!("{stem} {}", policies(&results)),
            };
            columns.push(Column { label, results });
        }
    }
    if columns.is_empty() {
        return Err(Error::Usage("there are no results in an empty array".into()));
    }
    let mut seen = std::collections::HashMap::new();
    for column in &mut columns {
        let times: &mut u32 = seen.entry(column.label.clone()).or_default();
        *times += 1;
        if *times > 1 {
            column.label = format!("{} ({times})", column.label);
        }
    }
    Ok(columns)
}

fn policies(results: &Results) -> String {
    let mut names: Vec<&str> = results.pools.iter().map(|pool| pool.policy.as_str()).collect();
    names.dedup();
    names.join(" + ")
}
