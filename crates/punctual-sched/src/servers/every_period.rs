//! Replenishment at every period: what deferrable, periodic and polling server share.

use super::{Budget, Rule, WithoutWork};
use crate::time::{Duration, Instant};

/// A full budget at `k` x period after the unit's insertion (k = 0, 1, ...); what was left is lost.
#[derive(Clone, Debug)]
pub struct EveryPeriod {
    without_work: WithoutWork,
}

impl EveryPeriod {
    /// The rule for units whose budget, while they have no work, fares as `without_work` says.
    pub fn new(without_work: WithoutWork) -> Self {
        EveryPeriod { without_work }
    }
}

impl Rule for EveryPeriod {
    #[inline]
    fn without_work(&self) -> WithoutWork {
        self.without_work
    }

    fn is_periodic(&self) -> bool {
        true
    }

    fn inserted(&mut self, now: Instant, _unit: usize, budget: &mut Budget) -> Option<Instant> {
        if self.without_work == WithoutWork::Discard {
            // The unit polls for the first time right now: the replenishment k = 0 is an event like all
            // others, so that it keeps the budget only if it has work by then.
            return Some(now);
        }
        budget.left = budget.budget;
        Some(now + budget.period)
    }

    fn adjusted(
        &mut self,
        _now: Instant,
        _unit: usize,
        _old_budget: Duration,
        _budget: &mut Budget,
        next: Option<Instant>,
    ) -> Option<Instant> {
        next
    }

    fn replenish(&mut self, at: Instant, _unit: usize, budget: &mut Budget) -> Option<Instant> {
        budget.left = budget.budget;
        budget.max = budget.budget;
        Some(at + budget.period)
    }
}
