//! What happens on the network at a certain time by itself: arrivals from links, timers of flows.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use punctual_sched::Instant;

/// Something that happens at its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timed {
    /// A flow begins, or its next burst, request or storm packet is due.
    Next { flow: u32 },
    /// An answer is given up, unless it came.
    Timeout { flow: u32 },
    /// A stream has been silent too long, unless it was not.
    Silence { flow: u32 },
    /// A packet of a stream waits for its acknowledgement since long enough, unless it was acknowledged.
    AckDelay { flow: u32 },
    /// A packet leaves a host outside.
    Leave { packet: u32 },
    /// A packet arrives at a network card.
    Card { packet: u32 },
    /// A packet arrives at a host outside.
    Outside { packet: u32 },
    /// A guest over its rate limit gets new credit.
    Credit { bridge: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    at: Instant,
    number: u64,
    what: Timed,
}

impl Ord for Entry {
    /// The earliest is the greatest; of one instant, the one that was set first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
pub(crate) struct Clock {
    heap: BinaryHeap<Entry>,
    numbers: u64,
}

impl Clock {
    /// When the next one happens.
    #[inline]
    pub(crate) fn at(&self) -> Instant {
        self.heap.peek().map_or(Instant::NEVER, |entry| entry.at)
    }

    pub(crate) fn set(&mut self, at: Instant, what: Timed) {
        if at.is_never() {
            return;
        }
        self.numbers += 1;
        self.heap.push(Entry { at, number: self.numbers, what });
    }

    pub(crate) fn due(&mut self, now: Instant) -> Option<Timed> {
        (self.at() <= now).then(|| self.heap.pop().map(|entry| entry.what))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equal_ones_in_the_order_they_were_set() {
        let mut clock = Clock::default();
        for (at, flow) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            clock.set(Instant::from_ns(at), Timed::Next { flow });
        }
        assert_eq!(clock.due(Instant::from_ns(2)), None);
        let order: Vec<_> = std::iter::from_fn(|| clock.due(Instant::from_ns(9))).collect();
        assert_eq!(order, [1, 3, 0, 2].map(|flow| Timed::Next { flow }));
        assert!(clock.at().is_never());
    }
}
