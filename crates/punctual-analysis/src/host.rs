//! The host as the tests take it: who is whose unit, where each unit lives, and the answers as they come in.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::host::{Arrival, DomainIx, Parent, PoolIx, TaskIx, VcpuIx, Work};
use punctual_sched::{CpuId, CpuSet, Instant, UnitParams};

use crate::demand::Demand;
use crate::overhead::Decisions;
use crate::pool::{BEST_EFFORT, NOTHING_LEFT};
use crate::report::{CounterExample, Dominant, Report, TaskReport, VcpuReport, Verdict};
use crate::warnings;

/// Analyses every pool of the host.
pub fn analyse(host: &Host) -> Report {
    let index = Index::new(host);
    let mut analysis = Analysis::new(host, &index);
    for pool in 0..host.pools.len() {
        analysis.pool(pool);
    }
    let warnings = warnings::of(&analysis);
    let Analysis { tasks, vcpus, .. } = analysis;
    Report {
        host: host.name.clone(),
        tasks: tasks.into_values().collect(),
        vcpus: vcpus.into_values().collect(),
        warnings,
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
    /// The only unit whose tasks need answers; all of them if there is none.
    pub(crate) wanted: Option<Unit>,
    /// Answers for tasks, by index.
    pub(crate) tasks: BTreeMap<usize, TaskReport>,
    vcpus: BTreeMap<usize, VcpuReport>,
    /// Is a pool's unit given its budget in every period? Units without an entry have none.
    pub(crate) delivered: BTreeMap<Unit, Delivery>,
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
        let (tasks, vcpus, delivered) = Default::default();
        Analysis { host, index, wanted: None, tasks, vcpus, delivered }
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

    /// What a task asks for; `None` for what has no bound: a busy loop, or jobs released by packets.
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
            Work::Served { .. } | Work::Hog { .. } => None,
        }
    }

    /// The processor that each unit of a partitioned policy lives on: the policy itself is asked.
    pub(crate) fn homes(&self, pool: usize, units: &[Unit]) -> Option<Vec<CpuId>> {
        let pool = &self.host.pools[pool];
        let mut policy = (pool.policy.info.build)(pool.processors.len(), &pool.policy.options).ok()?;
        let insert = |unit: &Unit| policy.insert(Instant::ZERO, self.params(*unit)).ok();
        let ids: Option<Vec<_>> = units.iter().map(insert).collect();
        ids?.into_iter().map(|id| policy.account(id).home).collect()
    }

    /// Adds the decisions that `unit` causes by waking and sleeping, at most `chain` for each. False when they cannot
    /// be bounded: a guest's scheduler below it acts on timers of its own.
    pub(crate) fn add_wakes(&self, unit: Unit, chain: u64, costs: &mut Decisions) -> bool {
        match unit {
            Unit::Task(t) => {
                match self.demand(t) {
                    Some(demand) => costs.every(demand.period, 2 * chain),
                    None => costs.also(2 * chain),
                }
                true
            }
            Unit::Vcpu(v) => {
                let domain = self.host.vcpus[v].domain.0;
                let guest = &self.host.domains[domain];
                // Guests of several vCPUs push and pull tasks between them.
                let chain = if guest.vcpus.len() > 1 { 2 * chain } else { chain };
                let timerless = ["fixed-priority", "edf"].contains(&guest.guest.info.name);
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
        let Some(demand) = self.demand(task) else { return };
        if self.tasks.contains_key(&task) {
            return;
        }
        let (verdict, dominant, test) = if demand.cost > demand.deadline {
            let counter_example = CounterExample::synchronous(vec![TaskIx(task)], demand.deadline);
            (Verdict::NotGuaranteed { counter_example }, None, "cost beyond the deadline")
        } else {
            (verdict, dominant, test)
        };
        let report = TaskReport {
            task: TaskIx(task),
            name: self.host.tasks[task].name.clone(),
            parent: parent_of(self.host, task).to_string(),
            deadline_ns: demand.deadline,
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
