//! Which budgets a deadline depends on.

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{PoolIx, TaskIx, VcpuIx};
use punctual_sched::Duration;
use punctual_sched::registry::PolicyInfo;

use super::super::chosen::keeps_budgets;
use super::super::error::{Error, Shortfall};
use super::super::options::Options;
use super::super::trial::{Beside, least_budget};
use crate::answer::Answers;
use crate::demand::{Demand, NANOSECOND};
use crate::inputs::{Inputs, KernelWork, UnitIx, name, only_processor, params};
use crate::needs::{Need, has_moving_tasks};
use crate::network::Routes;

/// Units that have one budget together: one vCPU, one task, or all vCPUs of a domain whose tasks may move
/// between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) units: Vec<UnitIx>,
}

/// The blocks of a host, and which deadlines depend on them.
pub(super) struct Blocks {
    pub(super) all: Vec<Block>,
    /// Each with the blocks that it depends on.
    pub(super) needs: Vec<(Need, Vec<usize>)>,
    together: BTreeSet<UnitIx>,
    /// Tasks whose deadlines depend on these.
    tasks: BTreeSet<TaskIx>,
}

impl Blocks {
    pub(super) fn of(inputs: Inputs<'_>, routes: &Routes<'_>, answers: &Answers) -> Self {
        let mut blocks =
            Blocks { all: Vec::new(), needs: Vec::new(), together: BTreeSet::new(), tasks: BTreeSet::new() };
        for need in Need::all(inputs.host, answers) {
            let way = need.way(routes);
            let of_tasks = way.tasks.iter().flat_map(|task| units_of_task(inputs, *task));
            let kernels = way.domains.iter().filter_map(|domain| sized(inputs, routes.vcpu(*domain)));
            let units: BTreeSet<UnitIx> = of_tasks.chain(kernels).collect();
            if units.len() > 1 || !way.domains.is_empty() {
                blocks.together.extend(units.iter().copied());
                blocks.tasks.extend(way.tasks.iter().copied());
            }
            let mut at: Vec<usize> = units.into_iter().map(|unit| blocks.at(inputs, unit)).collect();
            at.sort_unstable();
            at.dedup();
            blocks.needs.push((need, at));
        }
        // A task beside one of these in its guest is judged with it.
        let is_together =
            |task: &TaskIx| units_of_task(inputs, *task).iter().any(|unit| blocks.together.contains(unit));
        let beside: Vec<TaskIx> = answers.tasks.keys().copied().filter(is_together).collect();
        blocks.tasks.extend(beside);
        blocks
    }

    /// Units of which a deadline depends on more than one, or on packets.
    pub(super) fn together(&self) -> impl Iterator<Item = UnitIx> {
        self.together.iter().copied()
    }

    pub(super) fn units(&self) -> impl Iterator<Item = UnitIx> {
        self.all.iter().flat_map(|block| block.units.iter().copied())
    }

    /// The block of a unit.
    fn at(&mut self, inputs: Inputs<'_>, unit: UnitIx) -> usize {
        if let Some(at) = self.all.iter().position(|block| block.units.contains(&unit)) {
            return at;
        }
        let units = match unit {
            UnitIx::Vcpu(vcpu) if has_moving_tasks(inputs.host, inputs.host.vcpus[vcpu.0].domain) => {
                inputs.domain_of(vcpu).vcpus.clone().map(|vcpu| UnitIx::Vcpu(VcpuIx(vcpu))).collect()
            }
            _ => vec![unit],
        };
        self.all.push(Block { units });
        self.all.len() - 1
    }

    /// For the search within a pool: budgets to start from of the units that are chosen together, as much as
    /// their work asks for in the long run.
    ///
    /// # Errors
    /// A unit's smallest budget is longer than its period.
    pub(super) fn beside<'l>(&self, inputs: Inputs<'l>, options: &Options) -> Result<Beside<'l>, Error> {
        let mut starts = BTreeMap::new();
        for unit in self.units().filter(|unit| self.together.contains(unit)) {
            let period = params(inputs.host, unit).period.unwrap_or_default();
            let (granule, least) = (options.granularity, least_budget(policy_of(inputs, unit), options));
            if least > period {
                let why = vec![Shortfall::Granularity { budget: least, period }];
                return Err(Error::Unmet { name: name(inputs.host, unit).to_owned(), why });
            }
            let wanted = granule * in_the_long_run(inputs, unit, period).div_ceil(granule);
            let most = granule * period.div_floor(granule);
            starts.insert(unit, wanted.min(most).max(least));
        }
        Ok(Beside { load: inputs.load, starts, tasks: self.tasks.clone() })
    }
}

/// The pool of a unit.
pub(super) fn pool_of(host: &Host, unit: UnitIx) -> PoolIx {
    host.pool_of(match unit {
        UnitIx::Task(task) => host.tasks[task.0].parent,
        UnitIx::Vcpu(vcpu) => host.domains[host.vcpus[vcpu.0].domain.0].parent,
    })
}

impl Blocks {
    /// Other budgets to start from, by block: those of the file, and three quarters of what each gets where
    /// all units of its pool get the same. Where little is there at first, nothing may bound the packets.
    pub(super) fn other_starts(&self, inputs: Inputs<'_>, options: &Options) -> Vec<Vec<Duration>> {
        let granule = options.granularity.max(NANOSECOND);
        let rounded = |unit: UnitIx, budget: Duration| {
            let period = params(inputs.host, unit).period.unwrap_or_default();
            let least = least_budget(policy_of(inputs, unit), options);
            (granule * budget.div_ceil(granule)).min(granule * period.div_floor(granule)).max(least)
        };
        let given = |block: &Block| {
            let unit = block.units[0];
            rounded(unit, params(inputs.host, unit).budget.unwrap_or_default())
        };
        let fair = |block: &Block| {
            let unit = block.units[0];
            let pool = pool_of(inputs.host, unit);
            let processors = inputs.pool(pool).processors.len() as u64;
            let units = inputs.index.in_pool(pool).all().count() as u64;
            let period = params(inputs.host, unit).period.unwrap_or_default();
            rounded(unit, period * (3 * processors.min(units)) / (4 * units.max(1)))
        };
        vec![self.all.iter().map(given).collect(), self.all.iter().map(fair).collect()]
    }
}

fn policy_of(inputs: Inputs<'_>, unit: UnitIx) -> &'static PolicyInfo {
    inputs.pool(pool_of(inputs.host, unit)).policy.info
}

/// What the work below a unit asks for in one of its periods, in the long run.
fn in_the_long_run(inputs: Inputs<'_>, unit: UnitIx, period: Duration) -> Duration {
    let in_period = |demand: Demand, vcpus: u64| {
        let (cost, period) = (u128::from(demand.cost.as_ns()), u128::from(period.as_ns()));
        let ns = (cost * period).div_ceil(u128::from(demand.period.as_ns()) * u128::from(vcpus));
        u64::try_from(ns).map_or(Duration::MAX, Duration::from_ns)
    };
    let UnitIx::Vcpu(vcpu) = unit else { return Duration::ZERO };
    let vcpus = inputs.domain_of(vcpu).vcpus.clone();
    let number = vcpu.0 - vcpus.start;
    let tasks = inputs.tasks_beside(vcpu).filter_map(|task| {
        let demand = inputs.demand(task)?;
        match only_processor(inputs.params(UnitIx::Task(task)).affinity.as_ref(), vcpus.len()) {
            Some(only) => (only == number).then(|| in_period(demand, 1)),
            None => Some(in_period(demand, vcpus.len() as u64)),
        }
    });
    let kernel = inputs.kernel(vcpu).unwrap_or_default();
    let kernel = kernel.iter().map(|KernelWork { demand, .. }| in_period(*demand, 1));
    tasks.chain(kernel).sum()
}

/// The units of pools with budgets that run a task.
fn units_of_task(inputs: Inputs<'_>, task: TaskIx) -> Vec<UnitIx> {
    let of = &inputs.host.tasks[task.0];
    let Parent::Domain(mut domain) = of.parent else {
        let is_sized = keeps_budgets(policy_of(inputs, UnitIx::Task(task)));
        return is_sized.then_some(UnitIx::Task(task)).into_iter().collect();
    };
    let mut affinity = of.params.affinity.as_ref();
    while let Parent::Domain(outer) = inputs.host.domains[domain.0].parent {
        affinity = None;
        domain = outer;
    }
    let vcpus = inputs.host.domains[domain.0].vcpus.clone();
    let only = only_processor(affinity, vcpus.len());
    let here = vcpus.clone().filter(|vcpu| only.is_none_or(|only| vcpus.start + only == *vcpu));
    here.filter_map(|vcpu| sized(inputs, VcpuIx(vcpu))).collect()
}

/// The vCPU, if a search may choose its budget.
fn sized(inputs: Inputs<'_>, vcpu: VcpuIx) -> Option<UnitIx> {
    let domain = inputs.domain_of(vcpu);
    let Parent::Pool(pool) = domain.parent else { return None };
    let params = &inputs.host.vcpus[vcpu.0].params;
    let is_sized = keeps_budgets(inputs.pool(pool).policy.info)
        && !params.best_effort
        && !inputs.shares_budget(vcpu)
        && params.period.is_some_and(|period| !period.is_zero());
    is_sized.then_some(UnitIx::Vcpu(vcpu))
}
