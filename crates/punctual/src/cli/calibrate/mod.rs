//! `punctual calibrate`: what scheduling and the switch cost on this machine.

mod guests;
mod switch;

use std::io::Write;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use punctual_enforce::calibrate::{self, Calibration, Id, Options, STEPS};
use punctual_model::Host;
use punctual_model::file::Overrides;
use punctual_model::file::edit::{with_network_costs, with_overheads};
use punctual_report::format::{fmt_count, fmt_duration};
use punctual_report::table;
use serde::Serialize;

use self::guests::GuestCosts;
use self::switch::{Subject, SwitchCosts};
use super::error::Error;
use super::input::HostFile;
use super::live::Steps;
use super::output::{OutFile, Ui, wrapped};
use super::{exit, interrupt};

/// Measure what scheduling and the switch cost on this machine.
///
/// Decisions, context switches, migrations and the lock of a shared run queue, each as a distribution; the
/// medians are the values of [machine.overheads] in a host file. Then the steps of a switch: wake-ups, its
/// three stages, telling a VM; their medians are the values of [network.NAME.costs]. Threads that measure
/// sleep and wake in turn and never hold a processor; SCHED_FIFO is used where it is permitted. Measure on a
/// quiet machine: whatever else runs is part of the result. docs/calibrate.md explains the methods.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual calibrate                        about 5 s\n  \
    punctual calibrate --write host.toml      and put the medians into the host file\n  \
    punctual calibrate --guests --write host.toml   with what packets cost VMs (as root)\n  \
    punctual calibrate --seconds 60 --json > calibration.json")]
pub struct Args {
    /// Put the medians into [machine.overheads] of this host file, and those of the switch into the costs of
    /// its networks, measured under their disciplines; everything else in it stays as it is.
    #[arg(long, value_name = "HOST.toml")]
    write: Option<PathBuf>,
    /// Measure on this processor; usually 1, or the only one.
    #[arg(long, value_name = "N")]
    processor: Option<usize>,
    /// What a migrating thread has in its cache, in KiB.
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = WORKING_SET_KIB,
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
    /// Also boot two VMs of the project's guest and measure what packets cost a guest, for as long again,
    /// twice. As `punctual run`, it needs root.
    #[arg(long)]
    guests: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The working set of a migrating thread, unless the user says otherwise.
const WORKING_SET_KIB: u32 = 256;

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
    switches: &'a [SwitchCosts],
    #[serde(skip_serializing_if = "Option::is_none")]
    guests: Option<&'a GuestCosts>,
}

/// Runs `punctual calibrate`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    interrupt::be_graceful();
    // A wrong file is reported before the time is spent.
    let file = args.write.as_deref().map(HostToEdit::read).transpose()?;
    let subjects = Subject::all(file.as_ref().map(|file| &file.host));
    let bar = progress(STEPS + subjects.len());
    let steps = Steps::new(false);
    let say = |step: &str| bar.suspend(|| steps.say(step));
    let measured = Measured::new(args, subjects, &|done| bar.set_position(done as u64), &say, ui)?;
    bar.finish_and_clear();
    measured.print(args.json, ui)?;
    if let Some(file) = file {
        file.write(&measured)?;
    }
    Ok(exit::OK)
}

/// What scheduling, the steps of network `network` and packets in guests cost here, as settings of a host
/// file. Takes `seconds`, and twice as long with two VMs.
pub fn settings(network: &str, seconds: u32, say: &dyn Fn(&str), ui: &Ui) -> Result<Vec<String>, Error> {
    interrupt::install();
    interrupt::be_graceful();
    let args = Args {
        write: None,
        processor: None,
        working_set: WORKING_SET_KIB,
        seconds,
        guests: true,
        json: false,
    };
    let measured = Measured::new(&args, Subject::all(None), &|_| (), say, ui)?;
    let overheads = measured.calibration.overheads().into_iter();
    let overheads = overheads.map(|(key, time)| format!("machine.overheads.{key}={time}"));
    let keys = measured.switches[0].keys().into_iter();
    let keys = keys.chain(measured.guests.iter().flat_map(GuestCosts::keys));
    Ok(overheads.chain(keys.map(|(key, time)| format!("network.{network}.costs.{key}={time}"))).collect())
}

/// All that was measured.
struct Measured {
    options: Options,
    calibration: Calibration,
    /// One for each network of the host file, at least one.
    switches: Vec<SwitchCosts>,
    guests: Option<GuestCosts>,
}

impl Measured {
    /// Measures. `step` is told how many steps are done, `say` what guests are at.
    fn new(
        args: &Args,
        subjects: Vec<Subject>,
        step: &(dyn Fn(usize) + Sync),
        say: &dyn Fn(&str),
        ui: &Ui,
    ) -> Result<Measured, Error> {
        let options = options(args)?;
        let calibration = calibrate::calibrate(&options, &interrupt::stopped, step);
        let calibration = calibration.map_err(|failure| match failure {
            calibrate::Error::Stopped => Error::Interrupted,
            calibrate::Error::Os(error) => Error::Usage(format!("cannot measure: {error}")),
        })?;
        let each = std::time::Duration::from_millis(options.time_ms / STEPS as u64);
        let processors = [options.other.unwrap_or(options.processor), options.processor];
        let mut switches = Vec::new();
        for subject in &subjects {
            switches.push(subject.measure(processors, each)?);
            step(STEPS + switches.len());
        }
        let (overheads, costs) = (calibration.overheads(), switches[0].keys());
        let guests = match args.guests {
            true => Some(guests::measure(args.seconds, &overheads, &costs, say, ui)?),
            false => None,
        };
        Ok(Measured { options, calibration, switches, guests })
    }

    fn print(&self, as_json: bool, ui: &Ui) -> Result<(), Error> {
        let Measured { options, calibration, switches, guests } = self;
        if as_json {
            let overheads = calibration.overheads().into_iter();
            let overheads_ns = overheads.map(|(key, time)| (key.to_owned(), time.as_ns().into())).collect();
            return ui.print_json(&Output {
                format: "punctual-calibration",
                version: 1,
                options,
                calibration,
                overheads_ns,
                switches,
                guests: guests.as_ref(),
            });
        }
        let colour = ui.stdout_has_colour();
        ui.print(text(options, calibration, colour))?;
        switches.iter().try_for_each(|switch| ui.print(format!("\n{}", switch.text(colour))))?;
        guests.iter().try_for_each(|guests| ui.print(format!("\n{}", guests.text())))
    }
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

fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} measurements")
        .expect("the template is constant");
    ProgressBar::new(steps as u64).with_style(style)
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

/// A host file that gets other overheads and costs.
struct HostToEdit {
    path: PathBuf,
    name: String,
    text: String,
    host: Host,
}

impl HostToEdit {
    /// Reads a file that is a valid host file.
    fn read(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Err(Error::Usage("--write needs a file, not standard input".into()));
        }
        let file = HostFile::read(path)?;
        let host = file.host(&Overrides::default())?;
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(HostToEdit { path: path.into(), name: file.name, text, host }),
            Err(error) => Err(Error::Usage(format!("cannot edit {}: {error}", file.name))),
        }
    }

    /// Puts the values in and writes the file.
    fn write(self, measured: &Measured) -> Result<(), Error> {
        let Measured { calibration, switches, guests, .. } = measured;
        let no_table = |what: &str| Error::Usage(format!("cannot edit {}: [{what}] is no table", self.name));
        let mut text =
            with_overheads(&self.text, &calibration.overheads()).ok_or_else(|| no_table("machine"))?;
        for switch in switches {
            let Some(network) = &switch.network else { continue };
            let mut keys = switch.keys().to_vec();
            keys.extend(guests.iter().flat_map(GuestCosts::keys));
            text = with_network_costs(&text, network, &keys).ok_or_else(|| no_table("network"))?;
        }
        punctual_model::file::parse(&text, &self.name, &Overrides::default())?;
        let mut out = OutFile::create(&self.path)?;
        out.write_all(text.as_bytes()).map_err(Error::usage)?;
        out.finish()
    }
}
