//! The deterministic machine: a discrete-event simulation of hierarchical schedulers.

#![forbid(unsafe_code)]

use punctual_model::trace::{NoTrace, TraceSink};
use punctual_model::{Host, Results};

/// Why a simulation did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A policy refused its options or the parameters of a unit.
    Refused(String),
    /// An invariant of the machine or the policy was violated.
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
    simulate_traced(host, &mut NoTrace)
}

/// Simulates `host` and tells `trace` what happens.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_traced<T: TraceSink>(host: &Host, trace: &mut T) -> Result<Results, Error> {
    let _ = (host, trace);
    Err(Error::Refused("the machine is not built yet".into()))
}
