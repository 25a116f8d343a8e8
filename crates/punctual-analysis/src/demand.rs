//! What tasks and servers ask for: request and demand bounds, and the fixed points built on them.
//!
//! Sums saturate at [`Duration::MAX`], which means "beyond every limit".

use punctual_sched::Duration;

/// The shortest time there is.
pub(crate) const NANOSECOND: Duration = Duration::from_ns(1);

/// A sporadic or periodic demand: a task, or a server as those below it see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Greatest processor time of a job.
    pub cost: Duration,
    /// Least distance of releases; above zero.
    pub period: Duration,
    pub deadline: Duration,
    /// How long after its arrival a job may become ready.
    pub jitter: Duration,
}

impl Demand {
    /// A demand without jitter that is due at the end of its period.
    pub fn implicit(cost: Duration, period: Duration) -> Self {
        Demand { cost, period, deadline: period, jitter: Duration::ZERO }
    }

    /// The same with another relative deadline.
    #[must_use]
    pub fn due(self, deadline: Duration) -> Self {
        Demand { deadline, ..self }
    }

    /// The same with release jitter.
    #[must_use]
    pub fn late_by(self, jitter: Duration) -> Self {
        Demand { jitter, ..self }
    }

    /// Request bound: the most work released in any half-open interval of length `window` (Joseph & Pandya
    /// 1986; with jitter Audsley et al. 1993).
    #[inline]
    pub fn requested(&self, window: Duration) -> Duration {
        debug_assert!(!self.period.is_zero());
        self.cost * (window + self.jitter).div_ceil(self.period)
    }

    /// Demand bound: the most work released and due in any interval of length `window` (Baruah, Mok, Rosier
    /// 1990).
    #[inline]
    pub(crate) fn due_within(&self, window: Duration) -> Duration {
        match window.checked_sub(self.deadline) {
            Some(rest) => self.cost * (rest.div_floor(self.period) + 1),
            None => Duration::ZERO,
        }
    }
}

/// The most work that all of them release in any half-open interval of length `window`.
#[inline]
pub fn requested<'d>(demands: impl IntoIterator<Item = &'d Demand>, window: Duration) -> Duration {
    demands.into_iter().map(|demand| demand.requested(window)).sum()
}

/// The least fixed point of the monotone `step` at or above `start`; `None` if it lies beyond `limit`.
pub fn fixed_point(
    start: Duration,
    limit: Duration,
    step: impl Fn(Duration) -> Duration,
) -> Option<Duration> {
    let mut at = start;
    while at <= limit {
        let next = step(at);
        if next <= at {
            return Some(at);
        }
        at = next;
    }
    None
}

/// The greatest time of at most `most` for which `holds`, which then holds for all below; `None` if that is
/// zero.
pub(crate) fn greatest_time(most: Duration, holds: impl Fn(Duration) -> bool) -> Option<Duration> {
    let (mut low, mut high) = (0, most.as_ns());
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(Duration::from_ns(middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    (low > 0).then(|| Duration::from_ns(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Duration {
        Duration::from_ns(n)
    }

    #[test]
    fn requests_and_demands_count_whole_jobs() {
        let task = Demand::implicit(ns(3), ns(10)).due(ns(7));
        assert_eq!([1, 10, 11].map(|w| task.requested(ns(w))), [3, 3, 6].map(ns));
        assert_eq!([6, 7, 16, 17].map(|w| task.due_within(ns(w))), [0, 3, 3, 6].map(ns));
        assert_eq!(task.late_by(ns(4)).requested(ns(7)), ns(6));
    }
}
