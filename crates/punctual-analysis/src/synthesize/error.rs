//! Why nothing was found.

use punctual_model::Host;
use punctual_sched::{Duration, Instant, ParamError};
use thiserror::Error as ThisError;

use crate::answer::{Answer, Answers};
use crate::needs::Need;
use crate::reason::{ChainReason, PacketReason, Reason, whole_us};
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
    #[error(transparent)]
    NoTest(#[from] Reason),
    #[error("{name}: {why}")]
    Task {
        name: String,
        /// What the analysis says of it.
        why: String,
    },
    #[error(
        "{name}: the bound of {} exceeds the deadline by {}",
        whole_us(.bound), whole_us(&(*bound - *deadline))
    )]
    LateFlow { name: String, bound: Duration, deadline: Duration },
    #[error("{name}: {why}")]
    Flow { name: String, why: PacketReason },
    #[error("{name}: {why}")]
    Chain { name: String, why: ChainReason },
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
    #[error("even with {budget} in every {period} for {name}, the most that it is guaranteed")]
    WithUnit {
        /// The vCPU, the first of several with one budget, or the task.
        name: String,
        /// The largest budget that is surely delivered beside the others.
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

impl Shortfall {
    /// What is missing to the deadline of a task that `answer` is about.
    pub(super) fn of_task(name: String, answer: &Answer, host: &Host) -> Self {
        let why = match answer {
            Answer::Guaranteed { .. } => "guaranteed".to_owned(),
            Answer::Refuted(refutation) => {
                let at = refutation.missed_by.since(Instant::ZERO);
                let by = refutation.late_min.map(|late| format!(" by at least {late}")).unwrap_or_default();
                format!("misses the deadline at {at}{by}, with {}", refutation.pattern)
            }
            Answer::Unknown(reason) => reason.text(host),
        };
        Shortfall::Task { name, why }
    }

    /// What is missing to this deadline.
    pub(super) fn of(need: Need, host: &Host, answers: &Answers) -> Self {
        let name = need.name(host).to_owned();
        match need {
            Need::Task(task) => match answers.tasks.get(&task) {
                Some(of) => Shortfall::of_task(name, &of.answer, host),
                None => Shortfall::NoTest(Reason::NotAccepted),
            },
            Need::Flow(flow) => match (&answers.flows[flow], host.flows[flow].deadline) {
                (Ok(bound), deadline) => {
                    Shortfall::LateFlow { name, bound: *bound, deadline: deadline.unwrap_or(*bound) }
                }
                (Err(why), _) => Shortfall::Flow { name, why: why.clone() },
            },
            Need::Chain(chain) => match &answers.chains[chain] {
                Ok(_) => Shortfall::NoPlacement,
                Err(why) => Shortfall::Chain { name, why: why.clone() },
            },
        }
    }
}

fn joined(why: &[Shortfall]) -> String {
    let texts: Vec<String> = why.iter().map(Shortfall::to_string).collect();
    texts.join("; ")
}
