//! The host as the tests take it: who is whose unit, where each unit lives, and the answers as they come in.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::guarantees::Dominant;
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_sched::{CpuId, CpuSet, Instant, UnitParams};

use crate::demand::Demand;
use crate::network;
use crate::overhead::Decisions;
use crate::pool::{BEST_EFFORT, NOTHING_LEFT};
use crate::report::{CounterExample, Report, TaskReport, VcpuReport, Verdict};
use crate::supply::Supply;
use crate::warnings;

/// Analyses every pool and every network of the host.
pub fn analyse(host: &Host) -> Report {
    let index = Index::new(host);
    let networks = network::solve(host, &index);
    let analysis = Analysis::new(host, &index).with_load(&networks.load).all_pools();
    let warnings = warnings::of(&analysis);
    let Analysis { tasks, vcpus, .. } = analysis;
    Report {
        host: host.name.clone(),
        tasks: tasks.into_values().collect(),
        vcpus: vcpus.into_values().collect(),
        flows: networks.flows,
        chains: networks.chains,
        warnings,
    }
}

/// What networks add to the host's own tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// By vCPU: the work of its domain's kernel in interrupt context, ahead of all tasks.
    pub(crate) kernels: BTreeMap<usize, Vec<KernelWork>>,
    /// By task: what arrives at those that packets release. Without an entry nobody knows.
    pub(crate) served: BTreeMap<usize, Demand>,
}

/// Hosts without networks.
static NO_LOAD: Load = Load { kernels: BTreeMap::new(), served: BTreeMap::new() };

/// What one flow makes a kernel do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelWork {
    /// For all packets of a burst together.
    pub(crate) demand: Demand,
    /// Packets in a burst; each of them may find the vCPU asleep.
    pub(crate) wakes: u64,
}

/// How a vCPU gets its time, as its kernel sees it.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) supply: Supply,
    /// What is as urgent or more, in the same supply.
    pub(crate) above: Vec<Demand>,
    pub(crate) costs: Decisions,
}

impl Service {
    /// How long `work` takes at most, when it is in no longer than `window`, in ns.
    pub(crate) fn time(&self, work: u64, window: u64) -> u64 {
        let above = self.above.iter().fold(work, |sum, d| sum.saturating_add(d.requested(window)));
        self.supply.time_for(above.saturating_add(self.costs.within(window)))
    }
}

/// A unit of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unit {
    Vcpu(usize),
    Task(usize),
}

/// The units of one scheduler.
#[derive(Clone, Default)]
pub(crate) struct Units {
    pub(crate) tasks: Vec<usize>,
    pub(crate) vcpus: Vec<usize>,
}

impl Units {
    /// vCPUs before tasks, each in the host's order: the order in which they are inserted.
    pub(crate) fn all(&self) -> Vec<Unit> {
        let vcpus = self.vcpus.iter().map(|v| Unit::Vcpu(*v));
        vcpus.chain(self.tasks.iter().map(|t| Unit::Task(*t))).collect()
    }
}

/// Who is whose unit. It stays the same whatever parameters the units get.
pub(crate) struct Index {
    pub(crate) in_pool: Vec<Units>,
    pub(crate) in_domain: Vec<Units>,
}

/// The answers so far.
pub(crate) struct Analysis<'h> {
    pub(crate) host: &'h Host,
    pub(crate) index: &'h Index,
    pub(crate) load: &'h Load,
    /// The only unit whose tasks need answers; all of them if there is none.
    pub(crate) wanted: Option<Unit>,
    /// Answers for tasks, by index.
    pub(crate) tasks: BTreeMap<usize, TaskReport>,
    vcpus: BTreeMap<usize, VcpuReport>,
    /// Is a pool's unit given its budget in every period? Units without an entry have none.
    pub(crate) delivered: BTreeMap<Unit, Delivery>,
    /// By vCPU, for those with kernel work: how it gets its time. Without an entry nobody knows.
    pub(crate) services: BTreeMap<usize, Service>,
    /// By task that packets release: a bound on its response time, whatever its deadline.
    pub(crate) served_times: BTreeMap<usize, u64>,
}

/// Does a unit surely get its budget in every period?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Sure,
    /// Nothing of it is left to use; a greater one may be.
    TooSmall,
    /// Others may take its time, and no greater one changes that.
    Unsure,
}

/// An upper limit on what a unit gets: `budget` in every `period`, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cap {
    pub(crate) budget: u64,
    pub(crate) period: u64,
    /// Budgets that may come on top of one for every period begun.
    pub(crate) more: u64,
}

impl Cap {
    /// The most that it gets from time zero to `until`.
    pub(crate) fn supplied(&self, until: u64) -> u64 {
        (until.div_ceil(self.period) + self.more).saturating_mul(self.budget)
    }
}

impl Index {
    pub(crate) fn new(host: &Host) -> Self {
        let mut in_pool = vec![Units::default(); host.pools.len()];
        let mut in_domain = vec![Units::default(); host.domains.len()];
        let mut of = |parent: Parent, unit: Unit| {
            let units = match parent {
                Parent::Pool(PoolIx(pool)) => &mut in_pool[pool],
                Parent::Domain(DomainIx(domain)) => &mut in_domain[domain],
            };
            match unit {
                Unit::Vcpu(v) => units.vcpus.push(v),
                Unit::Task(t) => units.tasks.push(t),
            }
        };
        for (v, vcpu) in host.vcpus.iter().enumerate() {
            of(host.domains[vcpu.domain.0].parent, Unit::Vcpu(v));
        }
        for (t, task) in host.tasks.iter().enumerate() {
            of(task.parent, Unit::Task(t));
        }
        Index { in_pool, in_domain }
    }
}

impl<'h> Analysis<'h> {
    pub(crate) fn new(host: &'h Host, index: &'h Index) -> Self {
        let (tasks, vcpus, delivered, services) = Default::default();
        let served_times = BTreeMap::new();
        Analysis {
            host,
            index,
            load: &NO_LOAD,
            wanted: None,
            tasks,
            vcpus,
            delivered,
            services,
            served_times,
        }
    }

    /// The same beside what networks add.
    pub(crate) fn with_load(self, load: &'h Load) -> Self {
        Analysis { load, ..self }
    }

    /// Answers for everything.
    pub(crate) fn all_pools(mut self) -> Self {
        (0..self.host.pools.len()).for_each(|pool| self.pool(pool));
        self
    }

    /// The same for the tasks of one of the pool's units alone.
    pub(crate) fn wanted(self, unit: Unit) -> Self {
        Analysis { wanted: Some(unit), ..self }
    }

    pub(crate) fn params(&self, unit: Unit) -> &'h UnitParams {
        match unit {
            Unit::Vcpu(v) => &self.host.vcpus[v].params,
            Unit::Task(t) => &self.host.tasks[t].params,
        }
    }

    /// What a task asks for; `None` for what has no bound: a busy loop, or jobs released by packets that may
    /// come at any rate.
    pub(crate) fn demand(&self, task: usize) -> Option<Demand> {
        match self.host.tasks[task].work {
            Work::Jobs { arrival, cost, deadline } => {
                let period = match arrival {
                    Arrival::Periodic { period, .. } => period,
                    Arrival::Sporadic { separation, .. } => separation,
                };
                // The shortest job takes 1 ns.
                let cost = cost.max.as_ns().max(1);
                Some(Demand::implicit(cost, period.as_ns().max(1)).due(deadline.as_ns()))
            }
            Work::Served { .. } => self.load.served.get(&task).copied(),
            Work::Hog { .. } => None,
        }
    }

    /// Do packets release the task's jobs?
    pub(crate) fn is_served(&self, task: usize) -> bool {
        matches!(self.host.tasks[task].work, Work::Served { .. })
    }

    /// The kernel's work on a vCPU, if it has any.
    pub(crate) fn kernel(&self, vcpu: usize) -> Option<&'h [KernelWork]> {
        self.load.kernels.get(&vcpu).map(Vec::as_slice)
    }

    /// The processor that each unit of a partitioned policy lives on: the policy itself is asked.
    pub(crate) fn homes(&self, pool: usize, units: &[Unit]) -> Option<Vec<CpuId>> {
        let pool = &self.host.pools[pool];
        let mut policy = (pool.policy.info.build)(pool.processors.len(), &pool.policy.options).ok()?;
        let insert = |unit: &Unit| policy.insert(Instant::ZERO, self.params(*unit)).ok();
        let ids: Option<Vec<_>> = units.iter().map(insert).collect();
        ids?.into_iter().map(|id| policy.account(id).home).collect()
    }

    /// Adds the decisions that `unit` causes by waking and sleeping, at most `chain` for each. False when
    /// they cannot be bounded: a guest's scheduler below it acts on timers of its own, or packets wake it at
    /// any rate.
    pub(crate) fn add_wakes(&self, unit: Unit, chain: u64, costs: &mut Decisions) -> bool {
        match unit {
            Unit::Task(t) => {
                match self.demand(t) {
                    Some(demand) => costs.every_late(demand.period, demand.jitter, 2 * chain),
                    None => costs.also(2 * chain),
                }
                self.demand(t).is_some() || !self.is_served(t)
            }
            Unit::Vcpu(v) => {
                let domain = self.host.vcpus[v].domain.0;
                let guest = &self.host.domains[domain];
                // Guests of several vCPUs push and pull tasks between them.
                let chain = if guest.vcpus.len() > 1 { 2 * chain } else { chain };
                let timerless = ["fixed-priority", "edf"].contains(&guest.guest.info.name);
                for KernelWork { demand, wakes } in self.kernel(v).unwrap_or_default() {
                    costs.every_late(demand.period, demand.jitter, wakes.saturating_mul(2 * chain));
                }
                timerless
                    && self.index.in_domain[domain].all().into_iter().all(|u| self.add_wakes(u, chain, costs))
            }
        }
    }

    // ---- answers ------------------------------------------------------------------------------------

    /// Notes the answer for a task, unless it has one already. A cost beyond the deadline needs no test.
    pub(crate) fn answer(
        &mut self,
        task: usize,
        verdict: Verdict,
        dominant: Option<Dominant>,
        test: &'static str,
    ) {
        let (cost, due) = match self.host.tasks[task].work {
            Work::Jobs { cost, deadline, .. } => (cost.max.as_ns().max(1), deadline.as_ns()),
            // No packet need ever come.
            Work::Served { deadline, .. } => (0, deadline.as_ns()),
            Work::Hog { .. } => return,
        };
        if self.tasks.contains_key(&task) {
            return;
        }
        let (verdict, dominant, test) = if cost > due {
            let counter_example = CounterExample::synchronous(vec![TaskIx(task)], due);
            (Verdict::NotGuaranteed { counter_example }, None, "cost beyond the deadline")
        } else {
            (verdict, dominant, test)
        };
        let report = TaskReport {
            task: TaskIx(task),
            name: self.host.tasks[task].name.clone(),
            parent: parent_of(self.host, task).to_string(),
            deadline_ns: due,
            verdict,
            dominant,
            test,
        };
        self.tasks.insert(task, report);
    }

    /// A bound on a task's response time. Within the deadline it is a guarantee.
    pub(crate) fn bounded(
        &mut self,
        task: usize,
        bound: u64,
        dominant: Option<Dominant>,
        test: &'static str,
    ) {
        let deadline = self.demand(task).map_or(0, |d| d.deadline);
        let verdict = match deadline.checked_sub(bound) {
            Some(slack_ns) => Verdict::Guaranteed { bound_ns: bound, slack_ns },
            None => Verdict::Unknown { why: "the bound found is beyond the deadline".into() },
        };
        self.answer(task, verdict, dominant, test);
    }

    pub(crate) fn refuted(&mut self, task: usize, example: CounterExample, test: &'static str) {
        self.answer(task, Verdict::NotGuaranteed { counter_example: example }, None, test);
    }

    pub(crate) fn unknown(&mut self, task: usize, why: &str, test: &'static str) {
        self.answer(task, Verdict::Unknown { why: why.into() }, None, test);
    }

    /// Nothing is known about any task below the unit.
    pub(crate) fn unknown_below(&mut self, unit: Unit, why: &str, test: &'static str) {
        match unit {
            Unit::Task(t) => self.unknown(t, why, test),
            Unit::Vcpu(v) => {
                let domain = self.host.vcpus[v].domain.0;
                for unit in self.index.in_domain[domain].all() {
                    self.unknown_below(unit, why, test);
                }
            }
        }
    }

    /// Notes the answer for a vCPU's budget: the time it takes to be delivered, or why that is not known.
    pub(crate) fn budget_of(&mut self, unit: Unit, period: u64, time: Result<u64, &'static str>) {
        let delivery = match time {
            Ok(_) => Delivery::Sure,
            Err(NOTHING_LEFT | BEST_EFFORT) => Delivery::TooSmall,
            Err(_) => Delivery::Unsure,
        };
        self.delivered.insert(unit, delivery);
        let Unit::Vcpu(v) = unit else { return };
        let verdict = match time {
            Ok(time) => Verdict::Guaranteed { bound_ns: time, slack_ns: period - time },
            Err(why) => Verdict::Unknown { why: why.into() },
        };
        let name = self.host.vcpus[v].name.clone();
        self.vcpus.insert(v, VcpuReport { vcpu: VcpuIx(v), name, period_ns: period, verdict });
    }

    /// The budget of a vCPU is surely not delivered in its first period when all vCPUs are busy.
    pub(crate) fn refute_budget(&mut self, unit: Unit, period: u64) {
        if let Unit::Vcpu(v) = unit
            && let Some(report) = self.vcpus.get_mut(&v)
        {
            report.verdict = Verdict::NotGuaranteed { counter_example: CounterExample::all_busy(period) };
        }
    }
}

/// The name of the domain that a task runs in, or of the pool that schedules it itself.
pub(crate) fn parent_of(host: &Host, task: usize) -> &str {
    match host.tasks[task].parent {
        Parent::Pool(pool) => &host.pools[pool.0].name,
        Parent::Domain(domain) => &host.domains[domain.0].name,
    }
}

/// The only one of `processors` that a unit may run on, if there is only one.
pub(crate) fn only_processor(affinity: Option<&CpuSet>, processors: usize) -> Option<usize> {
    let mut allowed = (0..processors).filter(|p| affinity.is_none_or(|set| set.contains(CpuId(*p as u32))));
    let first = allowed.next()?;
    allowed.next().is_none().then_some(first)
}
