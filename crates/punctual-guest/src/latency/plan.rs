//! What to measure, and why that may fail.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// A thread that spins begins a burst so often.
pub const BURST_PERIOD_NS: u64 = 100_000_000;
/// The longest burst: three quarters of the period, below the kernel's default of 95 % for real-time threads.
pub const BURST_MAX_NS: u64 = 75_000_000;
/// The longest measurement: a week.
const LENGTH_MAX_NS: u64 = 7 * 24 * 3_600 * 1_000_000_000;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The processors, each by a thread of its own; if empty, all that a thread can be bound to.
    pub processors: Vec<usize>,
    /// How long to spin, in ns; 0 for not at all.
    pub spin_ns: u64,
    /// How long to spin in each [`BURST_PERIOD_NS`].
    pub burst_ns: u64,
    /// How long to measure wake-ups, in ns; 0 for not at all.
    pub wakeup_ns: u64,
    /// The period of the timers.
    pub interval_ns: u64,
    /// `SCHED_FIFO` with this priority; 0 for the fair class.
    pub priority: u32,
}

impl Plan {
    /// Checks the numbers, which may come from anywhere.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = if self.priority > 98 {
            "the priority is above 98"
        } else if !(10_000..=1_000_000_000).contains(&self.interval_ns) {
            "the interval is not between 10 us and 1 s"
        } else if self.spin_ns.max(self.wakeup_ns) > LENGTH_MAX_NS {
            "the measurement is longer than a week"
        } else if !(1_000_000..=BURST_MAX_NS).contains(&self.burst_ns) {
            "a burst is not between 1 and 75 ms long"
        } else if self.processors.len() > 4096 {
            "more than 4096 processors"
        } else {
            return Ok(());
        };
        Err(Error::Plan(wrong))
    }
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum Error {
    /// The plan is wrong.
    Plan(&'static str),
    /// A thread could not be created, or put where it belongs.
    Thread { processor: usize, what: &'static str, error: io::Error },
    /// The processors that this process may use are not known.
    Processors(io::Error),
    /// The watchdog could not be set.
    Watchdog(io::Error),
    /// A thread has panicked.
    Panicked,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Plan(wrong) => write!(out, "the plan cannot be measured: {wrong}"),
            Error::Thread { processor, what, error } => {
                write!(out, "the thread for processor {processor}: {what}: {error}")
            }
            Error::Processors(error) => write!(out, "cannot tell which processors may be used: {error}"),
            Error::Watchdog(error) => write!(out, "cannot limit the time of real-time threads: {error}"),
            Error::Panicked => out.write_str("a measuring thread panicked"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Thread { error, .. } | Error::Processors(error) | Error::Watchdog(error) => Some(error),
            Error::Plan(_) | Error::Panicked => None,
        }
    }
}
