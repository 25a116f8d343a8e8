//! How many decisions the units of a pool cause, and what they take.

use punctual_model::host::Pool;
use punctual_model::index::PoolIx;
use punctual_sched::{Duration, servers};

use crate::inputs::{Inputs, KernelWork, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;

/// The cost of a decision that switches units, on this many processors of the pool that share units. All
/// processors of the pool share its queue, if there is one, and so its lock.
fn change_cost(inputs: Inputs<'_>, pool: PoolIx, processors: usize) -> Duration {
    let costs = &inputs.host.overheads;
    let Pool { policy, processors: all, .. } = inputs.pool(pool);
    let migration = if processors > 1 { costs.migration } else { Duration::ZERO };
    let has_lock = policy.info.shared_queue && all.len() > 1;
    let lock = if has_lock { costs.lock * all.len() as u64 } else { Duration::ZERO };
    // A unit that wakes may meet an idle processor in the middle of a decision.
    let idle = if policy.options.word(&servers::IDLE) == servers::IN_QUANTA { 2 } else { 1 };
    costs.decision * idle + costs.context_switch + migration + lock
}

/// Decisions on this many processors that share units: what is in progress when an interval begins cannot
/// be interrupted, and ends with a decision.
pub(super) fn decisions(inputs: Inputs<'_>, pool: PoolIx, processors: usize) -> Decisions {
    Decisions::new(change_cost(inputs, pool, processors), 2 * processors as u64)
}

/// Decisions that a server on one processor pays for while it always has work: at first it begins to run, or
/// is about to.
pub(super) fn paid_decisions(inputs: Inputs<'_>, pool: PoolIx) -> Decisions {
    Decisions::new(change_cost(inputs, pool, 1), 1)
}

/// Adds the decisions that a server pays for because `unit`, as urgent or more, begins to run: one for each
/// time that it wakes. The unit that runs next pays for the decision that stops it, as the cost of its own
/// start. The reason, if their number cannot be bounded.
pub(super) fn add_starts(inputs: Inputs<'_>, unit: UnitIx, costs: &mut Decisions) -> Option<Reason> {
    let is_plain = match unit {
        UnitIx::Task(_) => true,
        UnitIx::Vcpu(vcpu) => {
            let has_nested = inputs.units_beside(vcpu).any(|unit| matches!(unit, UnitIx::Vcpu(_)));
            inputs.domain_of(vcpu).vcpus.len() == 1 && !has_nested
        }
    };
    // Of several vCPUs one may wake when a task on another one ends.
    add_events(inputs, unit, if is_plain { 1 } else { 2 }, costs)
}

/// Adds the decisions that `unit` causes by waking and sleeping, at most `chain` for each. The reason, if
/// their number cannot be bounded.
pub(super) fn add_wakes(
    inputs: Inputs<'_>,
    unit: UnitIx,
    chain: u64,
    costs: &mut Decisions,
) -> Option<Reason> {
    add_events(inputs, unit, 2 * chain, costs)
}

/// `each`: for every time that something below wakes.
fn add_events(inputs: Inputs<'_>, unit: UnitIx, each: u64, costs: &mut Decisions) -> Option<Reason> {
    match unit {
        UnitIx::Task(task) => {
            let demand = inputs.demand(task);
            match demand {
                Some(demand) => costs.every_late(demand.period, demand.jitter, each),
                None => costs.also(each),
            }
            (demand.is_none() && inputs.is_served(task)).then_some(Reason::WokenByPackets(task))
        }
        UnitIx::Vcpu(vcpu) => {
            if inputs.shares_budget(vcpu) {
                return Some(Reason::SharedBudget);
            }
            let domain = inputs.domain_of(vcpu);
            // Guests of several vCPUs push and pull tasks between them.
            let each = if domain.vcpus.len() > 1 { 2 * each } else { each };
            for KernelWork { demand, wakes } in inputs.kernel(vcpu).unwrap_or_default() {
                costs.every_late(demand.period, demand.jitter, wakes.saturating_mul(each));
            }
            if domain.guest.info.has_timers {
                return Some(Reason::GuestTimers(vcpu));
            }
            inputs.units_beside(vcpu).find_map(|unit| add_events(inputs, unit, each, costs))
        }
    }
}
