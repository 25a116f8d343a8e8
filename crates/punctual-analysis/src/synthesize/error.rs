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
    /// Nothing suffices for this.
    #[error("nothing guarantees {name}")]
    Unmet {
        /// A vCPU, a task, a pool or a network.
        name: String,
        /// What is missing.
        why: Vec<Shortfall>,
    },
    /// The watch said so.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What is missing to a guarantee.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Shortfall {
    /// Domains that exchange packets.
    #[error(
        "how often packets come depends on the budgets of all domains that they pass, and the search \
         looks at one after the other; try budgets with `punctual check`"
    )]
    Packets,
    /// The pool's units have no test.
    #[error(transparent)]
    NoTest(#[from] Reason),
    /// A task is not guaranteed.
    #[error("{name}: {}", Said(.answer))]
    Task {
        /// Its name.
        name: String,
        /// What the tests say of it.
        answer: Answer,
    },
    /// Not even the smallest budget is delivered.
    #[error("not even {budget} in every {period} is surely left for it")]
    NoTime {
        /// The smallest budget that was tried.
        budget: Duration,
        /// Its period.
        period: Duration,
    },
    /// No multiple of the granularity is a budget.
    #[error(
        "the smallest budget, {budget}, exceeds its period of {period}; budgets are multiples of the \
         granularity"
    )]
    Granularity {
        /// The smallest multiple that the policy accepts.
        budget: Duration,
        /// Its period.
        period: Duration,
    },
    /// The policy takes none of the periods to choose from.
    #[error("none of the periods to choose from suits the policy: {0}")]
    Periods(ParamError),
    /// Stands before what is missing then.
    #[error("with {budget} in every {period}, the most it surely gets")]
    With {
        /// The largest budget that is surely delivered.
        budget: Duration,
        /// Its period.
        period: Duration,
    },
    /// What is missing when the unit is put on this processor of the machine.
    #[error("on processor {processor} {name}: {}", joined(.why))]
    OnProcessor {
        /// The processor.
        processor: usize,
        /// The vCPU or task for which nothing suffices there.
        name: String,
        /// What is missing to it.
        why: Vec<Shortfall>,
    },
    /// No placement is found, although each unit fits alone.
    #[error("no placement was found")]
    NoPlacement,
    /// The search ended too early.
    #[error("the search ended before it found anything; try more effort")]
    Effort,
}

fn joined(why: &[Shortfall]) -> String {
    let texts: Vec<String> = why.iter().map(Shortfall::to_string).collect();
    texts.join("; ")
}

/// An answer in words.
struct Said<'a>(&'a Answer);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Answer::Guaranteed { .. } => f.write_str("guaranteed"),
            Answer::Refuted(refutation) => {
                let by = refutation.missed_by.since(Instant::ZERO);
                write!(f, "misses by {by} with {}", refutation.pattern)
            }
            Answer::Unknown(reason) => reason.fmt(f),
        }
    }
}
