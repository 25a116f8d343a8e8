//! What the tests answer, with types. [`Answers::guarantees`] puts it into the form that is shown and
//! written.

use std::collections::BTreeMap;
use std::fmt;

use punctual_model::Host;
use punctual_model::guarantees::{
    ChainGuarantee, CounterExample, Dominant, FlowGuarantee, Guarantees, Latency, TaskGuarantee,
    VcpuGuarantee, Verdict, Warning,
};
use punctual_model::host::{Arrival, Cost, Work};
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_model::network::{Chain, Flow, Traffic};
use punctual_sched::{Duration, Instant};

use crate::inputs::{parent_of, separation};
use crate::reason::{ChainReason, PacketReason, Reason};

/// Does it hold: a task's deadline, or a vCPU's budget in every period?
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It holds under every release pattern that the host's arrivals and greatest costs permit.
    Guaranteed {
        /// A response time that is never exceeded.
        bound: Duration,
        /// Deadline less bound.
        slack: Duration,
    },
    Refuted(Refutation),
    /// The tests decide neither.
    Unknown(Reason),
}

impl Answer {
    pub fn is_guaranteed(&self) -> bool {
        matches!(self, Answer::Guaranteed { .. })
    }

    /// The answer about something of `host`, as it is shown.
    pub(crate) fn verdict(&self, host: &Host) -> Verdict {
        match self {
            Answer::Guaranteed { bound, slack } => {
                Verdict::Guaranteed { bound_ns: bound.as_ns(), slack_ns: slack.as_ns() }
            }
            Answer::Refuted(refutation) => {
                Verdict::NotGuaranteed { counter_example: refutation.counter_example() }
            }
            Answer::Unknown(reason) => Verdict::Unknown { why: reason.text(host) },
        }
    }
}

/// Why something does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refutation {
    pub pattern: Pattern,
    /// By when a deadline has been missed, or a budget has not been delivered.
    pub missed_by: Instant,
    /// The job ends at least so much later than its deadline; `None` where nothing is known about that.
    pub late_min: Option<Duration>,
    /// What of a budget is missing then; `None` for a deadline, or where it is not known.
    pub short: Option<Duration>,
    /// At least one of these tasks has missed a deadline; empty for a budget.
    pub one_of: Vec<TaskIx>,
}

impl Refutation {
    pub(crate) fn synchronous(one_of: Vec<TaskIx>, missed_by: Duration) -> Self {
        Refutation {
            pattern: Pattern::Synchronous,
            missed_by: Instant::ZERO + missed_by,
            late_min: None,
            short: None,
            one_of,
        }
    }

    /// The same with what is known about how late the job ends.
    #[must_use]
    pub(crate) fn late(self, late_min: Option<Duration>) -> Self {
        Refutation { late_min: late_min.filter(|late| !late.is_zero()), ..self }
    }

    /// A budget of which `short` is missing by then when all vCPUs always have work.
    pub fn all_busy(missed_by: Duration, short: Option<Duration>) -> Self {
        Refutation {
            pattern: Pattern::AllBusy,
            missed_by: Instant::ZERO + missed_by,
            late_min: None,
            short,
            one_of: Vec::new(),
        }
    }

    fn counter_example(&self) -> CounterExample {
        CounterExample {
            pattern: self.pattern.to_string(),
            missed_by_ns: self.missed_by.as_ns(),
            late_min_ns: self.late_min.map(Duration::as_ns),
            short_ns: self.short.map(Duration::as_ns),
        }
    }

    /// The host with the releases of the pattern, for as long as it takes to miss.
    pub fn apply(&self, host: &Host) -> Host {
        Host { duration: self.missed_by.since(Instant::ZERO), ..self.pattern.apply(host) }
    }
}

/// The pattern that breaks something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Every task of the host releases its first job at time zero and the others as close together as it may,
    /// every job takes its greatest cost, and busy loops start at zero.
    Synchronous,
    /// The same with other first releases.
    Released(Vec<FirstRelease>),
    /// Every vCPU always has work.
    AllBusy,
}

/// When a task releases its first job, or a busy loop starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstRelease {
    pub task: TaskIx,
    /// After the start.
    pub at: Duration,
    /// The task's name with that of its parent.
    pub name: String,
}

impl FirstRelease {
    pub fn new(host: &Host, task: TaskIx, at: Duration) -> Self {
        FirstRelease { task, at, name: format!("{}.{}", parent_of(host, task), host.tasks[task.0].name) }
    }
}

impl Pattern {
    /// The host with these releases, each job with its greatest cost.
    pub fn apply(&self, host: &Host) -> Host {
        let mut host = host.clone();
        let firsts = self.first_releases(host.tasks.len());
        for (task, offset) in host.tasks.iter_mut().zip(firsts) {
            task.work = match task.work {
                Work::Jobs { arrival, cost, deadline } => Work::Jobs {
                    arrival: Arrival::Periodic { period: separation(&arrival), offset },
                    cost: Cost { min: cost.max, max: cost.max },
                    deadline,
                },
                served @ Work::Served { .. } => served,
                Work::Hog { .. } => Work::Hog { start: offset },
            };
        }
        host
    }

    /// When each of so many tasks releases its first job.
    pub fn first_releases(&self, tasks: usize) -> Vec<Duration> {
        let mut firsts = vec![Duration::ZERO; tasks];
        if let Pattern::Released(all) = self {
            all.iter().for_each(|first| firsts[first.task.0] = first.at);
        }
        firsts
    }

    /// When the last task releases its first job.
    pub fn last_first_release(&self) -> Duration {
        match self {
            Pattern::Released(all) => all.iter().map(|first| first.at).max().unwrap_or_default(),
            Pattern::Synchronous | Pattern::AllBusy => Duration::ZERO,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Synchronous => {
                f.write_str("all tasks released together at 0, at their highest rate and cost")
            }
            Pattern::Released(all) => {
                f.write_str("first releases at")?;
                for first in all.iter().filter(|first| !first.at.is_zero()) {
                    write!(f, " {} ({}),", first.at, first.name)?;
                }
                f.write_str(" 0 for all others, then at their highest rate and cost")
            }
            Pattern::AllBusy => f.write_str("all vCPUs busy from the start"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    CostBeyondDeadline,
    BelowBusyLoop,
    /// More is asked for than the budgets up to a deadline.
    BudgetsUpToDeadline,
    /// Servers by fixed priority: what each surely gets.
    Servers,
    /// The only test of the policy of this name.
    Policy(&'static str),
    /// No test: a best-effort unit.
    BestEffort,
    /// Response times in a fixed-priority server.
    DavisBurns,
    /// Response times in a deferrable server whose tasks cannot use up its budget.
    LightLoad,
    /// The same of all servers of a processor that are taken for light, in any order.
    LightProcessor,
    FixedPriorityInSupply,
    EdfInSupply,
    ResponseTimes,
    ProcessorDemand,
    /// Global EDF, where no test holds.
    GlobalEdf,
    GlobalEdfResponseTimes,
    GlobalEdfSlack,
    GlobalEdfDensity,
    GlobalFixedPriority,
    /// Tasks that may move between vCPUs which supply only part of the time.
    SeveralVcpus,
    /// A simulation, which misses a deadline. Only refutes.
    Simulation,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Test::CostBeyondDeadline => "cost beyond the deadline",
            Test::BelowBusyLoop => "below a busy loop",
            Test::BudgetsUpToDeadline => "budgets up to a deadline",
            Test::Servers => "servers",
            Test::Policy(name) => name,
            Test::BestEffort => "best effort",
            Test::DavisBurns => "Davis & Burns",
            Test::LightLoad => "budget never used up",
            Test::LightProcessor => "budgets of a processor never used up",
            Test::FixedPriorityInSupply => "fixed priority in supply",
            Test::EdfInSupply => "EDF in supply",
            Test::ResponseTimes => "response times",
            Test::ProcessorDemand => "processor demand",
            Test::GlobalEdf => "global EDF",
            Test::GlobalEdfResponseTimes => "global EDF response times",
            Test::GlobalEdfSlack => "global EDF slack",
            Test::GlobalEdfDensity => "global EDF density",
            Test::GlobalFixedPriority => "global fixed priority response times",
            Test::SeveralVcpus => "several vCPUs",
            Test::Simulation => "simulation",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskAnswer {
    pub deadline: Duration,
    pub answer: Answer,
    /// What the greatest part of the bound is; only with a bound.
    pub dominant: Option<Dominant>,
    pub test: Test,
}

/// The answer for one vCPU that has a budget: is it delivered in every period in which there is work for it?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VcpuAnswer {
    pub period: Duration,
    /// The bound is on the time from the start of a period to the end of the budget; the slack reaches up to
    /// the period's end.
    pub answer: Answer,
}

/// Everything that the analysis says about a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answers {
    pub tasks: BTreeMap<TaskIx, TaskAnswer>,
    pub vcpus: BTreeMap<VcpuIx, VcpuAnswer>,
    pub flows: Vec<Result<Duration, PacketReason>>,
    /// By chain: the greatest time from end to end, which is within its deadline.
    pub chains: Vec<Result<Duration, ChainReason>>,
    /// What practitioners should know although it is no verdict.
    pub warnings: Vec<Warning>,
}

impl Answers {
    /// The same of a host that changes while it runs: none of it is known across a change.
    pub(crate) fn across_changes(mut self) -> Self {
        for task in self.tasks.values_mut() {
            task.answer = Answer::Unknown(Reason::Changes);
            task.dominant = None;
        }
        self.vcpus.values_mut().for_each(|vcpu| vcpu.answer = Answer::Unknown(Reason::Changes));
        self.flows.iter_mut().for_each(|flow| *flow = Err(PacketReason::Changes));
        self.chains.iter_mut().for_each(|chain| *chain = Err(ChainReason::Changes));
        self
    }

    /// The answers about `host`, with names, as they are shown and written.
    pub fn guarantees(&self, host: &Host) -> Guarantees {
        let task = |(task, answer): (&TaskIx, &TaskAnswer)| TaskGuarantee {
            name: host.tasks[task.0].name.clone(),
            parent: parent_of(host, *task).to_owned(),
            deadline_ns: answer.deadline.as_ns(),
            verdict: answer.answer.verdict(host),
            dominant: answer.dominant,
            test: answer.test.to_string(),
        };
        let vcpu = |(vcpu, answer): (&VcpuIx, &VcpuAnswer)| VcpuGuarantee {
            name: budget_name(host, *vcpu).to_owned(),
            period_ns: answer.period.as_ns(),
            verdict: answer.answer.verdict(host),
        };
        Guarantees {
            host: host.name.clone(),
            tasks: self.tasks.iter().map(task).collect(),
            vcpus: self.vcpus.iter().map(vcpu).collect(),
            flows: host.flows.iter().zip(&self.flows).map(|(flow, bound)| of_flow(flow, bound)).collect(),
            chains: host
                .chains
                .iter()
                .zip(&self.chains)
                .map(|(chain, bound)| of_chain(chain, bound))
                .collect(),
            warnings: self.warnings.clone(),
            remedies: Vec::new(),
            modes: Vec::new(),
        }
    }
}

/// Whose budget it is: a vCPU's, or a domain's.
fn budget_name(host: &Host, vcpu: VcpuIx) -> &str {
    let vcpu = &host.vcpus[vcpu.0];
    if host.shares_budget(vcpu.domain) { &host.domains[vcpu.domain.0].name } else { &vcpu.name }
}

/// Does the latency of a flow include an answer?
pub(crate) fn is_round_trip(traffic: &Traffic) -> bool {
    matches!(traffic, Traffic::Ping { .. } | Traffic::Request { .. })
}

fn of_flow(flow: &Flow, bound: &Result<Duration, PacketReason>) -> FlowGuarantee {
    FlowGuarantee {
        name: flow.name.clone(),
        kind: flow.traffic.kind().to_owned(),
        round_trip: is_round_trip(&flow.traffic),
        deadline_ns: flow.deadline.map(Duration::as_ns),
        latency: match bound {
            Ok(bound) => Latency::Bounded { bound_ns: bound.as_ns() },
            Err(reason) => Latency::Unknown { why: reason.to_string() },
        },
    }
}

fn of_chain(chain: &Chain, bound: &Result<Duration, ChainReason>) -> ChainGuarantee {
    ChainGuarantee {
        name: chain.name.clone(),
        deadline_ns: chain.deadline.as_ns(),
        verdict: match bound {
            Ok(bound) => {
                let slack = chain.deadline.saturating_sub(*bound);
                Verdict::Guaranteed { bound_ns: bound.as_ns(), slack_ns: slack.as_ns() }
            }
            Err(reason) => Verdict::Unknown { why: reason.to_string() },
        },
    }
}
