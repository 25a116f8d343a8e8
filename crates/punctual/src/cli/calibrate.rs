//! `punctual calibrate`: what scheduling and the switch cost on this machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use punctual_enforce::calibrate::{self as enforce, Calibration, Id, Options, STEPS};
use punctual_model::file::Overrides;
use punctual_model::file::edit::{with_network_costs, with_overheads};
use punctual_model::{Histogram, Host};
use punctual_report::format::{fmt_count, fmt_duration};
use punctual_report::table;
use punctual_run::calibrate::{self, GuestCosts, Machine, Measured, Subject, SwitchCosts, WORKING_SET_KIB};
use punctual_run::events::Events;
use serde::Serialize;

use super::error::Error;
use super::input::HostFile;
use super::live::{Steps, own_program, printer};
use super::output::{OutFile, Ui, wrapped};
use super::rights::{self, Needs};
use super::{exit, interrupt};

/// Measure what scheduling and the switch cost on this machine.
///
/// Decisions, context switches, migrations and the lock of a shared run queue, each as a distribution; the
/// medians are the values of [machine.overheads] in a host file. Then the steps of a switch: wake-ups, its
/// three stages, notifying a VM; their medians are the values of [network.NAME.costs]. The measuring
/// threads sleep and wake in turn and never occupy a processor; they run under SCHED_FIFO if permitted.
/// Measure on a quiet machine: other load becomes part of the result. docs/calibrate.md explains the methods.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual calibrate                        about 5 s\n  \
    punctual calibrate --write host.toml      and put the medians into the host file\n  \
    punctual calibrate --guests --write host.toml   with what packets cost VMs (as root)\n  \
    punctual calibrate --seconds 60 --json > calibration.json")]
pub(super) struct Args {
    /// Write the medians into [machine.overheads] of this host file, and those of the switch into the costs
    /// of its networks, measured under their disciplines. The rest of the file is not changed.
    #[arg(long, value_name = "HOST.toml")]
    write: Option<PathBuf>,
    /// A host file without --write, which is a mistake.
    #[arg(hide = true)]
    file: Option<PathBuf>,
    /// Measure on this processor; usually 1, or the only one.
    #[arg(long, value_name = "N")]
    processor: Option<usize>,
    /// Working set of a migrating thread, in KiB.
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
    /// Also boot two VMs of the project's guest and measure what packets cost a guest; this takes twice as
    /// long again. Needs root, as `punctual run` does.
    #[arg(long)]
    guests: bool,
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
    switches: &'a [SwitchCosts],
    #[serde(skip_serializing_if = "Option::is_none")]
    guests: Option<&'a GuestCosts>,
}

/// Runs `punctual calibrate`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    interrupt::be_graceful();
    if let Some(file) = &args.file {
        let file = file.display();
        let text = format!("calibrate measures this machine; to write the costs into {file}: --write {file}");
        return Err(Error::Usage(text));
    }
    // A wrong file is reported before the time is spent.
    let file = args.write.as_deref().map(HostToEdit::read).transpose()?;
    if args.guests {
        rights::check("calibrate --guests", Needs::Scheduling)?;
    }
    let subjects = Subject::all(file.as_ref().map(|file| &file.host));
    let bar = progress(STEPS + subjects.len());
    let machine = Machine {
        program: own_program()?,
        events: suspended(&bar, ui),
        stop: interrupt::stopped,
        end: interrupt::end_for_guardian,
        done: &|done| bar.set_position(done as u64),
    };
    let seconds = args.guests.then_some(args.seconds);
    let measured = Measured::new(options(args)?, &subjects, seconds, &machine)?;
    bar.finish_and_clear();
    print(&measured, args.json, ui)?;
    if let Some(file) = file {
        file.write(&measured)?;
    }
    Ok(exit::OK)
}

fn print(measured: &Measured, as_json: bool, ui: &Ui) -> Result<(), Error> {
    let Measured { options, calibration, switches, guests } = measured;
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
    switches.iter().try_for_each(|switch| ui.print(format!("\n{}", switch_text(switch, colour))))?;
    guests.iter().try_for_each(|guests| ui.print(format!("\n{}", guests_text(guests))))
}

fn options(args: &Args) -> Result<Options, Error> {
    let no_list = |error| Error::Usage(format!("cannot tell which processors may be used: {error}"));
    let allowed = enforce::processors().map_err(no_list)?;
    if let Some(cpu) = args.processor.filter(|cpu| !allowed.contains(cpu)) {
        let list = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!("--processor {cpu}: this process may use {list}")));
    }
    calibrate::options(args.processor, args.working_set, args.seconds).map_err(no_list)
}

/// Prints the steps of guests between those of the bar.
fn suspended(bar: &ProgressBar, ui: &Ui) -> Events {
    let (bar, print) = (bar.clone(), printer(ui, &Steps::new(false)));
    Arc::new(move |event| bar.suspend(|| print(event)))
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
    let cells = |measurement: &enforce::Measurement| {
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

/// A table, methods, and the costs.
fn switch_text(costs: &SwitchCosts, colour: bool) -> String {
    let rows: [(&str, &Histogram, &str); 6] = [
        (
            "wake-up",
            &costs.times.wake,
            "From before a driver on another processor rings until the plane's thread, which slept, is \
             at work.",
        ),
        (
            "TX",
            &costs.times.tx,
            "Looking at the ports' rings, reading a frame's descriptors and addresses, the discipline's \
             decision and what it notes.",
        ),
        ("softnet", &costs.times.softnet, "The same without reading a frame, with the receiver's buffers."),
        ("RX, 64 bytes", &costs.times.rx, "Copying the frame and returning its buffer to the sender."),
        ("RX, 1514 bytes", &costs.times.rx_long, "The same for a long frame."),
        ("event", &costs.times.event, "Notifying the sleeping receiver: a write to its eventfd."),
    ];
    let title = format!(
        "Switch{}, {}: its plane on processor {}, drivers on {}",
        costs.network.as_ref().map(|name| format!(" of {name}")).unwrap_or_default(),
        costs.discipline,
        costs.processor,
        costs.drivers_processor
    );
    let cells = |times: &Histogram| {
        let quantile = |ppm| fmt_duration(times.quantile_ppm(ppm));
        vec![quantile(500_000), quantile(990_000), fmt_duration(times.max()), fmt_count(times.count())]
    };
    let names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    let values: Vec<_> = rows.iter().map(|(_, times, _)| cells(times)).collect();
    let mut out = table::matrix(&title, &names, &COLUMNS, &values, colour) + "\n";
    for (name, _, method) in rows {
        out += &wrapped("", "  ", &format!("{name}: {method}"));
    }
    out += &format!("\n[network.{}.costs]\n", costs.network.as_deref().unwrap_or("NAME"));
    for (key, time) in costs.keys() {
        out += &format!("{key} = \"{time}\"\n");
    }
    out
}

/// What packets cost guests, for people.
fn guests_text(costs: &GuestCosts) -> String {
    let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
    let mut out = format!(
        "Guests: {} a packet that is sent and {} for 1024 bytes, {} and {} for one that is received, {} \
         to go on after they were parked\n",
        us(costs.send_ns),
        us(costs.send_per_kib_ns),
        us(costs.receive_ns),
        us(costs.receive_per_kib_ns),
        us(costs.resume_ns),
    );
    for (while_, trips) in ["everything sleeps", "the processor is busy"].iter().zip(&costs.round_trips) {
        out += &format!(
            "  {} round trips with pauses while {while_}: p10, p50, p90 and p99 {}, of which {} without \
             the wake-up\n",
            trips.count,
            trips.quantiles_ns.map(us).join(", "),
            us(trips.simulated_ns),
        );
    }
    out += "\n[network.NAME.costs]\n";
    for (key, time) in costs.keys() {
        out += &format!("{key} = \"{time}\"\n");
    }
    out
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
