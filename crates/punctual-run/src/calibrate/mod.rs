//! What scheduling, the steps of a switch and packets in guests cost on this machine.

mod guests;
mod switch;

use std::path::PathBuf;

use punctual_enforce::calibrate::{self, Calibration, Options, STEPS};
use punctual_linux::Stop;
use punctual_model::{Host, Results, file};

use crate::config::{DefaultBackend, Hooks, NetworkConfig, RunConfig};
use crate::events::Events;
use crate::host::{Incomplete, run_host};
use crate::run::RunError;

pub use guests::GuestCosts;
pub use switch::{Subject, SwitchCosts};

/// The working set of a migrating thread in KiB, unless the user says otherwise.
pub const WORKING_SET_KIB: u32 = 256;

/// How long many VMs may take to boot on one processor.
pub const BOOT: std::time::Duration = std::time::Duration::from_secs(180);

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("stopped before there was a result")]
    Stopped,
    #[error("cannot measure: {0}")]
    Os(#[source] std::io::Error),
    #[error("cannot tell which processors may be used: {0}")]
    Processors(#[source] std::io::Error),
    #[error("the switch: {0}")]
    Switch(String),
    #[error("the guests exchanged too few packets to say what one costs; try a longer --seconds")]
    TooFew,
    #[error(transparent)]
    Host(#[from] file::Errors),
    #[error(transparent)]
    Run(#[from] RunError),
    /// After the run not everything was put back.
    #[error("not everything could be put back:\n  {}", .0.join("\n  "))]
    NotPutBack(Vec<String>),
    #[error("{0}")]
    Violation(String),
    #[error(transparent)]
    Simulation(#[from] punctual_sim::Error),
}

/// How VMs are run for a measurement.
pub struct Machine<'a> {
    /// This program's file, for the guardian.
    pub program: PathBuf,
    pub events: Events,
    pub stop: Stop,
    /// Ends this process, when the guardian asks for it.
    pub end: fn() -> !,
    /// Learns how many steps are done.
    pub done: &'a (dyn Fn(usize) + Sync),
}

/// All that was measured.
pub struct Measured {
    pub options: Options,
    pub calibration: Calibration,
    /// One for each network of the host file, at least one.
    pub switches: Vec<SwitchCosts>,
    pub guests: Option<GuestCosts>,
}

impl Measured {
    /// Measures; `guest_seconds` is how long each run of VMs takes, if guests are measured.
    ///
    /// # Errors
    /// [`Error`]; the machine's settings are restored.
    pub fn new(
        options: Options,
        subjects: &[Subject],
        guest_seconds: Option<u32>,
        machine: &Machine<'_>,
    ) -> Result<Measured, Error> {
        let stop = machine.stop;
        let calibration = calibrate::calibrate(&options, &stop, machine.done);
        let calibration = calibration.map_err(|error| match error {
            calibrate::Error::Stopped => Error::Stopped,
            calibrate::Error::Os(error) => Error::Os(error),
        })?;
        let each = std::time::Duration::from_millis(options.time_ms / STEPS as u64);
        let processors = [options.other.unwrap_or(options.processor), options.processor];
        let mut switches = Vec::new();
        for subject in subjects {
            switches.push(subject.measure(processors, each, stop)?);
            (machine.done)(STEPS + switches.len());
        }
        let (overheads, costs) = (calibration.overheads(), switches[0].keys());
        let guests = guest_seconds.map(|seconds| guests::measure(seconds, &overheads, &costs, machine));
        Ok(Measured { options, calibration, switches, guests: guests.transpose()? })
    }
}

/// What scheduling, the steps of network `network` and packets in guests cost here, as settings of a host
/// file. Takes `seconds`, and twice as long with two VMs.
///
/// # Errors
/// As [`Measured::new`].
pub fn settings(network: &str, seconds: u32, machine: &Machine<'_>) -> Result<Vec<String>, Error> {
    let options = options(None, WORKING_SET_KIB, seconds).map_err(Error::Processors)?;
    let measured = Measured::new(options, &Subject::all(None), Some(seconds), machine)?;
    let overheads = measured.calibration.overheads().into_iter();
    let overheads = overheads.map(|(key, time)| format!("machine.overheads.{key}={time}"));
    let keys = measured.switches[0].keys().into_iter();
    let keys = keys.chain(measured.guests.iter().flat_map(GuestCosts::keys));
    Ok(overheads.chain(keys.map(|(key, time)| format!("network.{network}.costs.{key}={time}"))).collect())
}

/// Where and how long to measure, on this processor if one is given.
///
/// # Errors
/// The system does not say which processors this process may use.
pub fn options(processor: Option<usize>, working_set_kib: u32, seconds: u32) -> std::io::Result<Options> {
    let allowed = calibrate::processors()?;
    // Interrupts and the system's own work are on processor 0 more often than not.
    let usual = allowed.get(1).or(allowed.first()).copied().unwrap_or_default();
    let processor = processor.unwrap_or(usual);
    Ok(Options {
        processor,
        other: allowed.into_iter().find(|cpu| *cpu != processor),
        working_set_bytes: working_set_kib as usize * 1024,
        time_ms: u64::from(seconds) * 1000,
    })
}

/// Runs a host for what is measured of it.
fn results_of(host: &Host, machine: &Machine<'_>) -> Result<Results, Error> {
    let config = RunConfig {
        boot: BOOT,
        networks: NetworkConfig { one_plane: true, ..NetworkConfig::default() },
        ..RunConfig::new(machine.program.clone(), DefaultBackend::Vm)
    };
    let hooks =
        Hooks { events: machine.events.clone(), stop: machine.stop, end: machine.end, watch: &mut |_| () };
    run_host(host, &config, hooks)?.into_results().map_err(|incomplete| match incomplete {
        Incomplete::Stopped => Error::Stopped,
        Incomplete::NotPutBack(failures) => Error::NotPutBack(failures),
        Incomplete::Violation(text) => Error::Violation(text),
    })
}
