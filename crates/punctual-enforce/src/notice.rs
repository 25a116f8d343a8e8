//! What happens to units and domains while a run goes on.

use std::{fmt, io};

use punctual_model::results::GuestFault;
use punctual_sched::ParamError;

use crate::backend::TAKEN_OVER_WITHIN;
use crate::driver::ReplaceError;
use crate::unit::{self, Deviation, THREADS_MAX};
use punctual_linux::preflight::RT_RUNTIME;

/// What happened. The text is for the user.
#[derive(Debug)]
pub enum Notice {
    /// A unit's threads ended.
    Gone {
        /// The unit.
        unit: String,
    },
    /// A vCPU was plugged in, or has a thread again.
    Came {
        /// The unit.
        unit: String,
    },
    /// A vCPU came, but could not be put under enforcement: it may have gone again already.
    NotAdded {
        /// The unit.
        unit: String,
        /// Why.
        reason: String,
    },
    /// A unit cannot be enforced any more. It is in the fair class as far as possible.
    Failed {
        /// The unit.
        unit: String,
        /// Why.
        error: unit::Error,
    },
    /// A unit was changed by another program or by itself, and has what the run gave it again.
    PutBack {
        /// The unit.
        unit: String,
        /// What was changed.
        deviation: Deviation,
        /// How often.
        times: u64,
    },
    /// A unit has too many threads to be enforced: it gets what no other thread wants.
    Crowd {
        /// The unit.
        unit: String,
    },
    /// A unit that had too many threads is enforced again.
    Dispersed {
        /// The unit.
        unit: String,
    },
    /// The policy refused a unit or its new parameters.
    Refused {
        /// The unit.
        unit: String,
        /// Why.
        error: ParamError,
    },
    /// A pool keeps its policy: it could not be given this one.
    NotReplaced {
        /// The other policy's name.
        policy: &'static str,
        /// Why.
        error: ReplaceError,
    },
    /// The reports of a domain's guest are wrong or missing.
    Guest {
        /// The domain.
        domain: String,
        /// What is wrong.
        fault: GuestFault,
        /// How that was seen, and how the domain ended, if it did.
        reason: String,
    },
    /// The context switches of a pool's processors cannot be read.
    NoSwitches {
        /// Why.
        error: io::Error,
    },
    /// The kernel ended the scheduler that the run had loaded; an enforcer in user space took over.
    Ejected {
        /// What the kernel says.
        reason: String,
    },
    /// Another program limits real-time threads, which the run had lifted. The limit is kept.
    RtLimit {
        /// How long they may run in a period, in us.
        runtime_us: i64,
    },
    /// The clock of a domain ran wrong during the run. The times that the domain reports, and the periods of
    /// its tasks, are wrong by as much.
    WrongClock {
        /// The domain.
        domain: String,
        /// By how many millionths; too fast if positive.
        ppm: i64,
    },
}

impl Notice {
    /// The unit that it is about, if it is about one.
    pub fn unit(&self) -> Option<&str> {
        match self {
            Notice::Gone { unit }
            | Notice::Came { unit }
            | Notice::NotAdded { unit, .. }
            | Notice::Failed { unit, .. }
            | Notice::PutBack { unit, .. }
            | Notice::Crowd { unit }
            | Notice::Dispersed { unit }
            | Notice::Refused { unit, .. } => Some(unit),
            Notice::NotReplaced { .. }
            | Notice::Guest { .. }
            | Notice::NoSwitches { .. }
            | Notice::Ejected { .. }
            | Notice::RtLimit { .. }
            | Notice::WrongClock { .. } => None,
        }
    }

    /// Adds a notice to those so far; what was put back is counted there, however often it was.
    pub fn add_to(self, notices: &mut Vec<Notice>) {
        if let Notice::PutBack { unit, deviation, times } = &self {
            let same = notices.iter_mut().find_map(|known| match known {
                Notice::PutBack { unit: of, deviation: was, times } if of == unit && was == deviation => {
                    Some(times)
                }
                _ => None,
            });
            if let Some(known) = same {
                *known += times;
                return;
            }
        }
        notices.push(self);
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Gone { unit } => write!(f, "`{unit}` ended during the run"),
            Notice::Came { unit } => write!(f, "`{unit}` came during the run"),
            Notice::NotAdded { unit, reason } => {
                write!(f, "`{unit}` could not be enforced any more: {reason}")
            }
            Notice::Failed { unit, error } => write!(f, "`{unit}` could not be enforced any more: {error}"),
            Notice::PutBack { unit, deviation, times: 1 } => {
                write!(f, "`{unit}` {deviation} during the run, and was put back")
            }
            Notice::PutBack { unit, deviation, times } => {
                write!(f, "`{unit}` {deviation} {times} times during the run, and was put back")
            }
            Notice::Crowd { unit } => write!(
                f,
                "`{unit}` has more than {THREADS_MAX} threads: until it has {} it gets what no other unit \
                 wants; `threads_max` of its domain limits them",
                THREADS_MAX / 2
            ),
            Notice::Dispersed { unit } => {
                write!(f, "`{unit}` has at most {} threads again and gets its budget", THREADS_MAX / 2)
            }
            Notice::Refused { unit, error } => write!(f, "`{unit}` was refused: {error}"),
            Notice::NotReplaced { policy, error } => {
                write!(f, "a pool could not be given policy `{policy}`, and keeps its own: {error}")
            }
            Notice::Guest { domain, fault, reason } => {
                write!(f, "domain `{domain}`: {}: {reason}", fault.words())
            }
            Notice::NoSwitches { error } => write!(
                f,
                "context switches cannot be read (perf_event_open: {error}): other threads on the pools' \
                 processors are named by samples of /proc; it takes CAP_PERFMON, or root"
            ),
            Notice::Ejected { reason } => write!(
                f,
                "the kernel ended the run's scheduler ({reason}): units had no budgets for up to {} ms, then \
                 the freezer took over",
                TAKEN_OVER_WITHIN.as_ns() / 1_000_000
            ),
            Notice::RtLimit { runtime_us } => write!(
                f,
                "another program set {RT_RUNTIME} to {runtime_us} during the run, and it is kept: Linux \
                 stops vCPUs that run longer than that in a period of sched_rt_period_us"
            ),
            Notice::WrongClock { domain, ppm } => write!(
                f,
                "the clock of domain `{domain}` ran {:.1} % too {}: the times in its reports are wrong by \
                 as much",
                ppm.unsigned_abs() as f64 / 1e4,
                if *ppm > 0 { "fast" } else { "slow" }
            ),
        }
    }
}
