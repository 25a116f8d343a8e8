//! Why a unit cannot be read or scheduled.

use std::{fmt, io};

/// What another program, or the unit itself, changed of a unit's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// A thread is in another cgroup.
    Group,
    /// A thread has another scheduling class or priority.
    Class,
    /// A thread may run on other processors, or on fewer.
    Affinity,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Deviation::Group => "was moved to another cgroup",
            Deviation::Class => "was given another scheduling class or priority",
            Deviation::Affinity => "was given other processors",
        })
    }
}

/// A unit that deviates this many times within [`DEVIATIONS_WITHIN`] is given up.
pub const DEVIATIONS_MAX: usize = 5;

/// See [`DEVIATIONS_MAX`].
pub const DEVIATIONS_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

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
    /// Another program, or the unit itself, changed it too often: it is in the fair class.
    #[error("it {0} {max} times within {s} s", max = DEVIATIONS_MAX, s = DEVIATIONS_WITHIN.as_secs())]
    Contested(Deviation),
    /// It was changed, and the change cannot be undone: it is in the fair class.
    #[error("it {deviation}, which cannot be undone: {source}")]
    Displaced {
        /// What was changed.
        deviation: Deviation,
        /// What the system says.
        source: io::Error,
    },
    /// The scheduler in the kernel does not take it.
    #[error("the scheduler in the kernel does not take it: {0}")]
    Kernel(#[source] io::Error),
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
