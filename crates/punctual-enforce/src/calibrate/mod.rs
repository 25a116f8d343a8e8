//! What scheduling costs on this machine, for the simulator's [`Overheads`](punctual_model::host::Overheads).
//!
//! Each cost is measured many times and kept as a distribution. The simulator has one number for each cost
//! and takes the median. Threads that measure sleep and wake in turn and never spin, so that a SCHED_FIFO
//! thread cannot hold a processor; the caller's own affinity and priority stay as they are. Switches are
//! measured by the method of McVoy & Staelin, *lmbench* (USENIX 1996, s.6.6): a round trip through pipes,
//! less the cost of the system calls.

mod decision;
mod measurement;
mod migration;
mod session;
mod switching;
mod sys;

use std::time::Duration as Time;

pub use measurement::{Calibration, Id, Measurement, Options, Skipped};
pub use session::Error;

use session::Session;
use sys::on_processor;

/// How many steps [`calibrate`] takes.
pub const STEPS: usize = 9;

/// The processors that this process may use, ascending.
///
/// # Errors
/// When the system does not say.
pub fn processors() -> std::io::Result<Vec<usize>> {
    punctual_linux::os::sched::affinity(0)
}

/// Measures every cost. `stop` is asked between samples whether to end early; `progress` gets the number of
/// steps that are done.
///
/// # Errors
/// [`Error::Stopped`], or what the system refuses, such as a processor that this process may not use.
pub fn calibrate(
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Calibration, Error> {
    let each = Time::from_millis(options.time_ms / STEPS as u64);
    let mut session =
        Session { each, stop, progress, done: 0, measurements: Vec::new(), skipped: Vec::new() };
    on_processor(options.processor, None, || decision::measure(&mut session))?;
    switching::measure(&mut session, options)?;
    migration::measure(&mut session, options)?;
    let Session { mut measurements, skipped, .. } = session;
    measurements.sort_by_key(|measurement| Id::ALL.iter().position(|id| *id == measurement.id));
    Ok(Calibration { measurements, skipped })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn options() -> Options {
        let processors = processors().expect("an affinity");
        let processor = *processors.last().expect("this runs somewhere");
        let other = processors.iter().copied().find(|cpu| *cpu != processor);
        Options { processor, other, working_set_bytes: 16 << 10, time_ms: 90 }
    }

    #[test]
    fn everything_is_measured_or_left_out_with_a_reason() {
        let steps = AtomicUsize::new(0);
        let done =
            calibrate(&options(), &|| false, &|n| steps.store(n, Ordering::Relaxed)).expect("measured");
        for id in Id::ALL {
            let measured = done.measurements.iter().find(|m| m.id == id).map(|m| m.times.count());
            let skipped = done.skipped.iter().find(|skipped| skipped.id == id);
            match (measured, skipped) {
                (Some(count), None) => assert!(count > 0, "{id:?}"),
                (None, Some(skipped)) => assert!(!skipped.reason.is_empty(), "{id:?}"),
                both => panic!("{id:?}: {both:?}"),
            }
            assert!(id.method().ends_with('.') && !id.method().contains("  "), "{id:?}");
        }
        assert!(done.overheads().iter().any(|(key, time)| *key == "context_switch" && !time.is_zero()));
        if done.skipped.is_empty() {
            assert_eq!(steps.into_inner(), STEPS);
        }
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) > 2;
        let ended = calibrate(&Options { time_ms: 600_000, ..options() }, &stop, &|_| {});
        assert!(matches!(ended, Err(Error::Stopped)), "{:?}", ended.err());
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        let nowhere = Options { processor: 1_000_000, ..options() };
        assert!(matches!(calibrate(&nowhere, &|| false, &|_| {}), Err(Error::Os(_))));
    }
}
