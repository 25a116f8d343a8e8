//! What a server guarantees to those inside it: supply bound functions.
//!
//! Sources: Shin & Lee, *Periodic Resource Model for Compositional Real-Time Guarantees*, RTSS 2003;
//! Easwaran, Anand, Lee, *Compositional Analysis Framework Using EDP Resource Models*, RTSS 2007.

use punctual_sched::Duration;

use crate::demand::NANOSECOND;

/// The least a server supplies from the moment at which those inside it begin to want time, as long as they
/// go on: nothing for `delay`, then `budget` without a break at the start of every `period`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supply {
    pub delay: Duration,
    /// Supplied in each period; above zero.
    pub budget: Duration,
    /// Distance of supplies; at least the budget.
    pub period: Duration,
}

impl Supply {
    /// A processor of one's own.
    pub const WHOLE: Supply = Supply { delay: Duration::ZERO, budget: NANOSECOND, period: NANOSECOND };

    /// The periodic resource model: `budget` somewhere in every `period` (Shin & Lee 2003, s. 3).
    pub fn periodic(budget: Duration, period: Duration) -> Self {
        Supply::explicit_deadline(budget, period, period)
    }

    /// The explicit-deadline periodic resource: `budget` within `deadline` of the start of every `period`;
    /// the deadline is at least the budget and at most the period (Easwaran et al. 2007, s. 2.2).
    pub fn explicit_deadline(budget: Duration, period: Duration, deadline: Duration) -> Self {
        debug_assert!(!budget.is_zero() && budget <= deadline && deadline <= period);
        // The earliest end of one supply to the latest start of the next.
        Supply { delay: (period - budget) + (deadline - budget), budget, period }
    }

    /// The supply bound function: the least supplied in any interval of length `window`.
    pub fn bound(&self, window: Duration) -> Duration {
        debug_assert!(!self.budget.is_zero() && self.budget <= self.period);
        let Some(rest) = window.checked_sub(self.delay) else { return Duration::ZERO };
        self.budget * rest.div_floor(self.period) + self.budget.min(rest % self.period)
    }

    /// The longest it can take until `work` has been supplied, the inverse of [`Supply::bound`].
    #[inline]
    pub fn time_for(&self, work: Duration) -> Duration {
        debug_assert!(!self.budget.is_zero() && self.budget <= self.period);
        if work.is_zero() {
            return Duration::ZERO;
        }
        if self.budget == self.period {
            return self.delay + work;
        }
        let periods = work.div_ceil(self.budget) - 1;
        let last = work - self.budget * periods;
        self.delay + self.period * periods + last
    }
}

/// Of how many periods together a server's supply is looked at where others may take a budget in one of them.
const TOGETHER: [u64; 4] = [2, 3, 4, 6];

/// A server with a full budget at the start of each of its periods, of which others may take any part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unsure {
    pub(crate) budget: Duration,
    pub(crate) period: Duration,
    /// What decisions take of the budget in a period.
    pub(crate) decisions: Duration,
    /// Is budget lost when there is no work?
    pub(crate) is_dropped: bool,
}

impl Unsure {
    /// What the server supplies over several periods together; `taken`: the most that others take in so many
    /// periods one after the other, while the server has work and budget.
    pub(crate) fn supplies(self, taken: impl Fn(u64) -> Duration) -> Vec<Supply> {
        TOGETHER.iter().filter_map(|count| self.supply(*count, &taken)).collect()
    }

    /// What the server supplies in each `count` periods; `None` if that may be nothing.
    ///
    /// Others that save up their budgets may take a whole period, but not one after the other. Say that the
    /// server always has work, and that others take I of one of its periods while it has budget. It does not
    /// execute for max(P - B, I) of that period at most: once its budget is used up it has executed for B,
    /// otherwise it waits for others only. Let q be the number of those of the `count` periods in which I is
    /// more than P - B. In these I is at most q times what others take in one period, and at most what they
    /// take in all `count`. So the time lost is at most `count` (P - B), and for some q that much less q (P -
    /// B) more.
    ///
    /// In the rest of the period in which the server gets work, it loses at most max(P - B, I) for the same
    /// reason, or all of it if its budget is lost without work. Then `count` periods begin again and again,
    /// and of each the server may lose its part first.
    fn supply(self, count: u64, taken: impl Fn(u64) -> Duration) -> Option<Supply> {
        let Unsure { budget, period, decisions, is_dropped } = self;
        let gap = period - budget;
        let (in_one, in_all) = (taken(1).min(period), taken(count).min(period * count));
        let more = (1..=count).map(|q| (in_one * q).min(in_all).saturating_sub(gap * q)).max()?;
        let sure = (budget * count).checked_sub(more + decisions * count)?;
        let first = if is_dropped { period } else { gap.max(in_one) };
        let period = period * count;
        (!sure.is_zero()).then(|| Supply { delay: first + decisions + (period - sure), budget: sure, period })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Others may take 12 of 10, but no more than 16 of 20: of two periods at least 4 are left.
    #[test]
    fn what_others_may_take_in_one_period_they_cannot_take_in_the_next() {
        let taken = |periods: u64| ns(8 + 4 * periods);
        let server = Unsure { budget: ns(3), period: ns(10), decisions: Duration::ZERO, is_dropped: false };
        let supply = server.supply(2, taken).expect("more than nothing");
        // 10 and 6 of 14 that would be left to others: 3 less in the first, none in the second.
        assert_eq!(supply, Supply { delay: ns(10 + 17), budget: ns(3), period: ns(20) });
        assert_eq!(server.supply(1, taken), None);
    }

    fn ns(n: u64) -> Duration {
        Duration::from_ns(n)
    }

    #[test]
    fn a_periodic_resource_supplies_nothing_for_twice_its_gap() {
        // 3 in every 5: the interval that begins after an early supply and before a late one.
        let supply = Supply::periodic(ns(3), ns(5));
        let expected = [(4, 0), (5, 1), (7, 3), (9, 3), (10, 4), (12, 6), (14, 6)];
        assert_eq!(expected.map(|(t, _)| supply.bound(ns(t))), expected.map(|(_, s)| ns(s)));
    }

    #[test]
    fn an_explicit_deadline_shortens_the_delay_by_what_it_is_shorter_than_the_period() {
        assert_eq!(Supply::explicit_deadline(ns(3), ns(10), ns(10)).delay, ns(14));
        assert_eq!(Supply::explicit_deadline(ns(3), ns(10), ns(4)).delay, ns(8));
    }

    proptest! {
        #[test]
        fn the_time_for_work_is_the_first_at_which_it_is_supplied(
            budget in 1u64..20, gap in 0u64..20, delay in 0u64..40, work in 1u64..200,
        ) {
            let supply = Supply { delay: ns(delay), budget: ns(budget), period: ns(budget + gap) };
            let time = supply.time_for(ns(work));
            prop_assert!(supply.bound(time) >= ns(work));
            prop_assert!(supply.bound(time - NANOSECOND) < ns(work));
        }
    }
}
