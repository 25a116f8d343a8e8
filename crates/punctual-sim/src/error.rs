//! Why a simulation stops.

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
