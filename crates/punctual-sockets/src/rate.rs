//! How many calls a guest may make in a second.

use punctual_sched::{Duration, Instant};

/// Calls at a rate, with a burst: each call takes its share of a second, and at most [`BURST`] are ahead of
/// their time.
#[derive(Debug)]
pub struct Rate {
    /// What a call takes.
    each: Duration,
    /// When the calls so far have taken their share.
    paid: Instant,
}

/// Calls that may be made at once after a pause.
pub const BURST: u64 = 64;

impl Rate {
    /// So many calls in a second, at least one.
    pub fn new(calls_per_second: u32, now: Instant) -> Self {
        let each = Duration::from_ns(1_000_000_000 / u64::from(calls_per_second.max(1)));
        Rate { each, paid: now }
    }

    /// May a call be made now? Otherwise: how long until then.
    ///
    /// # Errors
    /// The time until the next call may be made.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let paid = self.paid.max(now);
        let ahead = paid.since(now);
        let most = Duration::from_ns(self.each.as_ns() * (BURST - 1));
        if ahead > most {
            return Err(Duration::from_ns(ahead.as_ns() - most.as_ns()));
        }
        self.paid = paid + self.each;
        Ok(())
    }

    /// The call that was taken last is not made.
    pub fn give_back(&mut self) {
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
