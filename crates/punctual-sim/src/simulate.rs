//! The ways to simulate a host.

use punctual_model::host::Parent;
use punctual_model::trace::TraceSink;
use punctual_model::{Host, Results};
use punctual_sched::Policy;

use crate::blame::Blamer;
use crate::build;
use crate::checker::Checker;
use crate::error::Error;
use crate::observe::Observer;
use crate::tracer::Tracer;

/// Simulates `host` for its duration.
///
/// # Errors
/// [`Error::Refused`] when a policy refuses its parameters, [`Error::Violation`] when an invariant breaks.
pub fn simulate(host: &Host) -> Result<Results, Error> {
    run(host, (), |_, policy| policy)
}

/// Simulates `host` and reports what happens to `trace`.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_traced<T: TraceSink>(host: &Host, trace: &mut T) -> Result<Results, Error> {
    run(host, Tracer::new(host, trace), |_, policy| policy)
}

/// Simulates `host` and notifies `observer` of every event of the machine.
///
/// # Errors
/// As [`simulate`]; [`Error::Violation`] also when the observer stops the machine.
pub fn simulate_observed<O: Observer>(host: &Host, observer: O) -> Result<Results, Error> {
    run(host, observer, |_, policy| policy)
}

/// Simulates `host`, notifies `observer` of every event of the machine, and explains for each task in the
/// results why its jobs took as long as they did.
///
/// # Errors
/// As [`simulate_observed`]; [`Error::Violation`] also when the causes of a job do not add up to its response
/// time.
pub fn simulate_blamed<O: Observer>(host: &Host, observer: O) -> Result<Results, Error> {
    let mut blamer = Blamer::new(host);
    let mut results = simulate_observed(host, (&mut blamer, observer))?;
    blamer.fill_in(&mut results);
    Ok(results)
}

/// Simulates `host` with other policies than it names: `wrap` is given the policy of each pool and each guest
/// and returns what schedules in its place, see [`punctual_sched::wrap`].
///
/// # Errors
/// As [`simulate`].
pub fn simulate_wrapped(
    host: &Host,
    wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Results, Error> {
    run(host, (), wrap)
}

/// The same, and notifies `observer` of every event of the machine.
///
/// # Errors
/// As [`simulate_observed`].
pub fn simulate_wrapped_observed<O: Observer>(
    host: &Host,
    observer: O,
    wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Results, Error> {
    run(host, observer, wrap)
}

fn run<O: Observer>(
    host: &Host,
    observer: O,
    wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Results, Error> {
    let mut machine = build::machine(host, (Checker::new(host), observer), wrap)?;
    machine.run()?;
    Ok(machine.results())
}
