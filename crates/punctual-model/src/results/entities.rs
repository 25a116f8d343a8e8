//! What each entity of a host did: tasks, vCPUs, domains, processors, pools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blame::TaskBlame;
use super::jobs::{JobStats, is_zero};
use super::machine::{Delivery, Disturbance, DisturbedJobs, Enforcement, HostTimes};
use crate::histogram::Histogram;

/// What one task did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    /// The task's name.
    pub name: String,
    /// The domain, or the pool for a task scheduled by the pool itself.
    pub parent: String,
    /// From the release of a job to its deadline; a hog has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Its jobs; all zero for a hog.
    pub jobs: JobStats,
    /// Processor time it executed.
    pub cpu_time_ns: u64,
    /// How often a vCPU or processor switched to it; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// How often it resumed on another processor of its scheduler; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// What a vCPU did that waits for others; only with `smp` in its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smp: Option<Box<SmpRounds>>,
    /// Why its jobs took as long as they did; only where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<TaskBlame>,
    /// Those of its jobs that met a disturbance of the machine; only where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<DisturbedJobs>,
}

impl TaskResult {
    pub(super) fn merge(&mut self, other: &TaskResult, runs_before: u32) {
        self.jobs.merge(&other.jobs);
        self.cpu_time_ns += other.cpu_time_ns;
        self.context_switches = both(self.context_switches, other.context_switches);
        self.migrations = both(self.migrations, other.migrations);
        self.smp = self.smp.take().zip(other.smp.as_deref()).map(|(mut mine, theirs)| {
            mine.rounds = mine.rounds.saturating_add(theirs.rounds);
            mine.spun_ns = mine.spun_ns.saturating_add(theirs.spun_ns);
            mine
        });
        match (&mut self.blame, &other.blame) {
            (Some(mine), Some(theirs)) => mine.merge(theirs, runs_before),
            // A sum over some of the runs would look like one over all.
            (blame, _) => *blame = None,
        }
        self.disturbed = self.disturbed.zip(other.disturbed).map(|(mine, theirs)| DisturbedJobs {
            due: mine.due + theirs.due,
            missed: mine.missed + theirs.missed,
        });
    }
}

/// What a vCPU did that waits for the others of its domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmpRounds {
    /// How many rounds it has done.
    pub rounds: u64,
    /// Processor time during which it only waited.
    pub spun_ns: u64,
}

/// What a policy counted of one of its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitCounts {
    /// Budget idled away (periodic server).
    pub idled_away_ns: u64,
    /// How often it got work.
    pub wakes: u64,
    /// How often it ran out of work.
    pub sleeps: u64,
    /// How often its budget reached zero.
    pub exhaustions: u64,
    /// How often budget was added.
    pub replenishments: u64,
}

impl UnitCounts {
    fn plus(self, other: UnitCounts) -> UnitCounts {
        UnitCounts {
            idled_away_ns: self.idled_away_ns + other.idled_away_ns,
            wakes: self.wakes + other.wakes,
            sleeps: self.sleeps + other.sleeps,
            exhaustions: self.exhaustions + other.exhaustions,
            replenishments: self.replenishments + other.replenishments,
        }
    }
}

/// What one vCPU got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VcpuResult {
    /// The vCPU's name.
    pub name: String,
    /// Processor time charged to it: guest execution and the cost of switching to it.
    pub cpu_time_ns: u64,
    /// What its policy counted; not of a live run under plain Linux.
    #[serde(flatten)]
    pub counts: Option<UnitCounts>,
    /// How often a processor switched to it; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// How often it resumed on another processor; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// From wake-up to running.
    pub wake_latency: Histogram,
    /// What it was delivered; only of a live run under a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// How often a live run put it back after another program, or the vCPU itself, had moved it to another
    /// cgroup or changed its priority or processors. Left out where it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub put_back: u64,
    /// Why a live run could not enforce it to the end; left out where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_enforced: Option<String>,
}

impl VcpuResult {
    pub(super) fn merge(&mut self, other: &VcpuResult) {
        self.cpu_time_ns += other.cpu_time_ns;
        self.counts = self.counts.zip(other.counts).map(|(mine, theirs)| mine.plus(theirs));
        self.context_switches = both(self.context_switches, other.context_switches);
        self.migrations = both(self.migrations, other.migrations);
        self.wake_latency.merge(&other.wake_latency);
        match (&mut self.delivery, &other.delivery) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (delivery, _) => *delivery = None,
        }
        self.put_back += other.put_back;
        if self.not_enforced.is_none() {
            self.not_enforced.clone_from(&other.not_enforced);
        }
    }
}

/// What is wrong with the reports of a real guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestFault {
    /// It contradicted itself, the jobs that its tasks release, or the rules of the protocol. All of its
    /// reports are discarded.
    #[serde(rename = "lied")]
    ProtocolViolation,
    /// It stopped reporting, ended, or left out jobs. Its reports up to then count.
    #[serde(rename = "stopped-telling")]
    Unresponsive,
}

impl GuestFault {
    /// In words, after the domain's name.
    pub fn words(self) -> &'static str {
        match self {
            GuestFault::ProtocolViolation => "its guest violated the protocol",
            GuestFault::Unresponsive => "its guest stopped reporting",
        }
    }
}

/// Why the jobs of a domain of a real host are not measured. Jobs that were due and not reported count as
/// missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestVerdict {
    /// What was wrong.
    pub fault: GuestFault,
    /// How that was seen.
    pub reason: String,
}

/// A domain: the sum of its vCPUs and tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainResult {
    /// The domain's name.
    pub name: String,
    /// Jobs of all its tasks.
    pub jobs: JobStats,
    /// Processor time charged to its vCPUs.
    pub cpu_time_ns: u64,
    /// Of that, network work of its kernel: packets, events and interrupts; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_ns: Option<u64>,
    /// Decisions of its guest scheduler; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<u64>,
    /// Switches between tasks inside the guest; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Tasks resumed on another vCPU; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Budget exhaustions of its vCPUs; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhaustions: Option<u64>,
    /// Replenishments of its vCPUs; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replenishments: Option<u64>,
    /// Why its jobs are not measured; only of a live run, and only where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<GuestVerdict>,
}

impl DomainResult {
    pub(super) fn merge(&mut self, other: &DomainResult) {
        self.jobs.merge(&other.jobs);
        self.cpu_time_ns += other.cpu_time_ns;
        self.network_ns = both(self.network_ns, other.network_ns);
        self.decisions = both(self.decisions, other.decisions);
        self.context_switches = both(self.context_switches, other.context_switches);
        self.migrations = both(self.migrations, other.migrations);
        self.exhaustions = both(self.exhaustions, other.exhaustions);
        self.replenishments = both(self.replenishments, other.replenishments);
        self.verdict = self.verdict.take().or_else(|| other.verdict.clone());
    }
}

/// What one processor did. Busy, idle and overhead time add up to the duration of all runs, together with
/// those of `host` in a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessorResult {
    /// The machine's number.
    pub processor: usize,
    /// Its pool; `None` when no pool has it.
    pub pool: Option<String>,
    /// Time in which units executed.
    pub busy_ns: u64,
    /// Time in which nothing executed.
    pub idle_ns: u64,
    /// Time taken by decisions, context switches, migrations and the pool's lock.
    pub overhead_ns: u64,
    /// Scheduling decisions; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<u64>,
    /// Changes of the unit it runs; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// What else it did; only of a live run, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostTimes>,
    /// How it was taken away from its pool; only of a live run, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
}

impl ProcessorResult {
    pub(super) fn merge(&mut self, other: &ProcessorResult) {
        self.busy_ns += other.busy_ns;
        self.idle_ns += other.idle_ns;
        self.overhead_ns += other.overhead_ns;
        self.decisions = both(self.decisions, other.decisions);
        self.context_switches = both(self.context_switches, other.context_switches);
        self.host = self.host.zip(other.host).map(|(mine, theirs)| HostTimes {
            others_ns: mine.others_ns + theirs.others_ns,
            interrupts_ns: mine.interrupts_ns + theirs.interrupts_ns,
            steal_ns: mine.steal_ns + theirs.steal_ns,
        });
        match (&mut self.disturbance, &other.disturbance) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (disturbance, _) => *disturbance = None,
        }
    }
}

/// A pool: the sum of its processors and units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolResult {
    /// The pool's name.
    pub name: String,
    /// Its policy's name.
    pub policy: String,
    /// Number of processors.
    pub processors: usize,
    /// Jobs of all tasks that end up on its processors, nested domains included.
    pub jobs: JobStats,
    /// Time in which units executed, summed over its processors.
    pub busy_ns: u64,
    /// Time in which nothing executed, summed.
    pub idle_ns: u64,
    /// Time taken by scheduling itself, summed.
    pub overhead_ns: u64,
    /// Scheduling decisions; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<u64>,
    /// Changes of the unit that a processor runs; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Units resumed on another processor; not of a live run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Budget exhaustions of its units; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhaustions: Option<u64>,
    /// Replenishments of its units; not of a live run under plain Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replenishments: Option<u64>,
    /// What enforcement did; only of a live run under a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
}

impl PoolResult {
    pub(super) fn merge(&mut self, other: &PoolResult) {
        self.jobs.merge(&other.jobs);
        self.busy_ns += other.busy_ns;
        self.idle_ns += other.idle_ns;
        self.overhead_ns += other.overhead_ns;
        self.decisions = both(self.decisions, other.decisions);
        self.context_switches = both(self.context_switches, other.context_switches);
        self.migrations = both(self.migrations, other.migrations);
        self.exhaustions = both(self.exhaustions, other.exhaustions);
        self.replenishments = both(self.replenishments, other.replenishments);
        match (&mut self.enforcement, &other.enforcement) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (enforcement, _) => *enforcement = None,
        }
    }
}

/// The sum of what was measured in both.
fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}
