//! What scheduling, the steps of a switch and packets in guests cost on this machine.

mod error;
mod guests;
mod machine;
mod switch;

use punctual_enforce::calibrate::{self, Calibration, Options, STEPS};

pub use error::Error;
pub use guests::GuestCosts;
pub use machine::{BOOT, Machine};
pub use switch::{Subject, SwitchCosts};

/// The working set of a migrating thread in KiB, unless the user says otherwise.
pub const WORKING_SET_KIB: u32 = 256;

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
