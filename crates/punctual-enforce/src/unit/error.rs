//! Why a unit cannot be read or scheduled.

use std::io;

/// Why a unit cannot be read or scheduled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its threads have ended.
    #[error("its threads are gone")]
    Gone,
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried, as a sentence: "it cannot be frozen".
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It has more threads than an enforcer sets.
    #[error("it has more than {} threads", super::THREADS_MAX)]
    Crowd,
    /// SCHED_DEADLINE needs both.
    #[error("it has no budget and period")]
    NoBudget,
}

impl Error {
    /// For [`Result::map_err`]: what was tried, or [`Error::Gone`] where the system's error means that.
    pub(super) fn of(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENODEV | libc::ENOENT) => Error::Gone,
            _ => Error::System { what, source },
        }
    }
}
