//! Interface synthesis: the smallest server for a task set.
//!
//! Source: Shin & Lee, *Periodic Resource Model for Compositional Real-Time Guarantees*, RTSS 2003.

use punctual_sched::Duration;

use crate::demand::Demand;
use crate::supply::Supply;
use crate::{edf, fixed_priority};

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
        Inside::Edf => edf::bounds(tasks, &[], supply).is_ok(),
        Inside::FixedPriority => (0..tasks.len()).all(|i| {
            let limit = tasks[i].deadline.min(tasks[i].period);
            fixed_priority::response_in_supply(&tasks[i], &tasks[..i], supply, limit).is_some()
        }),
    }
}

/// The smallest budget, a multiple of `granularity` (above zero), with which the periodic resource of this
/// period holds all deadlines of `tasks` (Shin & Lee 2003, s. 5, by search instead of their linear bound).
/// `None` when not even the whole processor does.
pub fn smallest_budget(
    tasks: &[Demand],
    inside: Inside,
    period: Duration,
    granularity: Duration,
) -> Option<Duration> {
    let enough = |granules: u64| holds(tasks, inside, &Supply::periodic(granularity * granules, period));
    // More budget never supplies less, so the answers are monotone.
    let (mut low, mut high) = (0, period.div_floor(granularity));
    if high == 0 || !enough(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(granularity * high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::NANOSECOND;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_budget_holds_and_the_next_smaller_one_does_not(
            tasks in prop::collection::vec((1u64..6, 20u64..60), 1..4), period in 3u64..15, fixed: bool,
        ) {
            let ns = Duration::from_ns;
            let demand = |(cost, period)| Demand::implicit(ns(cost), ns(period));
            let mut tasks: Vec<_> = tasks.into_iter().map(demand).collect();
            tasks.sort_by_key(|t| t.period);
            let inside = if fixed { Inside::FixedPriority } else { Inside::Edf };
            let with = |budget| holds(&tasks, inside, &Supply::periodic(budget, ns(period)));
            if let Some(budget) = smallest_budget(&tasks, inside, ns(period), NANOSECOND) {
                prop_assert!(with(budget));
                prop_assert!(budget == NANOSECOND || !with(budget - NANOSECOND));
            }
        }
    }
}
