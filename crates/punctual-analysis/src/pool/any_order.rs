//! Tasks that cannot use up the budgets of their vCPUs, whatever the order in which these are served.
//!
//! This is the argument of `guest/light.rs` for servers that keep their budget, in any order: under earliest
//! deadline first, or where vCPUs of a VM take turns. One processor serves them, all vCPUs of their VMs
//! included, and scheduling is free. The bounds hold only as long as the tasks of all these guests keep to
//! their costs: budgets alone do not protect a guest here. So they are used where no other test has one.
//!
//! # The proof
//!
//! Call the servers whose tasks never wait for budget *light*. While a job of a light server is there, the
//! processor executes jobs of light servers or, within their budgets, other servers. Let t0 be the last
//! instant before the job's release at which no such job was there. In a window of length w from t0 on, jobs
//! of light servers ask for the request bounds at w, and the others execute for at most a saved budget and
//! then one in every period. So the job is done within the least L for which these are at most L.
//!
//! Say that a light server has used up its budget, with work left, for the first time at an instant of its
//! period [s, s + P). Until then each job took at most L, so those that executed since s were released after
//! s - L: at most ceil((P + L) / T) jobs of a task. If they cost no more than the budget, it is not used up.

use punctual_model::guarantees::Dominant;
use punctual_model::index::{PoolIx, TaskIx, VcpuIx};
use punctual_sched::registry::{SchedulabilityTest, ServerKind};
use punctual_sched::{Duration, sedf, servers};

use super::decisions::decisions;
use super::groups::Group;
use super::reserved::Reserved;
use crate::answer::Test;
use crate::demand::{Demand, NANOSECOND, fixed_point, requested};
use crate::findings::{Findings, greatest};
use crate::inputs::{Inputs, UnitIx};

/// A server with its tasks.
struct Server {
    reserved: Reserved,
    /// The first vCPU of its domain, or the task that it is.
    first: UnitIx,
    /// `None` where something in it may ask for any amount.
    tasks: Option<Vec<(TaskIx, Demand)>>,
}

impl Server {
    fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.tasks.iter().flatten().map(|(_, demand)| demand)
    }

    /// What delays others that are served after it.
    fn asked(&self) -> Vec<Demand> {
        match &self.tasks {
            Some(tasks) => tasks.iter().map(|(_, demand)| *demand).collect(),
            None => {
                let Reserved { budget, period } = self.reserved;
                vec![Demand::implicit(budget, period).late_by(period - budget)]
            }
        }
    }

    /// May jobs that take up to `longest` use up the budget?
    fn may_be_used_up(&self, longest: Duration) -> bool {
        let Reserved { budget, period } = self.reserved;
        let cost: Duration = self.demands().map(|of| of.cost * (period + longest).div_ceil(of.period)).sum();
        cost > budget
    }
}

/// Guarantees of tasks that cannot use up the budgets of their vCPUs; nothing of others.
pub(super) fn light(inputs: Inputs<'_>, pool: PoolIx, group: &Group) -> Findings {
    let mut found = Findings::default();
    if !is_covered(inputs, pool, group) {
        return found;
    }
    let info = inputs.pool(pool).policy.info;
    let server = |unit: &UnitIx| Server {
        reserved: Reserved::of(info, inputs.params(*unit)),
        first: match unit {
            UnitIx::Vcpu(vcpu) => UnitIx::Vcpu(VcpuIx(inputs.domain_of(*vcpu).vcpus.start)),
            UnitIx::Task(_) => *unit,
        },
        tasks: tasks_below(inputs, *unit).filter(|_| is_whole(inputs, pool, group, *unit)),
    };
    let mut servers: Vec<Server> = group.units.iter().map(server).collect();
    // Each round makes at least one of them one that is limited by its budget.
    loop {
        let deadlines = servers.iter().flat_map(Server::demands).map(|of| of.deadline);
        let Some(limit) = deadlines.max() else { return found };
        let asked: Vec<Demand> = servers.iter().flat_map(Server::asked).collect();
        let Some(longest) = fixed_point(NANOSECOND, limit, |w| requested(&asked, w)) else { return found };
        let heavy = servers.iter().filter(|of| of.tasks.is_some() && of.may_be_used_up(longest));
        let heavy: Vec<UnitIx> = heavy.map(|of| of.first).collect();
        if !heavy.is_empty() {
            // A guest may leave a job on any of its vCPUs.
            servers.iter_mut().filter(|of| heavy.contains(&of.first)).for_each(|of| of.tasks = None);
            continue;
        }
        for (task, demand) in servers.iter().flat_map(|of| of.tasks.iter().flatten()) {
            let others = longest.saturating_sub(demand.cost);
            let parts = [(Dominant::OwnCost, demand.cost), (Dominant::OtherVcpus, others)];
            found.bounded(inputs, *task, longest, greatest(&parts), Test::LightProcessor);
        }
        return found;
    }
}

/// Does the argument hold for the pool's policy?
fn is_covered(inputs: Inputs<'_>, pool: PoolIx, group: &Group) -> bool {
    let policy = &inputs.pool(pool).policy;
    let options = &policy.options;
    let keeps_budget = match policy.info.test {
        SchedulabilityTest::EdfServers => {
            policy.info.option(sedf::UNBLOCK.name).is_none() || options.word(&sedf::UNBLOCK) != sedf::XEN
        }
        SchedulabilityTest::FixedPriorityServers(ServerKind::Deferrable) => {
            options.word(&servers::ACCOUNTING) != servers::IN_QUANTA
        }
        _ => false,
    };
    let is_alone = inputs.host.flows.is_empty() && inputs.host.chains.is_empty();
    keeps_budget && is_alone && group.processors == 1 && decisions(inputs, pool, 1).free()
}

/// Are all vCPUs of the unit's domain served here? Otherwise its tasks may wait for another processor.
fn is_whole(inputs: Inputs<'_>, pool: PoolIx, group: &Group, unit: UnitIx) -> bool {
    let UnitIx::Vcpu(vcpu) = unit else { return true };
    if inputs.shares_budget(vcpu) {
        return inputs.pool(pool).processors.len() == 1;
    }
    let mut all = inputs.domain_of(vcpu).vcpus.clone().map(VcpuIx);
    all.all(|vcpu| group.units.contains(&UnitIx::Vcpu(vcpu)))
}

/// The tasks below a unit; `None` where there is one that may ask for any amount or wait for a resource, or a
/// guest that may leave work undone.
fn tasks_below(inputs: Inputs<'_>, unit: UnitIx) -> Option<Vec<(TaskIx, Demand)>> {
    match unit {
        UnitIx::Task(task) => {
            let is_free = inputs.host.tasks[task.0].sections.is_empty();
            inputs.demand(task).filter(|_| is_free).map(|demand| vec![(task, demand)])
        }
        UnitIx::Vcpu(vcpu) => {
            let guest = inputs.domain_of(vcpu).guest.info;
            if !matches!(guest.test, SchedulabilityTest::FixedPriority | SchedulabilityTest::Edf) {
                return None;
            }
            let below = inputs.units_beside(vcpu).map(|unit| tasks_below(inputs, unit));
            Some(below.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
    }
}
