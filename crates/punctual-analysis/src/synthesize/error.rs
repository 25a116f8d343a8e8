//! Why nothing was found.

use std::fmt;

use punctual_sched::{Duration, Instant, ParamError};
use thiserror::Error as ThisError;

use crate::answer::Answer;
use crate::reason::Reason;
use crate::watch::Stopped;

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    #[error("nothing guarantees {name}")]
    Unmet {
        /// A vCPU, a task, a pool or a network.
        name: String,
        why: Vec<Shortfall>,
    },
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What is missing to a guarantee.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Shortfall {
    /// The host has events.
    #[error("the host changes while it runs (`event`), and the search sizes one that does not")]
    Changes,
    #[error(
        "packet rates depend on the budgets of all domains on the way, but the search sizes one domain at a \
         time; try budgets with `punctual check`"
    )]
    Packets,
    #[error(transparent)]
    NoTest(#[from] Reason),
    #[error("{name}: {}", Said(.answer))]
    Task { name: String, answer: Answer },
    #[error("not even {budget} in every {period} is guaranteed to be left for it")]
    NoTime { budget: Duration, period: Duration },
    #[error(
        "the smallest budget, {budget}, exceeds its period of {period}; budgets are multiples of the \
         granularity"
    )]
    Granularity {
        /// The smallest multiple that the policy accepts.
        budget: Duration,
        period: Duration,
    },
    #[error("the policy accepts none of the periods to choose from: {0}")]
    Periods(ParamError),
    #[error("even with {budget} in every {period}, the most that it is guaranteed")]
    With {
        /// The largest budget that is surely delivered.
        budget: Duration,
        period: Duration,
    },
    #[error("on processor {processor} {name}: {}", joined(.why))]
    OnProcessor {
        processor: usize,
        /// The vCPU or task for which nothing suffices there.
        name: String,
        why: Vec<Shortfall>,
    },
    #[error("no placement was found")]
    NoPlacement,
    #[error("the search ended before it found a solution; raise --effort")]
    Effort,
}

fn joined(why: &[Shortfall]) -> String {
    let texts: Vec<String> = why.iter().map(Shortfall::to_string).collect();
    texts.join("; ")
}

struct Said<'a>(&'a Answer);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Answer::Guaranteed { .. } => f.write_str("guaranteed"),
            Answer::Refuted(refutation) => {
                write!(f, "misses the deadline at {}", refutation.missed_by.since(Instant::ZERO))?;
                if let Some(late) = refutation.late_min {
                    write!(f, " by at least {late}")?;
                }
                write!(f, ", with {}", refutation.pattern)
            }
            Answer::Unknown(reason) => reason.fmt(f),
        }
    }
}
