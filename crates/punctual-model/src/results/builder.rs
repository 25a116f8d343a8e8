//! The one place that puts [`Results`] together, for simulations and live runs alike.
//!
//! The runner of a host passes what it measured: a total for each task, vCPU, processor and scheduler. The
//! builder adds names, sums over domains and pools, and the constants of the format.

use punctual_host_stack::HostStack;
use punctual_sched::Duration;

use super::blame::TaskBlame;
use super::entities::{
    DomainResult, GuestVerdict, PoolResult, ProcessorResult, SmpRounds, TaskResult, UnitCounts, VcpuResult,
};
use super::jobs::JobStats;
use super::machine::{Delivery, Disturbance, DisturbedJobs, Enforcement, HostTimes};
use super::network::{ChainResult, FlowResult, NetworkResult};
use super::whole::{ChangeResult, FORMAT, Results, Source, VERSION};
use crate::histogram::Histogram;
use crate::host::Event;
use crate::host::{Host, Parent, Pool};
use crate::index::PoolIx;

/// What one task did. What no live run measures is left out of its results.
#[derive(Clone, Debug, Default)]
pub struct TaskTotals {
    /// Its jobs.
    pub jobs: JobStats,
    /// Processor time it executed.
    pub cpu_time: Duration,
    /// How often a vCPU or processor switched to it.
    pub context_switches: u64,
    /// How often it resumed on another processor of its scheduler.
    pub migrations: u64,
    /// What a vCPU did that waits for the others of its domain; `None` for other tasks.
    pub smp: Option<SmpRounds>,
    /// Why its jobs took as long as they did; `None` where that was not measured.
    pub blame: Option<TaskBlame>,
    /// Those of its jobs that met a disturbance of the machine; `None` where that was not measured.
    pub disturbed: Option<DisturbedJobs>,
}

/// What one vCPU got. What no live run measures is left out of its results.
#[derive(Clone, Debug, Default)]
pub struct VcpuTotals {
    /// Processor time charged to it.
    pub cpu_time: Duration,
    /// Budget idled away.
    pub idled_away: Duration,
    /// How often it got work.
    pub wakes: u64,
    /// How often it ran out of work.
    pub sleeps: u64,
    /// How often its budget reached zero.
    pub exhaustions: u64,
    /// How often budget was added.
    pub replenishments: u64,
    /// How often a processor switched to it.
    pub context_switches: u64,
    /// How often it resumed on another processor.
    pub migrations: u64,
    /// From wake-up to running.
    pub wake_latency: Histogram,
    /// What it was delivered; `None` where that was not measured.
    pub delivery: Option<Delivery>,
    /// See [`VcpuResult::put_back`].
    pub put_back: u64,
    /// See [`VcpuResult::not_enforced`].
    pub not_enforced: Option<String>,
}

/// What one processor did. Busy, idle and overhead time add up to the duration of the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTotals {
    /// Time in which units executed.
    pub busy: Duration,
    /// Time in which nothing executed.
    pub idle: Duration,
    /// Time taken by scheduling itself.
    pub overhead: Duration,
    /// Scheduling decisions.
    pub decisions: u64,
    /// Changes of the unit that the processor runs.
    pub context_switches: u64,
}

impl ProcessorTotals {
    /// Adds what `other` counted.
    pub fn add(&mut self, other: &ProcessorTotals) {
        self.busy += other.busy;
        self.idle += other.idle;
        self.overhead += other.overhead;
        self.decisions += other.decisions;
        self.context_switches += other.context_switches;
    }
}

/// What the processors and units of one scheduler, a pool's or a guest's, did together.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedulerTotals {
    /// Its processors.
    pub processors: ProcessorTotals,
    /// Units resumed on another of its processors.
    pub migrations: u64,
    /// How often the budget of a unit reached zero.
    pub exhaustions: u64,
    /// How often budget was added.
    pub replenishments: u64,
}

/// Collects what a run of `host` measured; what is not set is zero, and a processor idle.
#[derive(Debug)]
pub struct ResultsBuilder<'h> {
    host: &'h Host,
    results: Results,
    guests: Vec<SchedulerTotals>,
    network_times: Vec<Duration>,
    verdicts: Vec<Option<GuestVerdict>>,
}

impl<'h> ResultsBuilder<'h> {
    /// Nothing measured yet.
    pub fn new(host: &'h Host, source: Source) -> Self {
        let mut results = empty(source, &host.name, host.seed, host.duration, host.processors);
        results.pools = host.pools.iter().map(new_pool).collect();
        let happened = host.events.iter().filter(|event| event.at < host.duration);
        results.changes = happened.map(|event| new_change(host, event)).collect();
        for pool in &host.pools {
            for &processor in &pool.processors {
                results.processors[processor].pool = Some(pool.name.clone());
            }
        }
        ResultsBuilder { host, results, guests: Vec::new(), network_times: Vec::new(), verdicts: Vec::new() }
    }

    /// The machine of a live run.
    pub fn machine(&mut self, description: String) {
        self.results.machine = Some(description);
    }

    /// How many events were handled.
    pub fn events(&mut self, events: u64) {
        self.results.events = events;
    }

    /// The pool ran under another policy than the host says.
    pub fn policy(&mut self, pool: PoolIx, name: &str) {
        self.results.pools[pool.0].policy = name.into();
    }

    /// What a pool's processors and units did.
    pub fn pool(&mut self, pool: PoolIx, totals: &SchedulerTotals) {
        let (result, processors) = (&mut self.results.pools[pool.0], &totals.processors);
        result.busy_ns = processors.busy.as_ns();
        result.idle_ns = processors.idle.as_ns();
        result.overhead_ns = processors.overhead.as_ns();
        result.decisions = Some(processors.decisions);
        result.context_switches = Some(processors.context_switches);
        result.migrations = Some(totals.migrations);
        result.exhaustions = Some(totals.exhaustions);
        result.replenishments = Some(totals.replenishments);
    }

    /// What enforcement of a pool did.
    pub fn enforcement(&mut self, pool: PoolIx, enforcement: Enforcement) {
        self.results.pools[pool.0].enforcement = Some(enforcement);
    }

    /// What else a processor did, and how it was taken away from its pool.
    pub fn host(&mut self, processor: usize, times: HostTimes, disturbance: Disturbance) {
        let result = &mut self.results.processors[processor];
        (result.host, result.disturbance) = (Some(times), Some(disturbance));
    }

    /// What a processor did.
    pub fn processor(&mut self, processor: usize, totals: &ProcessorTotals) {
        debug_assert!(
            self.results.source == Source::Live
                || totals.busy + totals.idle + totals.overhead == self.host.duration,
            "busy, idle and overhead time add up to the duration",
        );
        set_processor(&mut self.results.processors[processor], totals);
    }

    /// What the guest scheduler of each domain did on the domain's vCPUs, in the host's order.
    pub fn guests(&mut self, totals: impl IntoIterator<Item = SchedulerTotals>) {
        self.guests = totals.into_iter().collect();
    }

    /// Time that the kernel of each domain spent on networks, in the host's order.
    pub fn network_times(&mut self, spent: impl IntoIterator<Item = Duration>) {
        self.network_times = spent.into_iter().collect();
    }

    /// Why the jobs of domains are not measured, in the host's order.
    pub fn verdicts(&mut self, verdicts: impl IntoIterator<Item = Option<GuestVerdict>>) {
        self.verdicts = verdicts.into_iter().collect();
    }

    /// What each task did, in the host's order.
    ///
    /// # Panics
    /// When there are not as many as tasks of the host.
    pub fn tasks(&mut self, totals: impl IntoIterator<Item = TaskTotals>) {
        let host = self.host;
        let results = host.tasks.iter().zip(totals).map(|(task, totals)| TaskResult {
            name: task.name.clone(),
            parent: host.parent_name(task.parent).into(),
            deadline_ns: task.deadline().map(Duration::as_ns),
            jobs: totals.jobs,
            cpu_time_ns: totals.cpu_time.as_ns(),
            context_switches: Some(totals.context_switches),
            migrations: Some(totals.migrations),
            blame: totals.blame,
            smp: totals.smp.map(Box::new),
            disturbed: totals.disturbed,
        });
        self.results.tasks = results.collect();
        assert_eq!(self.results.tasks.len(), host.tasks.len());
    }

    /// What each vCPU got, in the host's order.
    ///
    /// # Panics
    /// When there are not as many as vCPUs of the host.
    pub fn vcpus(&mut self, totals: impl IntoIterator<Item = VcpuTotals>) {
        let results = self.host.vcpus.iter().zip(totals).map(|(vcpu, totals)| VcpuResult {
            name: vcpu.name.clone(),
            cpu_time_ns: totals.cpu_time.as_ns(),
            counts: Some(UnitCounts {
                idled_away_ns: totals.idled_away.as_ns(),
                wakes: totals.wakes,
                sleeps: totals.sleeps,
                exhaustions: totals.exhaustions,
                replenishments: totals.replenishments,
            }),
            context_switches: Some(totals.context_switches),
            migrations: Some(totals.migrations),
            wake_latency: totals.wake_latency,
            delivery: totals.delivery,
            put_back: totals.put_back,
            not_enforced: totals.not_enforced,
        });
        self.results.vcpus = results.collect();
        assert_eq!(self.results.vcpus.len(), self.host.vcpus.len());
    }

    /// What networks, flows and chains did.
    pub fn networks(
        &mut self,
        networks: Vec<NetworkResult>,
        flows: Vec<FlowResult>,
        chains: Vec<ChainResult>,
    ) {
        self.results.networks = networks;
        self.results.flows = flows;
        self.results.chains = chains;
    }

    /// The results, with the sums over domains and pools. A caller that needs memory for its measurements
    /// frees it before: the distributions of domains need as much as those of tasks.
    pub fn build(self) -> Results {
        let ResultsBuilder { host, mut results, guests, network_times, verdicts } = self;
        for (task, result) in host.tasks.iter().zip(&results.tasks) {
            results.pools[host.pool_of(task.parent).0].jobs.merge(&result.jobs);
        }
        for given in [guests.len(), network_times.len(), verdicts.len()] {
            debug_assert!(given == 0 || given == host.domains.len(), "none, or one for each domain");
        }
        let mut guests = guests.into_iter();
        let mut network_times = network_times.into_iter();
        let mut verdicts = verdicts.into_iter();
        results.domains.reserve_exact(host.domains.len());
        for domain in &host.domains {
            let guest = guests.next().unwrap_or_default();
            let network_time = network_times.next().unwrap_or_default();
            let vcpus = &results.vcpus[domain.vcpus.clone()];
            results.domains.push(DomainResult {
                name: domain.name.clone(),
                jobs: JobStats::default(),
                cpu_time_ns: vcpus.iter().map(|vcpu| vcpu.cpu_time_ns).sum(),
                network_ns: Some(network_time.as_ns()),
                decisions: Some(guest.processors.decisions),
                context_switches: Some(guest.processors.context_switches),
                migrations: Some(guest.migrations),
                exhaustions: vcpus.iter().map(|vcpu| vcpu.counts.map(|of| of.exhaustions)).sum(),
                replenishments: vcpus.iter().map(|vcpu| vcpu.counts.map(|of| of.replenishments)).sum(),
                verdict: verdicts.next().flatten(),
            });
        }
        for (task, result) in host.tasks.iter().zip(&results.tasks) {
            if let Parent::Domain(domain) = task.parent {
                results.domains[domain.0].jobs.merge(&result.jobs);
            }
        }
        results.leave_out_unmeasured();
        results
    }
}

/// The results of a simulated Linux host with its network stack: what its processors and servers did.
pub fn of_host_stack(
    stack: &HostStack,
    events: u64,
    processors: &[ProcessorTotals],
    flows: Vec<FlowResult>,
) -> Results {
    debug_assert_eq!(processors.len(), stack.processors, "each processor has its totals");
    let mut results = empty(Source::Simulation, &stack.name, stack.seed, stack.duration, stack.processors);
    (results.events, results.flows) = (events, flows);
    results.processors.iter_mut().zip(processors).for_each(|(result, totals)| set_processor(result, totals));
    results.leave_out_unmeasured();
    results
}

/// Results of a run in which nothing has happened.
fn empty(source: Source, name: &str, seed: u64, duration: Duration, processors: usize) -> Results {
    let new = |processor| ProcessorResult {
        processor,
        pool: None,
        busy_ns: 0,
        idle_ns: duration.as_ns(),
        overhead_ns: 0,
        decisions: Some(0),
        context_switches: Some(0),
        host: None,
        disturbance: None,
    };
    Results {
        format: FORMAT.into(),
        version: VERSION,
        program: concat!("punctual ", env!("CARGO_PKG_VERSION")).into(),
        source,
        machine: None,
        label: None,
        host: name.into(),
        seed,
        runs: 1,
        duration_ns: duration.as_ns(),
        events: 0,
        changes: Vec::new(),
        pools: Vec::new(),
        processors: (0..processors).map(new).collect(),
        domains: Vec::new(),
        vcpus: Vec::new(),
        tasks: Vec::new(),
        networks: Vec::new(),
        switches: Vec::new(),
        sockets: Vec::new(),
        flows: Vec::new(),
        chains: Vec::new(),
    }
}

fn set_processor(result: &mut ProcessorResult, totals: &ProcessorTotals) {
    result.busy_ns = totals.busy.as_ns();
    result.idle_ns = totals.idle.as_ns();
    result.overhead_ns = totals.overhead.as_ns();
    result.decisions = Some(totals.decisions);
    result.context_switches = Some(totals.context_switches);
}

fn new_change(host: &Host, event: &Event) -> ChangeResult {
    let (name, change) = (event.name.clone(), event.change.text(host));
    ChangeResult { name, at_ns: event.at.as_ns(), change }
}

fn new_pool(pool: &Pool) -> PoolResult {
    PoolResult {
        name: pool.name.clone(),
        policy: pool.policy.info.name.into(),
        processors: pool.processors.len(),
        jobs: JobStats::default(),
        busy_ns: 0,
        idle_ns: 0,
        overhead_ns: 0,
        decisions: Some(0),
        context_switches: Some(0),
        migrations: Some(0),
        exhaustions: Some(0),
        replenishments: Some(0),
        enforcement: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{self, Overrides};

    #[test]
    fn domains_and_pools_add_up_what_is_theirs_nested_domains_included() {
        let text = "[machine]\nprocessors = 2\n[pool.p]\nprocessors = [1]\npolicy = \"fixed-priority\"\n\
                    [domain.outer]\npriority = 1\nvcpus = 2\n\
                    [domain.outer.task.a]\nperiod = \"10ms\"\ncost = \"1ms\"\n\
                    [domain.inner]\nin = \"outer\"\npriority = 2\n\
                    [domain.inner.task.b]\nperiod = \"10ms\"\ncost = \"1ms\"\n";
        let host = file::parse(text, "nested.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let ms = Duration::from_ms;
        let mut results = ResultsBuilder::new(&host, Source::Simulation);
        results.tasks([3, 4].map(|completed| TaskTotals {
            jobs: JobStats { completed, ..JobStats::default() },
            ..TaskTotals::default()
        }));
        results.vcpus([1, 2, 4].map(|n| VcpuTotals {
            cpu_time: ms(n),
            exhaustions: n,
            ..VcpuTotals::default()
        }));
        let results = results.build();
        assert_eq!(results.pools[0].jobs.completed, 7);
        let domains: Vec<_> = results
            .domains
            .iter()
            .map(|d| (d.name.as_str(), d.jobs.completed, d.cpu_time_ns, d.exhaustions))
            .collect();
        assert_eq!(domains, [("outer", 3, 3_000_000, Some(3)), ("inner", 4, 4_000_000, Some(4))]);
        assert_eq!(results.tasks[1].parent, "inner");
        let idle: Vec<_> = results.processors.iter().map(|p| (p.pool.as_deref(), p.idle_ns)).collect();
        assert_eq!(idle, [(None, results.duration_ns), (Some("p"), results.duration_ns)]);
    }
}
