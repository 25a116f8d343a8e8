//! All results of a run, and how those of several runs are merged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entities::{DomainResult, PoolResult, ProcessorResult, TaskResult, VcpuResult};
use super::jobs::JobStats;
use super::machine::{DisturbedJobs, Misses};
use super::network::{self, ChainResult, FlowResult, NetworkResult};
use super::sockets::SocketsResult;
use super::switch::SwitchResult;
use crate::host::FREE_SCHEDULING;

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
    /// What changed during the run, in the order of time; nothing of a host without events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeResult>,
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

/// An event of the host file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeResult {
    /// Its name.
    pub name: String,
    /// When it was due, after the start.
    pub at_ns: u64,
    /// What it changed, in words.
    pub change: String,
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
        for (mine, theirs) in self.tasks.iter_mut().zip(&other.tasks) {
            mine.merge(theirs, runs_before);
        }
        for (mine, theirs) in self.vcpus.iter_mut().zip(&other.vcpus) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.domains.iter_mut().zip(&other.domains) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.processors.iter_mut().zip(&other.processors) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.pools.iter_mut().zip(&other.pools) {
            mine.merge(theirs);
        }
        self.merge_networks(other);
        Ok(())
    }

    /// What to say of simulated results in which scheduling took no time. A host with `host_stack`, which has
    /// no pools, has costs of its own.
    pub fn free_scheduling(&self) -> Option<&'static str> {
        let is_free = self.processors.iter().all(|processor| processor.overhead_ns == 0);
        let is_simulated = self.source == Source::Simulation && !self.pools.is_empty();
        (is_simulated && is_free).then_some(FREE_SCHEDULING)
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
            a.late += b.late;
            network::merge_congestion(&mut a.congestion, b.congestion.as_ref());
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

impl Results {
    /// Late jobs by whether they met a disturbance; `None` where that was measured of no task.
    pub fn misses(&self) -> Option<Misses> {
        let mut misses = None;
        for (jobs, disturbed) in self.tasks.iter().filter_map(|task| Some((&task.jobs, task.disturbed?))) {
            let sum: &mut Misses = misses.get_or_insert_default();
            sum.all.due += jobs.due;
            sum.all.missed += jobs.missed;
            sum.disturbed.due += disturbed.due;
            sum.disturbed.missed += disturbed.missed;
        }
        misses
    }

    /// Jobs that missed their deadlines and met no disturbance of the machine; where that was not measured,
    /// all that missed.
    pub fn missed_undisturbed(&self) -> u64 {
        let of = |(jobs, disturbed): (&JobStats, Option<DisturbedJobs>)| {
            jobs.missed.saturating_sub(disturbed.unwrap_or_default().missed)
        };
        self.tasks.iter().map(|task| of((&task.jobs, task.disturbed))).sum()
    }
}
