//! What a server guarantees to those inside it: supply bound functions, and the smallest server for a task
//! set.
//!
//! Sources: Shin & Lee, *Periodic Resource Model for Compositional Real-Time Guarantees*, RTSS 2003;
//! Easwaran, Anand, Lee, *Compositional Analysis Framework Using EDP Resource Models*, RTSS 2007.

use crate::demand::Demand;
use crate::{edf, fixed_priority};

/// The least a server supplies from the moment at which those inside it begin to want time, as long as they
/// go on: nothing for `delay`, then `budget` without a break at the start of every `period`. In ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supply {
    /// Longest time without supply.
    pub delay: u64,
    /// Supplied in each period; above zero.
    pub budget: u64,
    /// Distance of supplies; at least the budget.
    pub period: u64,
}

impl Supply {
    /// A processor of one's own.
    pub const WHOLE: Supply = Supply { delay: 0, budget: 1, period: 1 };

    /// The periodic resource model: `budget` somewhere in every `period` (Shin & Lee 2003, s. 3).
    pub fn periodic(budget: u64, period: u64) -> Self {
        Supply::explicit_deadline(budget, period, period)
    }

    /// The explicit-deadline periodic resource: `budget` within `deadline` of the start of every `period`;
    /// the deadline is at least the budget and at most the period (Easwaran et al. 2007, s. 2.2).
    pub fn explicit_deadline(budget: u64, period: u64, deadline: u64) -> Self {
        // The earliest end of one supply to the latest begin of the next.
        Supply { delay: (period - budget) + (deadline - budget), budget, period }
    }

    /// The supply bound function: the least supplied in any interval of length `window`.
    pub fn bound(&self, window: u64) -> u64 {
        let Some(rest) = window.checked_sub(self.delay) else { return 0 };
        (rest / self.period).saturating_mul(self.budget).saturating_add(self.budget.min(rest % self.period))
    }

    /// The longest it can take until `work` has been supplied, the inverse of [`Supply::bound`].
    #[inline]
    pub fn time_for(&self, work: u64) -> u64 {
        if work == 0 {
            return 0;
        }
        if self.budget == self.period {
            return self.delay.saturating_add(work);
        }
        let periods = (work - 1) / self.budget;
        let last = work - periods * self.budget;
        self.delay.saturating_add(periods.saturating_mul(self.period)).saturating_add(last)
    }
}

/// A scheduler inside a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// Earliest deadline first.
    Edf,
    /// Preemptive fixed priorities in the order of the slice.
    FixedPriority,
}

/// Does the supply hold all deadlines of `tasks`? Sufficient, and necessary for a resource that may be as bad
/// as its bound (Shin & Lee 2003, theorems 1 and 2). Under fixed priorities deadlines are at most the
/// periods.
pub fn holds(tasks: &[Demand], inside: Inside, supply: &Supply) -> bool {
    match inside {
        Inside::Edf => edf::bounds(tasks, supply).is_ok(),
        Inside::FixedPriority => (0..tasks.len()).all(|i| {
            let limit = tasks[i].deadline.min(tasks[i].period);
            fixed_priority::response_in_supply(&tasks[i], &tasks[..i], supply, limit).is_some()
        }),
    }
}

/// Interface synthesis: the smallest budget, a multiple of `granularity` (above zero), with which the
/// periodic resource of this period holds all deadlines of `tasks` (Shin & Lee 2003, s. 5, by search instead
/// of their linear bound). `None` when not even the whole processor does.
pub fn smallest_budget(tasks: &[Demand], inside: Inside, period: u64, granularity: u64) -> Option<u64> {
    let enough = |budget: u64| holds(tasks, inside, &Supply::periodic(budget, period));
    // More budget never supplies less, so the answers are monotone.
    let (mut low, mut high) = (0, period / granularity);
    if high == 0 || !enough(high * granularity) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle * granularity) { high = middle } else { low = middle }
    }
    Some(high * granularity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_periodic_resource_supplies_nothing_for_twice_its_gap() {
        // 3 in every 5: the interval that begins after an early supply and before a late one.
        let supply = Supply::periodic(3, 5);
        let expected = [(4, 0), (5, 1), (7, 3), (9, 3), (10, 4), (12, 6), (14, 6)];
        assert_eq!(expected.map(|(t, _)| supply.bound(t)), expected.map(|(_, s)| s));
    }

    #[test]
    fn an_explicit_deadline_shortens_the_delay_by_what_it_is_shorter_than_the_period() {
        assert_eq!(Supply::explicit_deadline(3, 10, 10).delay, 14);
        assert_eq!(Supply::explicit_deadline(3, 10, 4).delay, 8);
    }

    proptest! {
        #[test]
        fn the_time_for_work_is_the_first_at_which_it_is_supplied(
            budget in 1u64..20, gap in 0u64..20, delay in 0u64..40, work in 1u64..200,
        ) {
            let supply = Supply { delay, budget, period: budget + gap };
            let time = supply.time_for(work);
            prop_assert!(supply.bound(time) >= work);
            prop_assert!(supply.bound(time - 1) < work);
        }

        #[test]
        fn the_smallest_budget_holds_and_the_next_smaller_one_does_not(
            tasks in prop::collection::vec((1u64..6, 20u64..60), 1..4), period in 3u64..15, fixed: bool,
        ) {
            let mut tasks: Vec<_> = tasks.into_iter().map(|(c, t)| Demand::implicit(c, t)).collect();
            tasks.sort_by_key(|t| t.period);
            let inside = if fixed { Inside::FixedPriority } else { Inside::Edf };
            if let Some(budget) = smallest_budget(&tasks, inside, period, 1) {
                prop_assert!(holds(&tasks, inside, &Supply::periodic(budget, period)));
                prop_assert!(budget == 1 || !holds(&tasks, inside, &Supply::periodic(budget - 1, period)));
            }
        }
    }
}
