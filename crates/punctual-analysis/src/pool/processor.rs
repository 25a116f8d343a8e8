//! One processor without budgets.

use std::collections::BTreeMap;

use punctual_model::index::{PoolIx, TaskIx, VcpuIx};

use super::decisions::{add_wakes, decisions};
use crate::answer::Test;
use crate::demand::NANOSECOND;
use crate::findings::Findings;
use crate::guest;
use crate::inputs::{Inputs, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::several_vcpus::VcpuSupply;

/// What a vCPU gives to a guest of several that has a processor to itself.
fn alone(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Findings {
    let mut found = Findings::default();
    if let [unit @ UnitIx::Vcpu(vcpu)] = units
        && inputs.domain_of(*vcpu).vcpus.len() > 1
    {
        let mut costs = decisions(inputs, pool, 1);
        let unbounded = add_wakes(inputs, *unit, 1, &mut costs).filter(|_| !costs.free());
        // Decisions in any time as long as the longest period of its tasks.
        let periods = inputs.tasks_beside(*vcpu).filter_map(|task| inputs.demand(task)).map(|of| of.period);
        let period = periods.max().unwrap_or(NANOSECOND);
        let supply = VcpuSupply::alone(costs.within(period), period).filter(|_| unbounded.is_none());
        found.supplies.extend(supply.map(|supply| (*vcpu, supply)));
    }
    found
}

pub(super) fn fixed_priority(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Findings {
    ranked(inputs, pool, units).and(alone(inputs, pool, units))
}

fn ranked(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Findings {
    let mut costs = decisions(inputs, pool, 1);
    let unbounded = units.iter().find_map(|unit| add_wakes(inputs, *unit, 1, &mut costs));
    let unknown =
        |reason| Findings::unknown_below(inputs, units.iter().copied(), reason, Test::ResponseTimes);
    let unbounded = unbounded.filter(|_| !costs.free());
    match guest::ranked(inputs, units).and_then(|tasks| unbounded.map_or(Ok(tasks), Err)) {
        Ok(tasks) => {
            guest::ranked_processor(inputs, &tasks, &costs, &decisions_beside_kernels(inputs, pool, units))
        }
        Err(reason) => unknown(reason),
    }
}

/// By vCPU with kernel work: what decisions take while its kernel is busy. Its vCPU neither wakes nor sleeps
/// then.
fn decisions_beside_kernels(
    inputs: Inputs<'_>,
    pool: PoolIx,
    units: &[UnitIx],
) -> BTreeMap<VcpuIx, Decisions> {
    let with_kernel = units.iter().filter_map(|unit| match unit {
        UnitIx::Vcpu(vcpu) => inputs.kernel(*vcpu).map(|_| *vcpu),
        UnitIx::Task(_) => None,
    });
    let beside = |vcpu: VcpuIx| {
        let mut costs = decisions(inputs, pool, 1);
        // It is under way when an interval begins, and ends.
        costs.also(2);
        for unit in units.iter().filter(|unit| **unit != UnitIx::Vcpu(vcpu)) {
            add_wakes(inputs, *unit, 1, &mut costs);
        }
        (vcpu, costs)
    };
    with_kernel.map(beside).collect()
}

pub(super) fn edf(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Findings {
    match tasks_only(units) {
        Some(tasks) => guest::edf_processor(inputs, &tasks, &decisions(inputs, pool, 1)),
        None => {
            let units = units.iter().copied();
            let unknown =
                Findings::unknown_below(inputs, units.clone(), Reason::EdfVcpus, Test::ProcessorDemand);
            unknown.and(alone(inputs, pool, &units.collect::<Vec<_>>()))
        }
    }
}

/// The tasks, if there is nothing else.
pub(super) fn tasks_only(units: &[UnitIx]) -> Option<Vec<TaskIx>> {
    let task = |unit: &UnitIx| match unit {
        UnitIx::Task(task) => Some(*task),
        UnitIx::Vcpu(_) => None,
    };
    units.iter().map(task).collect()
}
