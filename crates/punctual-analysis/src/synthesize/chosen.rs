//! What was found.

use punctual_model::Host;
use punctual_sched::registry::{Budgets, PolicyInfo};
use punctual_sched::{Duration, UnitParams};

use crate::inputs::{Index, Inputs, UnitIx, name, only_processor, params};

/// What was found for one unit of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// A vCPU, or a task that the pool schedules itself.
    pub name: String,
    pub pool: String,
    /// The only processor of the machine that it runs on, if there is only one.
    pub processor: Option<usize>,
    /// Priority, under policies that have them; a smaller number is more urgent.
    pub priority: Option<u32>,
    pub budget: Duration,
    pub period: Duration,
    pub budget_before: Option<Duration>,
    pub period_before: Option<Duration>,
}

impl Chosen {
    /// Budget / period in millionths, rounded up.
    pub fn bandwidth_ppm(&self) -> u64 {
        share(self.budget, self.period, 1_000_000)
    }
}

/// `budget / period` in parts of `unit`, rounded up.
pub(super) fn share(budget: Duration, period: Duration, unit: u64) -> u64 {
    let scaled = u128::from(budget.as_ns()) * u128::from(unit);
    u64::try_from(scaled.div_ceil(u128::from(period.as_ns().max(1)))).unwrap_or(u64::MAX)
}

pub(super) fn keeps_budgets(policy: &PolicyInfo) -> bool {
    policy.budgets != Budgets::None
}

pub(super) fn has_priorities(policy: &PolicyInfo) -> bool {
    policy.reads(UnitParams::PRIORITY)
}

/// What differs: one entry per unit with a budget, in the host's order.
pub(super) fn chosen(before: &Host, after: &Host) -> Vec<Chosen> {
    let index = Index::new(after);
    let inputs = Inputs::new(after, &index);
    let mut all = Vec::new();
    for pool in inputs.pools() {
        let in_pool = inputs.pool(pool);
        if !keeps_budgets(in_pool.policy.info) {
            continue;
        }
        let of_unit = |unit: UnitIx| {
            let (old, new) = (params(before, unit), inputs.params(unit));
            let only = only_processor(new.affinity.as_ref(), in_pool.processors.len());
            Chosen {
                name: name(after, unit).to_owned(),
                pool: in_pool.name.clone(),
                processor: only.map(|p| in_pool.processors[p]),
                priority: new.priority.filter(|_| has_priorities(in_pool.policy.info)),
                budget: new.budget.unwrap_or_default(),
                period: new.period.unwrap_or(Duration::from_ns(1)),
                budget_before: old.budget,
                period_before: old.period,
            }
        };
        all.extend(index.in_pool(pool).all().map(of_unit));
    }
    all
}
