//! What the scheduler itself takes from a processor.
//!
//! Every decision has a cause: a unit wakes or goes to sleep, its budget ends or comes back, or a quantum is
//! over. The causes in an interval are bounded, so is the time that decisions take in it. That time delays
//! units as more urgent work would, and what of it is charged to a unit is missing inside.

use punctual_sched::Duration;

/// A bound on the time that a processor (or a pool) spends on decisions.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// Recurring causes: how many there are in every period.
    causes: Vec<(Duration, u64)>,
    /// Causes that do not recur, and what is under way when the interval begins.
    once: u64,
    /// What a decision that changes what runs takes.
    change: Duration,
    /// The longest slice, and what a decision that changes nothing takes.
    quantum: Option<(Duration, Duration)>,
}

impl Decisions {
    /// Decisions that change what runs take `change` each; `once` of them stand at the start of every
    /// interval.
    pub fn new(change: Duration, once: u64) -> Self {
        Decisions { causes: Vec::new(), once, change, quantum: None }
    }

    pub fn free(&self) -> bool {
        self.change.is_zero()
    }

    /// What one decision takes at most.
    pub fn change(&self) -> Duration {
        self.change
    }

    /// Adds `count` causes in every `period` (above zero).
    pub fn every(&mut self, period: Duration, count: u64) {
        if !self.free() {
            self.causes.push((period, count));
        }
    }

    /// The same when causes may come up to `jitter` late, and so closer together.
    pub(crate) fn every_late(&mut self, period: Duration, jitter: Duration, count: u64) {
        if !self.free() {
            self.every(period, count);
            self.also(jitter.div_ceil(period).saturating_mul(count));
        }
    }

    /// Adds causes that occur only once.
    pub fn also(&mut self, count: u64) {
        self.once = self.once.saturating_add(count);
    }

    /// A decision that takes `price` after every `quantum` at the latest.
    pub fn quantum(&mut self, quantum: Duration, price: Duration) {
        self.quantum = Some((quantum, price));
    }

    /// The most time spent on decisions in any interval of length `window`.
    #[inline]
    pub fn within(&self, window: Duration) -> Duration {
        self.caused(window, |period| window.div_floor(period) + 1)
    }

    /// The same for causes from the interval's start on and before its end.
    #[inline]
    pub(crate) fn before_end(&self, window: Duration) -> Duration {
        self.caused(window, |period| window.div_ceil(period))
    }

    /// `times`: how often a cause with this period occurs in the window at most.
    #[inline]
    fn caused(&self, window: Duration, times: impl Fn(Duration) -> u64) -> Duration {
        if self.free() {
            return Duration::ZERO;
        }
        let recurring = self.causes.iter().map(|(period, count)| times(*period).saturating_mul(*count));
        let changes = recurring.fold(self.once, u64::saturating_add);
        let ticks =
            self.quantum.map_or(Duration::ZERO, |(quantum, price)| price * (window.div_floor(quantum) + 1));
        self.change * changes + ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_quanta_and_what_is_under_way_add_up() {
        let ns = Duration::from_ns;
        let mut decisions = Decisions::new(ns(5), 1);
        decisions.every(ns(10), 2);
        decisions.also(3);
        decisions.quantum(ns(4), ns(1));
        // (1 + 3 once + 2 causes x 3) x 5 + 6 quanta.
        assert_eq!(decisions.within(ns(20)), ns(50 + 6));
        // What a third pair of causes at 20 makes happen comes too late.
        assert_eq!(decisions.before_end(ns(20)), ns(40 + 6));
        assert_eq!(decisions.before_end(ns(21)), ns(50 + 6));
    }
}
