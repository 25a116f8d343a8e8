//! The limit on a guest's calls per second.

use punctual_sched::{Duration, Instant};

/// A virtual-scheduling rate limit: each call occupies its share of a second, and at most [`BURST`] calls may
/// be ahead of their time.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Share of a call.
    each: Duration,
    /// End of the share of the last call.
    paid: Instant,
}

/// Calls permitted at once after a pause.
pub(crate) const BURST: u64 = 64;

impl Rate {
    /// A limit of `calls_per_second`, at least 1.
    pub(crate) fn new(calls_per_second: u32, now: Instant) -> Self {
        let each = Duration::from_ns(1_000_000_000 / u64::from(calls_per_second.max(1)));
        Rate { each, paid: now }
    }

    /// Admits a call.
    ///
    /// # Errors
    /// The time until the next call is permitted.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let paid = self.paid.max(now);
        let ahead = paid.since(now);
        let most = Duration::from_ns(self.each.as_ns() * (BURST - 1));
        if ahead > most {
            return Err(Duration::from_ns(ahead.as_ns() - most.as_ns()));
        }
        self.paid = paid + self.each;
        Ok(())
    }

    /// Undoes the last [`Rate::take`], whose call is not made.
    pub(crate) fn give_back(&mut self) {
        self.paid = Instant::from_ns(self.paid.as_ns().saturating_sub(self.each.as_ns()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    #[test]
    fn a_burst_goes_at_once_and_then_one_each_share() {
        let mut rate = Rate::new(1000, at(0));
        for _ in 0..BURST {
            assert_eq!(rate.take(at(0)), Ok(()));
        }
        assert_eq!(rate.take(at(0)), Err(Duration::from_us(1000)));
        assert_eq!(rate.take(at(999)), Err(Duration::from_us(1)));
        assert_eq!(rate.take(at(1000)), Ok(()));
        assert_eq!(rate.take(at(1000)), Err(Duration::from_us(1000)));
    }

    #[test]
    fn a_pause_saves_no_more_than_a_burst() {
        let mut rate = Rate::new(1000, at(0));
        let made = (0..1000).filter(|_| rate.take(at(10_000_000)).is_ok()).count();
        assert_eq!(made as u64, BURST);
    }
}
