//! What the scheduler itself takes from a processor.
//!
//! Every decision has a cause: a unit wakes or goes to sleep, its budget ends or comes back, or a quantum is
//! over. The causes in an interval are bounded, so is the time that decisions take in it. That time delays
//! units as more urgent work would, and what of it is charged to a unit is missing inside.

/// A bound on the time that a processor (or a pool) spends on decisions.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// Periods of recurring causes with how many causes each stands for, in ns.
    causes: Vec<(u64, u64)>,
    /// Causes that do not recur, and what is under way when the interval begins.
    once: u64,
    /// A decision that changes what runs, in ns.
    change: u64,
    /// Longest slice and the price of a decision that changes nothing, in ns.
    quantum: Option<(u64, u64)>,
}

impl Decisions {
    /// Decisions that change what runs take `change` ns each; `once` of them stand at the begin of every
    /// interval.
    pub fn new(change: u64, once: u64) -> Self {
        Decisions { causes: Vec::new(), once, change, quantum: None }
    }

    /// Is scheduling free?
    pub fn free(&self) -> bool {
        self.change == 0
    }

    /// What one decision takes at most, in ns.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Adds `count` causes in every `period` (above zero).
    pub fn every(&mut self, period: u64, count: u64) {
        if self.change > 0 {
            self.causes.push((period, count));
        }
    }

    /// The same when causes may come up to `jitter` ns late, and so closer together.
    pub fn every_late(&mut self, period: u64, jitter: u64, count: u64) {
        if self.change > 0 {
            self.every(period, count);
            self.also(jitter.div_ceil(period).saturating_mul(count));
        }
    }

    /// Adds causes that occur only once.
    pub fn also(&mut self, count: u64) {
        self.once = self.once.saturating_add(count);
    }

    /// A decision of `price` ns after every `quantum` ns at the latest.
    pub fn quantum(&mut self, quantum: u64, price: u64) {
        self.quantum = Some((quantum, price));
    }

    /// The most time spent on decisions in any interval of length `window`, in ns.
    #[inline]
    pub fn within(&self, window: u64) -> u64 {
        if self.change == 0 {
            return 0;
        }
        let recurring =
            self.causes.iter().map(|(period, count)| (window / period + 1).saturating_mul(*count));
        let changes = recurring.fold(self.once, u64::saturating_add);
        let ticks = self.quantum.map_or(0, |(quantum, price)| (window / quantum + 1).saturating_mul(price));
        changes.saturating_mul(self.change).saturating_add(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_quanta_and_what_is_under_way_add_up() {
        let mut decisions = Decisions::new(5, 1);
        decisions.every(10, 2);
        decisions.also(3);
        decisions.quantum(4, 1);
        // (1 + 3 once + 2 causes x 3) x 5 + 6 quanta.
        assert_eq!(decisions.within(20), 50 + 6);
    }
}
