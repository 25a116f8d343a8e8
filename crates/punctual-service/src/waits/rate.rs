//! Events cost the service about 1 us each (`measurements/2026-11-27-waits-cost`), and a wake-up costs those
//! that it concerns about 3.4 us where programs in the kernel add up (`measurements/2026-11-28-waits-bpf`).
//! Where threads switch too often, nothing is read for a while.

/// More events than this in a second are too many: two percent of a processor.
pub(super) const EVENTS_MAX: u64 = 20_000;
/// More wake-ups than this in a second for each processor of the host are too many for programs in the
/// kernel: 3.4 percent of it.
pub(super) const WAKEUPS_MAX: u64 = 10_000;
/// So many samples in a row with too many events end the reading.
const SAMPLES: u32 = 3;
/// So long no events are read then.
const REST_NS: u64 = 600_000_000_000;

/// Decides when events are too many.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Events since the last sample, and when that was.
    events: u64,
    sampled_ns: u64,
    /// Samples in a row with too many.
    busy: u32,
    rests_until_ns: u64,
}

impl Rate {
    pub(super) fn count(&mut self, events: u64) {
        self.events += events;
    }

    /// A sample at `now_ns`; more than `max` events in a second are too many. Returns whether they must not
    /// be read any more.
    pub(super) fn sample(&mut self, now_ns: u64, max: u64) -> bool {
        let interval_ns = now_ns.saturating_sub(std::mem::replace(&mut self.sampled_ns, now_ns));
        let events = u128::from(std::mem::take(&mut self.events));
        let is_busy = events * 1_000_000_000 > u128::from(max) * u128::from(interval_ns);
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        if self.busy < SAMPLES {
            return false;
        }
        self.busy = 0;
        self.rests_until_ns = now_ns + REST_NS;
        true
    }

    /// Are there too many events to be read?
    pub(super) fn rests(&self, now_ns: u64) -> bool {
        now_ns < self.rests_until_ns
    }

    /// Events may be read again.
    pub(super) fn forget(&mut self) {
        *self = Rate::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Seconds with so many events each, from second 1 on. Returns in which reading ended.
    fn ends_in(rate: &mut Rate, seconds: &[u64]) -> Option<usize> {
        rate.sample(SECOND_NS, EVENTS_MAX);
        (0..seconds.len()).find(|&at| {
            rate.count(seconds[at]);
            rate.sample(SECOND_NS * (at as u64 + 2), EVENTS_MAX)
        })
    }

    #[test]
    fn three_seconds_in_a_row_with_too_many_events_end_the_reading_for_ten_minutes() {
        let (many, few) = (EVENTS_MAX + 1, EVENTS_MAX);
        let mut rate = Rate::default();
        assert_eq!(ends_in(&mut rate, &[many, many, few, many, many, many, many]), Some(5));
        let ended_ns = 7 * SECOND_NS;
        assert!(rate.rests(ended_ns) && rate.rests(ended_ns + REST_NS - 1));
        assert!(!rate.rests(ended_ns + REST_NS));
        assert_eq!(ends_in(&mut Rate::default(), &[few; 20]), None);
    }
}
