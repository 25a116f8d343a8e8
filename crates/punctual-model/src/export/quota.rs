//! Budget and period as a quota of Linux's fair class.
//!
//! The kernel takes a quota of at least 1 ms in a period of 1 ms to 1 s, in microseconds
//! (`kernel/sched/core.c`: `min_cfs_quota_period`, `max_cfs_quota_period`); libvirt refuses the same values
//! (`src/conf/domain_conf.c`), systemd clamps them. What lies outside keeps its share, budget / period, over
//! another period.

use punctual_sched::Duration;

/// Least quota and least period, us.
const LEAST_US: u64 = 1_000;
/// Greatest period, us.
const PERIOD_MAX_US: u64 = 1_000_000;

/// Processor time per period of one thread or of a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    /// Processor time, us; with several threads more than the period.
    pub(super) quota_us: u64,
    /// Period, us.
    pub(super) period_us: u64,
    /// Is this exactly what was asked for?
    pub(super) exact: bool,
}

/// Rounds up to whole microseconds.
pub(super) fn us_up(time: Duration) -> u64 {
    time.as_ns().div_ceil(1_000)
}

/// Rounds down to whole microseconds.
pub(super) fn us_down(time: Duration) -> u64 {
    time.as_ns() / 1_000
}

/// The quota that gives no smaller a share than `budget` in every `period`, over the same period if that can
/// be.
///
/// Products of two durations of at most a year (31.5e12 us) and of a period of at most 1 s fit 128 bits many
/// times.
pub(super) fn quota(budget: Duration, period: Duration) -> Quota {
    let (b, p) = (u128::from(budget.as_ns()), u128::from(period.as_ns().max(1)));
    let (least_ns, most_ns) = (u128::from(LEAST_US) * 1_000, u128::from(PERIOD_MAX_US) * 1_000);
    // As many periods in one as the least quota and the least period need.
    let times = least_ns.div_ceil(b.max(1)).max(least_ns.div_ceil(p)).max(1);
    let period_ns = (p * times).min(most_ns) / 1_000 * 1_000;
    let quota_us = (b * period_ns).div_ceil(p * 1_000).max(u128::from(LEAST_US));
    let exact = period_ns == p && quota_us * 1_000 == b;
    Quota { quota_us: quota_us as u64, period_us: (period_ns / 1_000) as u64, exact }
}

/// A quota of the kernel's default period of 100 ms for a limit in percent of one processor.
pub(super) fn percent(percent: u32) -> Quota {
    Quota { quota_us: u64::from(percent) * 1_000, period_us: 100_000, exact: true }
}

impl Quota {
    /// How budget and period were changed, for a loss.
    pub(super) fn why(&self, budget: Duration, period: Duration) -> String {
        let Quota { quota_us, period_us, .. } = self;
        let gap_us = period_us - quota_us;
        let is_longer = u128::from(gap_us) * 1_000 > (period - budget).as_ns().into();
        let longer = is_longer.then(|| {
            format!(
                "; with its quota used up a unit waits for {gap_us} us, longer than {} before, so deadlines \
                 that were guaranteed may no longer be",
                period - budget
            )
        });
        let longer = longer.unwrap_or_default();
        format!(
            "{budget} in every {period} is written as {quota_us} us in every {period_us} us: Linux takes \
             whole microseconds, quotas from 1 ms and periods from 1 ms to 1 s{longer}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(budget_ns: u64, period_ns: u64) -> (u64, u64, bool) {
        let q = quota(Duration::from_ns(budget_ns), Duration::from_ns(period_ns));
        (q.quota_us, q.period_us, q.exact)
    }

    #[test]
    fn what_linux_takes_is_passed_on_unchanged() {
        assert_eq!(of(2_000_000, 10_000_000), (2_000, 10_000, true));
        assert_eq!(of(1_000_000, 1_000_000), (1_000, 1_000, true));
        assert_eq!(of(1_000_000_000, 1_000_000_000), (1_000_000, 1_000_000, true));
    }

    #[test]
    fn short_budgets_and_periods_are_taken_several_at_a_time() {
        assert_eq!(of(500_000, 5_000_000), (1_000, 10_000, false));
        assert_eq!(of(300_000, 400_000), (1_200, 1_600, false));
    }

    #[test]
    fn long_periods_are_cut_to_a_second_and_tiny_shares_are_raised() {
        assert_eq!(of(500_000_000, 2_000_000_000), (250_000, 1_000_000, false));
        assert_eq!(of(1_000, 1_000_000_000), (1_000, 1_000_000, false));
    }

    #[test]
    fn fractions_of_a_microsecond_are_rounded_in_favour_of_the_unit() {
        assert_eq!(of(1_500_500, 10_000_900), (1_501, 10_000, false));
    }

    proptest! {
        #[test]
        fn a_quota_is_valid_and_gives_no_smaller_a_share(
            budget_ns in 1u64..2_000_000_000, more_ns in 0u64..40_000_000_000,
        ) {
            let period_ns = (budget_ns + more_ns).max(1_000);
            let (quota_us, period_us, exact) = of(budget_ns, period_ns);
            prop_assert!(quota_us >= 1_000 && quota_us <= period_us);
            prop_assert!((1_000..=1_000_000).contains(&period_us));
            let (given, asked) =
                (u128::from(quota_us) * u128::from(period_ns), u128::from(budget_ns) * u128::from(period_us));
            prop_assert!(given >= asked);
            prop_assert_eq!(exact, (quota_us * 1_000, period_us * 1_000) == (budget_ns, period_ns));
        }
    }
}
