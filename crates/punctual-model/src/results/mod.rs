//! What a run measured, simulated or live: one type, so that they can be laid side by side.
//!
//! Serialised as JSON with a `format` and a `version`; every time is a whole number of ns and its key ends in
//! `_ns`. Ratios are not stored: they follow from the counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::recorder::Recorder;

mod blame;
mod builder;
mod jobs;
mod machine;
mod network;
mod sockets;
mod switch;

pub use blame::{BlameSum, Cause, CauseTime, JobBlame, TaskBlame, WORST_MAX, add_time, sort_causes};
pub use builder::{ProcessorTotals, ResultsBuilder, SchedulerTotals, TaskTotals, VcpuTotals, of_host_stack};
pub use jobs::JobStats;
pub use machine::{Delivery, Disturbance, DisturbedInterval, DisturbedJobs, Enforcement, HostTimes, Misses};
pub use network::{
    ChainResult, DropCounts, FlowResult, HostPart, HostPartResult, NetworkResult, PacketCounts, Segment,
    SegmentResult,
};
pub use sockets::SocketsResult;
pub use switch::{FrameCounts, PlaneResult, PortDrops, PortResult, SwitchResult};

/// The value of [`Results::format`].
pub const FORMAT: &str = "punctual-results";
/// The version of the JSON form that this code writes. It grows when a key changes its meaning, comes or
/// goes.
pub const VERSION: u32 = 3;

/// Where results come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The deterministic machine.
    Simulation,
    /// A real host: context switches, migrations and what guests decide are not measured there.
    Live,
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Always `punctual-results`.
    #[schemars(extend("const" = FORMAT))]
    pub format: String,
    /// Version of the JSON form.
    #[schemars(extend("const" = VERSION))]
    pub version: u32,
    /// Version of the program.
    pub program: String,
    /// Simulated or live.
    pub source: Source,
    /// The machine of a live run: its processor, how many of them, its kernel. What was simulated has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What `--label` called them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The host's name.
    pub host: String,
    /// Seed of the (first) run.
    pub seed: u64,
    /// How many runs are merged here.
    pub runs: u32,
    /// Length of each run.
    pub duration_ns: u64,
    /// Events handled: decisions, wake-ups, sleeps, replenishments, releases, completions, and every step of
    /// a packet.
    pub events: u64,
    /// By pool.
    pub pools: Vec<PoolResult>,
    /// By processor, in the machine's numbering.
    pub processors: Vec<ProcessorResult>,
    /// By domain.
    pub domains: Vec<DomainResult>,
    /// By vCPU.
    pub vcpus: Vec<VcpuResult>,
    /// By task.
    pub tasks: Vec<TaskResult>,
    /// By network.
    pub networks: Vec<NetworkResult>,
    /// By flow.
    pub flows: Vec<FlowResult>,
    /// By chain.
    pub chains: Vec<ChainResult>,
    /// The switches of a live run; runs that are put together keep none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchResult>,
    /// The servers of guests' sockets in a live run; runs that are put together keep none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketsResult>,
}

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
    /// Why its jobs took as long as they did; only where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<TaskBlame>,
    /// Those of its jobs that met a disturbance of the machine; only where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<DisturbedJobs>,
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
    /// The sum of both.
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
    pub wake_latency: Recorder,
    /// What it was delivered; only of a live run under a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
}

/// What was wrong with what a real guest told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestFault {
    /// It contradicted itself, the jobs that its tasks release, or the rules of the conversation. Nothing
    /// that it told is counted.
    Lied,
    /// It fell silent, ended, or left out jobs. What it had told is counted.
    StoppedTelling,
}

impl GuestFault {
    /// In words, after the domain's name.
    pub fn words(self) -> &'static str {
        match self {
            GuestFault::Lied => "its guest lied",
            GuestFault::StoppedTelling => "its guest stopped telling",
        }
    }
}

/// Why the jobs of a domain of a real host are not measured. Those that were due and not told of count as
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

/// Why two results cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(pub String);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "results of different hosts cannot be merged: {}", self.0)
    }
}

impl std::error::Error for Mismatch {}

impl Results {
    /// Adds the counts and distributions of another run of the same host.
    ///
    /// # Errors
    /// When the other run has other pools, processors, domains, vCPUs, tasks, networks, flows or chains;
    /// nothing is changed then.
    pub fn merge(&mut self, other: &Results) -> Result<(), Mismatch> {
        self.same_shape(other)?;
        let runs_before = self.runs;
        self.runs += other.runs;
        self.events += other.events;
        for (a, b) in self.tasks.iter_mut().zip(&other.tasks) {
            a.jobs.merge(&b.jobs);
            a.cpu_time_ns += b.cpu_time_ns;
            a.context_switches = both(a.context_switches, b.context_switches);
            a.migrations = both(a.migrations, b.migrations);
            match (&mut a.blame, &b.blame) {
                (Some(a), Some(b)) => a.merge(b, runs_before),
                // A sum over some of the runs would look like one over all.
                (blame, _) => *blame = None,
            }
            a.disturbed = a
                .disturbed
                .zip(b.disturbed)
                .map(|(a, b)| DisturbedJobs { due: a.due + b.due, missed: a.missed + b.missed });
        }
        for (a, b) in self.vcpus.iter_mut().zip(&other.vcpus) {
            a.cpu_time_ns += b.cpu_time_ns;
            a.counts = a.counts.zip(b.counts).map(|(a, b)| a.plus(b));
            a.context_switches = both(a.context_switches, b.context_switches);
            a.migrations = both(a.migrations, b.migrations);
            a.wake_latency.merge(&b.wake_latency);
            match (&mut a.delivery, &b.delivery) {
                (Some(a), Some(b)) => a.merge(b),
                (delivery, _) => *delivery = None,
            }
        }
        for (a, b) in self.domains.iter_mut().zip(&other.domains) {
            a.jobs.merge(&b.jobs);
            a.cpu_time_ns += b.cpu_time_ns;
            a.network_ns = both(a.network_ns, b.network_ns);
            a.decisions = both(a.decisions, b.decisions);
            a.context_switches = both(a.context_switches, b.context_switches);
            a.migrations = both(a.migrations, b.migrations);
            a.exhaustions = both(a.exhaustions, b.exhaustions);
            a.replenishments = both(a.replenishments, b.replenishments);
            a.verdict = a.verdict.take().or_else(|| b.verdict.clone());
        }
        for (a, b) in self.processors.iter_mut().zip(&other.processors) {
            a.busy_ns += b.busy_ns;
            a.idle_ns += b.idle_ns;
            a.overhead_ns += b.overhead_ns;
            a.decisions = both(a.decisions, b.decisions);
            a.context_switches = both(a.context_switches, b.context_switches);
            a.host = a.host.zip(b.host).map(|(a, b)| HostTimes {
                others_ns: a.others_ns + b.others_ns,
                interrupts_ns: a.interrupts_ns + b.interrupts_ns,
                steal_ns: a.steal_ns + b.steal_ns,
            });
            match (&mut a.disturbance, &b.disturbance) {
                (Some(a), Some(b)) => a.merge(b),
                (disturbance, _) => *disturbance = None,
            }
        }
        for (a, b) in self.pools.iter_mut().zip(&other.pools) {
            a.jobs.merge(&b.jobs);
            a.busy_ns += b.busy_ns;
            a.idle_ns += b.idle_ns;
            a.overhead_ns += b.overhead_ns;
            a.decisions = both(a.decisions, b.decisions);
            a.context_switches = both(a.context_switches, b.context_switches);
            a.migrations = both(a.migrations, b.migrations);
            a.exhaustions = both(a.exhaustions, b.exhaustions);
            a.replenishments = both(a.replenishments, b.replenishments);
            match (&mut a.enforcement, &b.enforcement) {
                (Some(a), Some(b)) => a.merge(b),
                (enforcement, _) => *enforcement = None,
            }
        }
        self.merge_networks(other);
        Ok(())
    }

    /// Was a policy at work? Plain Linux, under which a live run may be instead, counts nothing of budgets.
    pub fn has_policy(&self) -> bool {
        self.source != Source::Live || self.pools.iter().any(|pool| pool.enforcement.is_some())
    }

    /// Leaves out what a live run does not measure. Older files have 0 there.
    pub fn leave_out_unmeasured(&mut self) {
        if self.source != Source::Live {
            return;
        }
        let has_policy = self.has_policy();
        for task in &mut self.tasks {
            (task.context_switches, task.migrations) = (None, None);
        }
        for vcpu in &mut self.vcpus {
            (vcpu.context_switches, vcpu.migrations) = (None, None);
            vcpu.counts = vcpu.counts.filter(|_| has_policy);
        }
        for domain in &mut self.domains {
            (domain.context_switches, domain.migrations) = (None, None);
            (domain.decisions, domain.network_ns) = (None, None);
            let budgets = [&mut domain.exhaustions, &mut domain.replenishments];
            budgets.into_iter().for_each(|count| *count = count.filter(|_| has_policy));
        }
        for processor in &mut self.processors {
            processor.context_switches = None;
            processor.decisions = processor.decisions.filter(|_| has_policy);
        }
        for pool in &mut self.pools {
            (pool.context_switches, pool.migrations) = (None, None);
            let counts = [&mut pool.decisions, &mut pool.exhaustions, &mut pool.replenishments];
            counts.into_iter().for_each(|count| *count = count.filter(|_| has_policy));
        }
    }

    fn merge_networks(&mut self, other: &Results) {
        self.switches.clear();
        self.sockets.clear();
        for (a, b) in self.networks.iter_mut().zip(&other.networks) {
            a.tx += b.tx;
            a.softnet += b.softnet;
            a.rx += b.rx;
            a.events_handled += b.events_handled;
            a.events_sent += b.events_sent;
        }
        for (a, b) in self.flows.iter_mut().zip(&other.flows) {
            a.packets.merge(&b.packets);
            a.timeouts += b.timeouts;
            a.retransmissions += b.retransmissions;
            a.latency.merge(&b.latency);
            network::merge_segments(&mut a.segments, &b.segments);
            network::merge_parts(&mut a.parts, &b.parts);
        }
        for (a, b) in self.chains.iter_mut().zip(&other.chains) {
            a.jobs.merge(&b.jobs);
            a.packets.merge(&b.packets);
            network::merge_segments(&mut a.segments, &b.segments);
        }
    }

    fn same_shape(&self, other: &Results) -> Result<(), Mismatch> {
        let shapes = [self, other].map(|r| {
            (
                r.duration_ns,
                r.pools.iter().map(|p| (p.name.as_str(), p.policy.as_str())).collect::<Vec<_>>(),
                r.processors.len(),
                r.domains.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(),
                r.vcpus.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(),
                r.tasks.iter().map(|t| (t.parent.as_str(), t.name.as_str())).collect::<Vec<_>>(),
                r.networks.iter().map(|n| (n.name.as_str(), n.discipline.as_str())).collect::<Vec<_>>(),
                r.flows.iter().map(|f| (f.name.as_str(), f.kind.as_str())).collect::<Vec<_>>(),
                r.chains.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            )
        });
        if shapes[0] == shapes[1] {
            return Ok(());
        }
        Err(Mismatch(format!("{} ({} runs) and {} ({} runs)", self.host, self.runs, other.host, other.runs)))
    }
}

/// The sum of what was measured in both.
fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}
