//! How many decisions the units of a pool cause, and what they take.

use punctual_sched::Duration;

use crate::inputs::{Inputs, KernelWork, UnitIx};
use crate::overhead::Decisions;

/// What a decision that changes what runs takes on a pool of so many processors.
fn change_cost(inputs: Inputs<'_>, processors: usize) -> Duration {
    let costs = &inputs.host.overheads;
    let several =
        if processors > 1 { costs.migration + costs.lock * processors as u64 } else { Duration::ZERO };
    costs.decision + costs.context_switch + several
}

/// Decisions on so many processors that share a queue: what is under way when an interval begins cannot be
/// interrupted, and ends with a decision.
pub(super) fn decisions(inputs: Inputs<'_>, processors: usize) -> Decisions {
    Decisions::new(change_cost(inputs, processors), 2 * processors as u64)
}

/// Adds the decisions that `unit` causes by waking and sleeping, at most `chain` for each. False when they
/// cannot be bounded: a guest's scheduler below it acts on timers of its own, or packets wake it at any rate.
pub(super) fn add_wakes(inputs: Inputs<'_>, unit: UnitIx, chain: u64, costs: &mut Decisions) -> bool {
    match unit {
        UnitIx::Task(task) => {
            let demand = inputs.demand(task);
            match demand {
                Some(demand) => costs.every_late(demand.period, demand.jitter, 2 * chain),
                None => costs.also(2 * chain),
            }
            demand.is_some() || !inputs.is_served(task)
        }
        UnitIx::Vcpu(vcpu) => {
            let domain = inputs.domain_of(vcpu);
            // Guests of several vCPUs push and pull tasks between them.
            let chain = if domain.vcpus.len() > 1 { 2 * chain } else { chain };
            for KernelWork { demand, wakes } in inputs.kernel(vcpu).unwrap_or_default() {
                costs.every_late(demand.period, demand.jitter, wakes.saturating_mul(2 * chain));
            }
            !domain.guest.info.has_timers
                && inputs.units_beside(vcpu).all(|unit| add_wakes(inputs, unit, chain, costs))
        }
    }
}
