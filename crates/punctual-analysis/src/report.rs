//! What the analysis answers.

use punctual_model::Host;
use punctual_model::guarantees::{
    self, ChainGuarantee, Dominant, FlowGuarantee, Guarantees, TaskGuarantee, VcpuGuarantee, Warning,
};
use punctual_model::host::{Arrival, Cost, Work};
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_sched::Duration;

/// The answer for a task's deadlines or a vCPU's budget.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    fn shown(&self) -> guarantees::Verdict {
        match self {
            Verdict::Guaranteed { bound_ns, slack_ns } => {
                guarantees::Verdict::Guaranteed { bound_ns: *bound_ns, slack_ns: *slack_ns }
            }
            Verdict::NotGuaranteed { counter_example } => guarantees::Verdict::NotGuaranteed {
                counter_example: guarantees::CounterExample {
                    pattern: counter_example.pattern.to_owned(),
                    missed_by_ns: counter_example.missed_by_ns,
                },
            },
            Verdict::Unknown { why } => guarantees::Verdict::Unknown { why: why.clone() },
        }
    }
}

/// A pattern under which it does not hold. For a task, a release pattern: every task of the host releases its
/// first job at time zero and the others as close together as it may, every job takes its greatest cost, and
/// busy loops start at zero. For a vCPU's budget: every vCPU always has work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterExample {
    /// The release pattern in words.
    pub pattern: &'static str,
    /// By when a deadline has been missed, or a budget has not been delivered, in ns.
    pub missed_by_ns: u64,
    /// At least one of these tasks has missed one, as indices of [`Host::tasks`]; empty for a budget.
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

/// The greatest of the parts of a response time, the first of equals.
pub(crate) fn greatest(parts: &[(Dominant, u64)]) -> Option<Dominant> {
    parts.iter().rev().max_by_key(|(_, ns)| *ns).map(|(what, _)| *what)
}

/// The answer for one task; busy loops have no deadline and no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskReport {
    /// Index in [`Host::tasks`].
    pub task: TaskIx,
    /// Name.
    pub name: String,
    /// The domain it runs in, or the pool it runs in directly.
    pub parent: String,
    /// Relative deadline, in ns.
    pub deadline_ns: u64,
    /// Do all its jobs meet it?
    pub verdict: Verdict,
    /// What the greatest part of the bound is; only with a bound.
    pub dominant: Option<Dominant>,
    /// The test that decided.
    pub test: &'static str,
}

/// The answer for one vCPU that has a budget: is it delivered in every period in which there is work for it?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuReport {
    /// Index in [`Host::vcpus`].
    pub vcpu: VcpuIx,
    /// Name.
    pub name: String,
    /// Its period, in ns.
    pub period_ns: u64,
    /// The bound is on the time from the begin of a period to the end of the budget; slack is up to the
    /// period's end.
    pub verdict: Verdict,
}

/// How late what is sent can come.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Name.
    pub name: String,
    /// `ping`, `request`, `periodic`, `stream` or `storm`.
    pub kind: &'static str,
    /// Does the latency include the answer?
    pub round_trip: bool,
    /// The bound.
    pub latency: Latency,
}

/// The answer for one chain of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReport {
    /// Name.
    pub name: String,
    /// From the release of the first step to the end of the last, in ns.
    pub deadline_ns: u64,
    /// Is it met always? Chains are never refuted.
    pub verdict: Verdict,
}

/// Everything the analysis says about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The report as it is shown and written.
    pub fn guarantees(&self) -> Guarantees {
        let task = |task: &TaskReport| TaskGuarantee {
            name: task.name.clone(),
            parent: task.parent.clone(),
            deadline_ns: task.deadline_ns,
            verdict: task.verdict.shown(),
            dominant: task.dominant,
            test: task.test.to_owned(),
        };
        let vcpu = |vcpu: &VcpuReport| VcpuGuarantee {
            name: vcpu.name.clone(),
            period_ns: vcpu.period_ns,
            verdict: vcpu.verdict.shown(),
        };
        let flow = |flow: &FlowReport| FlowGuarantee {
            name: flow.name.clone(),
            kind: flow.kind.to_owned(),
            round_trip: flow.round_trip,
            latency: match &flow.latency {
                Latency::Bounded { bound_ns } => guarantees::Latency::Bounded { bound_ns: *bound_ns },
                Latency::Unknown { why } => guarantees::Latency::Unknown { why: why.clone() },
            },
        };
        let chain = |chain: &ChainReport| ChainGuarantee {
            name: chain.name.clone(),
            deadline_ns: chain.deadline_ns,
            verdict: chain.verdict.shown(),
        };
        Guarantees {
            host: self.host.clone(),
            tasks: self.tasks.iter().map(task).collect(),
            vcpus: self.vcpus.iter().map(vcpu).collect(),
            flows: self.flows.iter().map(flow).collect(),
            chains: self.chains.iter().map(chain).collect(),
            warnings: self.warnings.clone(),
        }
    }
}
