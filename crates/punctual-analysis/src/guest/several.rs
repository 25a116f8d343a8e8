//! Tasks that may move between the vCPUs of their guest.

use punctual_model::guarantees::Dominant;
use punctual_model::index::{DomainIx, TaskIx, VcpuIx};
use punctual_sched::registry::SchedulabilityTest;

use crate::answer::{Answer, Test};
use crate::findings::{BudgetAnswer, Findings, greatest};
use crate::inputs::{Inputs, UnitIx, may_run_on};
use crate::reason::Reason;
use crate::several_vcpus::{GuestTask, Order, Outcome, TASKS_MAX, VcpuSupply, response_times};

/// Answers for the tasks of a domain of several vCPUs whose tasks may run on all of these, given what its
/// vCPUs supply; none where the tests of single vCPUs answer, or say why they cannot.
pub(crate) fn several(inputs: Inputs<'_>, domain: DomainIx, found: &Findings) -> Findings {
    let vcpus = inputs.host.domains[domain.0].vcpus.clone();
    if vcpus.len() < 2 || inputs.host.shares_budget(domain) {
        return Findings::default();
    }
    let units: Vec<UnitIx> = inputs.units_beside(VcpuIx(vcpus.start)).collect();
    if !units.iter().all(|unit| is_everywhere(inputs, *unit, vcpus.len())) {
        return Findings::default();
    }
    let test = Test::SeveralVcpus;
    let tasks: Vec<TaskIx> = units.iter().filter_map(|unit| task(*unit)).collect();
    let unknown = |reason| Findings::all_unknown(inputs, tasks.iter().copied(), reason, test);
    let order = match inputs.host.domains[domain.0].guest.info.test {
        SchedulabilityTest::FixedPriority => Order::FixedPriority,
        SchedulabilityTest::Edf => Order::Edf,
        _ => return Findings::default(),
    };
    let supply = |vcpu: usize| found.supplies.get(&VcpuIx(vcpu)).copied();
    let Some(supplies) = vcpus.clone().map(supply).collect::<Option<Vec<VcpuSupply>>>() else {
        // Where no test was made, its reason is that of the tasks.
        let is_short =
            |of: &BudgetAnswer| !of.is_delivered() && !matches!(of.answer, Answer::Unknown(Reason::Turns));
        let short = |vcpu: &VcpuIx| found.budgets.get(&UnitIx::Vcpu(*vcpu)).is_some_and(is_short);
        let short = vcpus.map(VcpuIx).find(short);
        return short.map_or_else(Findings::default, |vcpu| unknown(Reason::UnsureVcpu(vcpu)));
    };
    if tasks.len() < units.len() {
        return Findings::default();
    }
    if tasks.iter().any(|task| inputs.is_served(*task)) {
        return unknown(Reason::BesideServed);
    }
    if vcpus.map(VcpuIx).any(|vcpu| inputs.kernel(vcpu).is_some()) {
        return unknown(Reason::BesidePackets);
    }
    if tasks.len() > TASKS_MAX {
        return unknown(Reason::TooManyTasks(TASKS_MAX));
    }
    answers(inputs, order, &tasks, &supplies)
}

fn answers(inputs: Inputs<'_>, order: Order, tasks: &[TaskIx], supplies: &[VcpuSupply]) -> Findings {
    let guest: Vec<GuestTask> = tasks
        .iter()
        .map(|task| GuestTask {
            priority: inputs.priority(UnitIx::Task(*task)),
            demand: inputs.demand(*task),
        })
        .collect();
    let outcomes = response_times(order, &guest, supplies);
    let mut found = Findings::default();
    for ((task, of), outcome) in tasks.iter().zip(&guest).zip(outcomes) {
        let Some(demand) = of.demand else { continue };
        match outcome {
            Outcome::Bounded { bound, still } => {
                let others = bound.saturating_sub(demand.cost + still);
                let parts = [
                    (Dominant::OwnCost, demand.cost),
                    (Dominant::OtherTasks, others),
                    (Dominant::Supply, still),
                ];
                found.bounded(inputs, *task, bound, greatest(&parts), Test::SeveralVcpus);
            }
            Outcome::Unbounded { lost } => {
                let reason = Reason::StoppedVcpus { lost, cost: demand.cost, period: demand.period };
                found.unknown(inputs, *task, reason, Test::SeveralVcpus);
            }
            Outcome::None => {}
        }
    }
    found
}

fn task(unit: UnitIx) -> Option<TaskIx> {
    match unit {
        UnitIx::Task(task) => Some(task),
        UnitIx::Vcpu(_) => None,
    }
}

fn is_everywhere(inputs: Inputs<'_>, unit: UnitIx, vcpus: usize) -> bool {
    let affinity = inputs.params(unit).affinity.as_ref();
    (0..vcpus).all(|vcpu| may_run_on(affinity, vcpu))
}
