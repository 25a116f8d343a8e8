//! `punctual calibrate`: what scheduling costs on this machine.

use std::io::Write;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use punctual_live::calibrate::{self, Calibration, Id, Options, STEPS};
use punctual_model::file::Overrides;
use punctual_model::file::edit::with_overheads;
use punctual_report::format::{fmt_count, fmt_duration};
use punctual_report::table;
use punctual_sched::Duration;
use serde::Serialize;

use super::error::Error;
use super::input::HostFile;
use super::output::{OutFile, Ui, wrapped};
use super::{exit, interrupt};

/// Measure what scheduling costs on this machine.
///
/// Decisions, context switches, migrations and the lock of a shared run queue, each as a distribution; the
/// medians are the values of [machine.overheads] in a host file. Threads that measure sleep and wake in turn
/// and never hold a processor; SCHED_FIFO is used where it is permitted. Measure on a quiet machine: whatever
/// else runs is part of the result. docs/calibrate.md explains the methods.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual calibrate                        about 5 s\n  \
    punctual calibrate --write host.toml      and put the medians into the host file\n  \
    punctual calibrate --seconds 60 --json > calibration.json")]
pub struct Args {
    /// Put the medians into [machine.overheads] of this host file; everything else in it stays as it is.
    #[arg(long, value_name = "HOST.toml")]
    write: Option<PathBuf>,
    /// Measure on this processor; usually 1, or the only one.
    #[arg(long, value_name = "N")]
    processor: Option<usize>,
    /// What a migrating thread has in its cache, in KiB.
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20)
    )]
    working_set: u32,
    /// Measure for about this long.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=3600)
    )]
    seconds: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The JSON form.
#[derive(Serialize)]
struct Output<'a> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    options: &'a Options,
    #[serde(flatten)]
    calibration: &'a Calibration,
    overheads_ns: serde_json::Map<String, serde_json::Value>,
}

/// Runs `punctual calibrate`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    interrupt::be_graceful();
    // A wrong file is reported before the time is spent.
    let file = args.write.as_deref().map(HostToEdit::read).transpose()?;
    let options = options(args)?;
    let bar = progress();
    let step = |done: usize| bar.set_position(done as u64);
    let calibration = calibrate::calibrate(&options, &interrupt::stopped, &step);
    bar.finish_and_clear();
    let calibration = calibration.map_err(|failure| match failure {
        calibrate::Error::Stopped => Error::Interrupted,
        calibrate::Error::Os(error) => Error::Usage(format!("cannot measure: {error}")),
    })?;
    if args.json {
        let overheads =
            calibration.overheads().into_iter().map(|(key, time)| (key.to_owned(), time.as_ns().into()));
        ui.print_json(&Output {
            format: "punctual-calibration",
            version: 1,
            options: &options,
            calibration: &calibration,
            overheads_ns: overheads.collect(),
        })?;
    } else {
        ui.print(text(&options, &calibration, ui.stdout_has_colour()))?;
    }
    if let Some(file) = file {
        file.write(&calibration.overheads())?;
    }
    Ok(exit::OK)
}

fn options(args: &Args) -> Result<Options, Error> {
    let allowed = calibrate::processors()
        .map_err(|error| Error::Usage(format!("cannot tell which processors may be used: {error}")))?;
    let list = || allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let processor = match args.processor {
        Some(cpu) if !allowed.contains(&cpu) => {
            let text = format!("--processor {cpu}: this process may use {}", list());
            return Err(Error::Usage(text));
        }
        Some(cpu) => cpu,
        // Interrupts and the system's own work are on processor 0 more often than not.
        None => allowed.get(1).or(allowed.first()).copied().unwrap_or_default(),
    };
    Ok(Options {
        processor,
        other: allowed.into_iter().find(|cpu| *cpu != processor),
        working_set_bytes: args.working_set as usize * 1024,
        time_ms: u64::from(args.seconds) * 1000,
    })
}

fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} measurements")
        .expect("the template is constant");
    ProgressBar::new(STEPS as u64).with_style(style)
}

/// Columns of the table: parts of a distribution.
const COLUMNS: [&str; 4] = ["p50", "p99", "max", "samples"];

fn text(options: &Options, calibration: &Calibration, colour: bool) -> String {
    let other = options.other.map(|cpu| format!(", migration to and from {cpu}")).unwrap_or_default();
    let title = format!(
        "Measured on processor {}{other}, working set {} KiB",
        options.processor,
        options.working_set_bytes / 1024
    );
    let names: Vec<&str> = calibration.measurements.iter().map(|m| m.id.title()).collect();
    let cells = |measurement: &calibrate::Measurement| {
        let times = &measurement.times;
        let quantile = |ppm| fmt_duration(times.quantile_ppm(ppm));
        vec![quantile(500_000), quantile(990_000), fmt_duration(times.max()), fmt_count(times.count())]
    };
    let rows: Vec<_> = calibration.measurements.iter().map(cells).collect();
    let mut out = table::matrix(&title, &names, &COLUMNS, &rows, colour) + "\n";
    for measurement in &calibration.measurements {
        out += &described(measurement.id, measurement.id.method());
    }
    for skipped in &calibration.skipped {
        out += &described(skipped.id, &format!("Not measured: {}.", skipped.reason));
    }
    out += "\n[machine.overheads]\n";
    for (key, time) in calibration.overheads() {
        out += &format!("{key} = \"{time}\"\n");
    }
    out
}

fn described(id: Id, text: &str) -> String {
    wrapped("", "  ", &format!("{}: {text}", id.title().trim()))
}

/// A host file that gets other overheads.
struct HostToEdit {
    path: PathBuf,
    name: String,
    text: String,
}

impl HostToEdit {
    /// Reads a file that is a valid host file.
    fn read(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Err(Error::Usage("--write needs a file, not standard input".into()));
        }
        let file = HostFile::read(path)?;
        file.host(&Overrides::default())?;
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(HostToEdit { path: path.into(), name: file.name, text }),
            Err(error) => Err(Error::Usage(format!("cannot edit {}: {error}", file.name))),
        }
    }

    /// Puts the values in and writes the file.
    fn write(self, overheads: &[(&'static str, Duration)]) -> Result<(), Error> {
        let text = with_overheads(&self.text, overheads)
            .ok_or_else(|| Error::Usage(format!("cannot edit {}: [machine] is no table", self.name)))?;
        punctual_model::file::parse(&text, &self.name, &Overrides::default())?;
        let mut out = OutFile::create(&self.path)?;
        out.write_all(text.as_bytes()).map_err(Error::usage)?;
        out.finish()
    }
}
