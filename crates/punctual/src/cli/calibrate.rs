//! `punctual calibrate`: what scheduling costs on this machine.

use std::io::Write;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use punctual_live::calibrate::{self, Calibration, Id, Options, STEPS};
use punctual_model::file::Overrides;
use punctual_report::format::{fmt_count, fmt_duration};
use punctual_report::table::{self, WIDTH};
use punctual_sched::Duration;
use serde::Serialize;
use toml_edit::{DocumentMut, InlineTable, Item, Table};

use super::error::Error;
use super::input::HostFile;
use super::output::{OutFile, Ui};
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
    // What is wrong with the file is said before the time is spent.
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
    let options = textwrap::Options::new(WIDTH).subsequent_indent("  ");
    textwrap::fill(&format!("{}: {text}", id.title().trim()), options) + "\n"
}

/// A host file that gets other overheads.
struct HostToEdit {
    path: PathBuf,
    name: String,
    document: DocumentMut,
}

impl HostToEdit {
    /// Reads a file that is a valid host file.
    fn read(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Err(Error::Usage("--write needs a file, not standard input".into()));
        }
        let file = HostFile::read(path)?;
        file.host(&Overrides::default())?;
        // A valid host file is valid TOML in UTF-8.
        let text = std::fs::read_to_string(path);
        let document = text
            .map_err(|e| e.to_string())
            .and_then(|t| t.parse().map_err(|e: toml_edit::TomlError| e.to_string()));
        match document {
            Ok(document) => Ok(HostToEdit { path: path.into(), name: file.name, document }),
            Err(error) => Err(Error::Usage(format!("cannot edit {}: {error}", file.name))),
        }
    }

    /// Puts the values in and writes the file.
    fn write(mut self, overheads: &[(&'static str, Duration)]) -> Result<(), Error> {
        set_overheads(&mut self.document, overheads)
            .ok_or_else(|| Error::Usage(format!("cannot edit {}: [machine] is no table", self.name)))?;
        let text = self.document.to_string();
        punctual_model::file::parse(&text, &self.name, &Overrides::default())?;
        let mut out = OutFile::create(&self.path)?;
        out.write_all(text.as_bytes()).map_err(Error::usage)?;
        out.finish()
    }
}

/// Puts values into `[machine.overheads]`; comments and order stay. `None` when `machine` is no table.
fn set_overheads(document: &mut DocumentMut, overheads: &[(&'static str, Duration)]) -> Option<()> {
    let machine = document.entry("machine").or_insert_with(toml_edit::table);
    // A table in braces cannot have a table with a header of its own in it.
    let new = match machine.is_inline_table() {
        true => Item::Value(InlineTable::new().into()),
        false => Item::Table(Table::new()),
    };
    let costs = machine.as_table_like_mut()?.entry("overheads").or_insert(new).as_table_like_mut()?;
    for (key, time) in overheads {
        let value = toml_edit::value(time.to_string());
        match costs.get_mut(key).and_then(Item::as_value_mut) {
            Some(old) => {
                // The comment behind a value is part of its decoration.
                let decor = old.decor().clone();
                if let Item::Value(new) = value {
                    *old = new;
                }
                *old.decor_mut() = decor;
            }
            None => {
                costs.insert(key, value);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str) -> String {
        let mut document: DocumentMut = text.parse().expect("TOML");
        let costs = [("decision", Duration::from_ns(850)), ("context_switch", Duration::from_us(3))];
        set_overheads(&mut document, &costs).expect("a table");
        document.to_string()
    }

    #[test]
    fn overheads_are_replaced_and_comments_stay() {
        let text = "# the machine\n[machine]\nprocessors = 2 # two\n\n# measured\n[machine.overheads]\n\
                    context_switch = \"1us\" # old\nmigration = \"5us\"\n\n[pool.p]\n";
        let expected = "# the machine\n[machine]\nprocessors = 2 # two\n\n# \
                        measured\n[machine.overheads]\ncontext_switch = \"3us\" # old\nmigration = \
                        \"5us\"\ndecision = \"850ns\"\n\n[pool.p]\n";
        assert_eq!(edited(text), expected);
    }

    #[test]
    fn overheads_are_added_where_there_are_none() {
        let added = edited("[machine]\nprocessors = 2\n\n[pool.p]\npolicy = \"rtds\"\n");
        let costs = "[machine.overheads]\ndecision = \"850ns\"\ncontext_switch = \"3us\"\n";
        assert!(added.contains(costs), "{added}");
        assert!(added.starts_with("[machine]\nprocessors = 2\n"), "{added}");
    }

    #[test]
    fn tables_in_one_line_stay_in_one_line() {
        let inline = edited("machine = { processors = 2, overheads = { decision = \"1us\" } }\n");
        assert_eq!(
            inline,
            "machine = { processors = 2, overheads = { decision = \"850ns\" , context_switch = \"3us\" } }\n"
        );
        let dotted = edited("machine.processors = 2\nmachine.overheads.decision = \"1us\"\n");
        assert!(dotted.contains("machine.overheads.decision = \"850ns\"\n"), "{dotted}");
        for text in [inline, dotted, edited("machine = { processors = 2 }\n")] {
            let document: DocumentMut = text.parse().expect("TOML still");
            assert_eq!(document["machine"]["overheads"]["context_switch"].as_str(), Some("3us"), "{text}");
        }
    }
}
