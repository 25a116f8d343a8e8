//! What the analysis guarantees, as `punctual check --json` prints it and `punctual report --check` reads it.
//!
//! Every time is a whole number of ns and its key ends in `_ns`. Reading ignores keys that this program does
//! not know, so an answer that was kept in a file can be shown years later.

use serde::{Deserialize, Serialize};

/// Everything that the analysis says about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// The host's name.
    pub host: String,
    /// One entry per task with a deadline, in the host's order. Busy loops have no deadline.
    pub tasks: Vec<TaskGuarantee>,
    /// One entry per vCPU with a budget in a pool, in the host's order.
    #[serde(default)]
    pub vcpus: Vec<VcpuGuarantee>,
    /// One entry per flow, in the host's order.
    #[serde(default)]
    pub flows: Vec<FlowGuarantee>,
    /// One entry per chain, in the host's order.
    #[serde(default)]
    pub chains: Vec<ChainGuarantee>,
    /// In the host's order.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Budgets with which more would be guaranteed, in the host's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<Remedy>,
    /// A host that changes while it runs, between its events, each mode as if it had always been so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<ModeGuarantees>,
}

/// What holds between two events of a host, long enough after the first of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeGuarantees {
    /// When it begins, in ns after the start.
    pub from_ns: u64,
    /// The names of the events with which it begins.
    pub events: Vec<String>,
    /// What holds.
    pub guarantees: Guarantees,
}

/// The least budget of one vCPU with which every task of its domain is guaranteed, and nothing that was
/// guaranteed before is not. Everything else stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The vCPU's name.
    pub vcpu: String,
    /// What it would need in every period, in ns.
    pub budget_ns: u64,
    /// What it has, in ns.
    pub budget_now_ns: u64,
    /// Its period, in ns.
    pub period_ns: u64,
    /// Names of the tasks that would be guaranteed and are not.
    pub tasks: Vec<String>,
}

/// The answer to "does it hold?": a deadline, or a budget in every period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        /// What is released when, and by when a deadline is missed.
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

    /// Is there a counter-example?
    pub fn is_refuted(&self) -> bool {
        matches!(self, Verdict::NotGuaranteed { .. })
    }
}

/// A release pattern under which a deadline is missed, or a budget not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterExample {
    /// The pattern in words.
    pub pattern: String,
    /// By when a deadline has been missed, or a budget has not been delivered, in ns after the start.
    pub missed_by_ns: u64,
    /// The job that misses ends at least so much later than its deadline, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_min_ns: Option<u64>,
    /// For a budget: what of it is missing in the period that ends then, in ns, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_ns: Option<u64>,
}

/// What the greatest part of a response time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Waiting for the vCPU to be supplied: its budget and other vCPUs, which the test does not distinguish.
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
}

/// The answer for one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGuarantee {
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
    #[serde(default)]
    pub test: String,
}

/// The answer for one vCPU that has a budget: is it delivered in every period in which there is work for it?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuGuarantee {
    /// Name.
    pub name: String,
    /// Its period, in ns.
    pub period_ns: u64,
    /// The bound is on the time from the start of a period to the end of the budget; the slack reaches up to
    /// the period's end.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How late what is sent can come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The answer for one flow. The latency is that of [`crate::Results`]: from a packet's creation until its
/// receiver has it, or until its sender has the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowGuarantee {
    /// Name.
    pub name: String,
    /// `ping`, `request`, `periodic`, `goose`, `stream` or `storm`.
    pub kind: String,
    /// Does the latency include the answer?
    pub round_trip: bool,
    /// The deadline of each packet, if the flow has one, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The bound.
    #[serde(flatten)]
    pub latency: Latency,
}

impl FlowGuarantee {
    /// Is the deadline always met? True without a deadline. Flows are never refuted.
    pub fn is_guaranteed(&self) -> bool {
        self.deadline_ns.is_none_or(
            |deadline_ns| matches!(self.latency, Latency::Bounded { bound_ns } if bound_ns <= deadline_ns),
        )
    }
}

/// The answer for one chain of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainGuarantee {
    /// Name.
    pub name: String,
    /// From the release of the first step to the end of the last, in ns.
    pub deadline_ns: u64,
    /// Is it always met? Chains are never refuted.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Something that a practitioner should know although it is no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What it is about: a vCPU, a domain or a pool by name, or `machine`.
    pub about: String,
    /// What is the matter and what would help.
    pub text: String,
}

/// Why a text is not what `punctual check --json` prints.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}; expected what `punctual check --json` prints")]
pub struct ReadError {
    file: String,
    line: usize,
    column: usize,
    message: String,
}

impl ReadError {
    fn new(error: &serde_json::Error, file: &str) -> Self {
        let (line, column) = (error.line(), error.column());
        // The place stands in front.
        let message = error.to_string();
        let place = format!(" at line {line} column {column}");
        let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
        ReadError { file: file.to_owned(), line, column: column.max(1), message }
    }
}

impl Guarantees {
    /// Reads what `punctual check --json` printed; `file` is the file's name for the error.
    ///
    /// # Errors
    /// What is wrong and where.
    pub fn from_json(text: &str, file: &str) -> Result<Self, ReadError> {
        serde_json::from_str(text).map_err(|error| ReadError::new(&error, file))
    }

    /// The answer for a task.
    pub fn task(&self, parent: &str, name: &str) -> Option<&TaskGuarantee> {
        self.tasks.iter().find(|task| task.parent == parent && task.name == name)
    }

    /// Does every task with a deadline meet all of them, and every flow and chain its own?
    pub fn all_guaranteed(&self) -> bool {
        self.tasks.iter().all(|task| task.verdict.is_guaranteed())
            && self.flows.iter().all(FlowGuarantee::is_guaranteed)
            && self.chains.iter().all(|chain| chain.verdict.is_guaranteed())
    }
}
