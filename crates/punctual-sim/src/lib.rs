//! The deterministic machine: a discrete-event simulation of hierarchical schedulers.
//!
//! A scheduler maps units to processors. A pool's scheduler has physical processors; a guest's has vCPUs,
//! which are units of the scheduler above. There is no other kind of thing, so any number of levels works:
//! hypervisor and guest, a host and its containers (one level fewer), a VM inside a VM (one more).
//!
//! Time is integer nanoseconds. At each instant at which something happens, the machine first ends what
//! ends then (slices, jobs), then runs due timers of policies, then releases jobs, and only then lets
//! schedulers decide, guests before the pools under them. The same host gives the same results, bit for
//! bit, on any machine and however many simulations run beside it.
//!
//! A Linux host with its network stack has a machine of its own (`punctual-host-stack-sim`).
//!
//! Every simulation is watched by a [`Checker`]; an invariant that breaks stops the run with an account of
//! what happened. Further observers are told the same events ([`observe`]).

#![forbid(unsafe_code)]

mod arrivals;
mod batch;
mod blame;
mod build;
mod checker;
mod engine;
mod index;
mod machine;
mod min_tree;
mod names;
mod net;
pub mod observe;
mod outcome;
mod replay;
mod tracer;

pub use batch::simulate_all;
pub use blame::Blamer;
pub use checker::Checker;
pub use replay::simulate_disturbed;
pub use tracer::Tracer;

use punctual_model::host::Parent;
use punctual_model::trace::TraceSink;
use punctual_model::{Host, Results};
use punctual_sched::Policy;

use observe::Observer;

/// Why a simulation did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A policy refused its options or the parameters of a unit; a host that came from a file was checked
    /// for this before.
    Refused(String),
    /// An invariant of the machine or of a policy was violated: what, when, by whom, and what led to it.
    Violation(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused(text) | Error::Violation(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// Simulates `host` for its duration.
///
/// # Errors
/// [`Error::Refused`] when a policy refuses its parameters, [`Error::Violation`] when an invariant breaks.
pub fn simulate(host: &Host) -> Result<Results, Error> {
    run(host, (), |_, policy| policy)
}

/// Simulates `host` and tells `trace` what happens.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_traced<T: TraceSink>(host: &Host, trace: &mut T) -> Result<Results, Error> {
    run(host, Tracer::new(host, trace), |_, policy| policy)
}

/// Simulates `host` and tells `observer` every event of the machine.
///
/// # Errors
/// As [`simulate`]; [`Error::Violation`] also when the observer stops the machine.
pub fn simulate_observed<O: Observer>(host: &Host, observer: O) -> Result<Results, Error> {
    run(host, observer, |_, policy| policy)
}

/// Simulates `host`, tells `observer` every event of the machine, and says of each task in the results why
/// its jobs took as long as they did.
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

fn run<O: Observer>(
    host: &Host,
    observer: O,
    wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Results, Error> {
    let mut machine = build::machine(host, (Checker::new(host), observer), wrap)?;
    machine.run()?;
    Ok(machine.results())
}
