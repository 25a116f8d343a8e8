//! What the analysis answers.

use punctual_model::Host;
use punctual_model::host::{Arrival, Cost, Work};
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_sched::Duration;
use serde::Serialize;

/// The answer for a task's deadlines or a vCPU's budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds under every release pattern that the host's arrivals and greatest costs permit.
    Guaranteed {
        /// A response time that is never exceeded, in ns.
        bound_ns: u64,
        /// Deadline less bound, in ns.
        slack_ns: u64,
    },
    /// It does not hold: the release pattern that breaks it.
    NotGuaranteed {
        /// When what is released, and by when a deadline is missed.
        counter_example: CounterExample,
    },
    /// The tests decide neither.
    Unknown {
        /// Why, and what would help.
        why: String,
    },
}

impl Verdict {
    /// Does it hold?
    pub fn is_guaranteed(&self) -> bool {
        matches!(self, Verdict::Guaranteed { .. })
    }
}

/// A pattern under which it does not hold. For a task, a release pattern: every task of the host releases its
/// first job at time zero and the others as close together as it may, every job takes its greatest cost, and
/// busy loops start at zero. For a vCPU's budget: every vCPU always has work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterExample {
    /// The release pattern in words.
    pub pattern: &'static str,
    /// By when a deadline has been missed, or a budget has not been delivered, in ns.
    pub missed_by_ns: u64,
    /// At least one of these tasks has missed one, as indices of [`Host::tasks`]; empty for a budget.
    #[serde(skip)]
    pub one_of: Vec<TaskIx>,
}

impl CounterExample {
    pub(crate) fn synchronous(one_of: Vec<TaskIx>, missed_by_ns: u64) -> Self {
        let pattern = "every task released at 0 and then as often as it may, with its greatest cost";
        CounterExample { pattern, missed_by_ns, one_of }
    }

    /// All vCPUs always have work, and one has not had its budget by then.
    pub(crate) fn all_busy(missed_by_ns: u64) -> Self {
        CounterExample { pattern: "every vCPU busy from 0 on", missed_by_ns, one_of: Vec::new() }
    }

    /// The host with this release pattern, for as long as it takes.
    pub fn apply(&self, host: &Host) -> Host {
        let mut host = host.clone();
        host.duration = Duration::from_ns(self.missed_by_ns);
        for task in &mut host.tasks {
            task.work = match task.work {
                Work::Jobs { arrival, cost, deadline } => {
                    let period = match arrival {
                        Arrival::Periodic { period, .. } => period,
                        Arrival::Sporadic { separation, .. } => separation,
                    };
                    Work::Jobs {
                        arrival: Arrival::Periodic { period, offset: Duration::ZERO },
                        cost: Cost { min: cost.max, max: cost.max },
                        deadline,
                    }
                }
                served @ Work::Served { .. } => served,
                Work::Hog { .. } => Work::Hog { start: Duration::ZERO },
            };
        }
        host
    }
}

/// What the greatest part of a response time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dominant {
    /// The task's own cost.
    OwnCost,
    /// Tasks beside it in the same guest, or more urgent ones on its processor.
    OtherTasks,
    /// Waiting for the vCPU's budget to come back.
    Budget,
    /// Other vCPUs and the scheduler's own time.
    OtherVcpus,
    /// Waiting for the vCPU to be supplied: its budget and other vCPUs, not told apart by the test.
    Supply,
}

impl Dominant {
    /// For tables.
    pub fn text(self) -> &'static str {
        match self {
            Dominant::OwnCost => "own cost",
            Dominant::OtherTasks => "other tasks",
            Dominant::Budget => "waiting for budget",
            Dominant::OtherVcpus => "other vCPUs",
            Dominant::Supply => "waiting for the vCPU",
        }
    }

    /// The greatest of the parts, the first of equals.
    pub(crate) fn greatest(parts: &[(Dominant, u64)]) -> Option<Dominant> {
        parts.iter().rev().max_by_key(|(_, ns)| *ns).map(|(what, _)| *what)
    }
}

/// The answer for one task; busy loops have no deadline and no entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskReport {
    /// Index in [`Host::tasks`].
    #[serde(skip)]
    pub task: TaskIx,
    /// Name.
    pub name: String,
    /// The domain it runs in, or the pool it runs in directly.
    pub parent: String,
    /// Relative deadline, in ns.
    pub deadline_ns: u64,
    /// Do all its jobs meet it?
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What the greatest part of the bound is; only with a bound.
    pub dominant: Option<Dominant>,
    /// The test that decided.
    pub test: &'static str,
}

/// The answer for one vCPU that has a budget: is it delivered in every period in which there is work for it?
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VcpuReport {
    /// Index in [`Host::vcpus`].
    #[serde(skip)]
    pub vcpu: VcpuIx,
    /// Name.
    pub name: String,
    /// Its period, in ns.
    pub period_ns: u64,
    /// The bound is on the time from the begin of a period to the end of the budget; slack is up to the
    /// period's end.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How late what is sent can come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "latency", rename_all = "kebab-case")]
pub enum Latency {
    /// Never later than this; nothing is lost.
    Bounded {
        /// In ns.
        bound_ns: u64,
    },
    /// No bound is known.
    Unknown {
        /// Why.
        why: String,
    },
}

/// The answer for one flow. The latency is that of the simulator's results: from a packet's creation until
/// its receiver has it, or until its sender has the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    /// Name.
    pub name: String,
    /// `ping`, `request`, `periodic`, `stream` or `storm`.
    pub kind: &'static str,
    /// Does the latency include the answer?
    pub round_trip: bool,
    /// The bound.
    #[serde(flatten)]
    pub latency: Latency,
}

/// The answer for one chain of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// Name.
    pub name: String,
    /// From the release of the first step to the end of the last, in ns.
    pub deadline_ns: u64,
    /// Is it met always? Chains are never refuted.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Something a practitioner should know though it is no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What it is about: a vCPU, a task or a pool by name.
    pub about: String,
    /// What is the matter and what would help.
    pub text: String,
}

/// Everything the analysis says about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The host's name.
    pub host: String,
    /// One entry per task with deadlines, in the host's order.
    pub tasks: Vec<TaskReport>,
    /// One entry per vCPU with a budget in a pool, in the host's order.
    pub vcpus: Vec<VcpuReport>,
    /// One entry per flow, in the host's order.
    pub flows: Vec<FlowReport>,
    /// One entry per chain, in the host's order.
    pub chains: Vec<ChainReport>,
    /// In the host's order.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// Does every task with deadlines meet all of them, and every chain its own?
    pub fn all_guaranteed(&self) -> bool {
        self.tasks.iter().all(|task| task.verdict.is_guaranteed())
            && self.chains.iter().all(|chain| chain.verdict.is_guaranteed())
    }
}
