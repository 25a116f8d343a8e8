//! The two loops.

use std::sync::atomic::{AtomicBool, Ordering};

use punctual_jobs::histogram::Histogram;

use super::plan::BURST_PERIOD_NS;
use super::report::{Counts, Kind, Measured, SLICES, Slow, WORST};
use crate::os;

/// Shorter gaps are not counted, nor those of less than four turns of the loop: 1 us, as oslat's buckets.
const GAP_MIN_NS: u64 = 1_000;

/// When a loop ends.
pub(super) struct Ends<'s> {
    pub(super) begin_ns: u64,
    pub(super) until_ns: u64,
    /// Or when one of these is set.
    pub(super) stops: [&'s AtomicBool; 2],
}

impl Ends<'_> {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns || self.stops.iter().any(|stop| stop.load(Ordering::Relaxed))
    }

    /// The part of the whole time that an instant is in.
    fn slice(&self, now_ns: u64) -> usize {
        let passed = u128::from(now_ns.saturating_sub(self.begin_ns)) * SLICES as u128;
        (passed / u128::from((self.until_ns - self.begin_ns).max(1))).min(SLICES as u128 - 1) as usize
    }
}

/// What a thread writes to: allocated before it begins.
struct Tally {
    slices: Vec<Histogram>,
    /// The longest, the longest first.
    worst: [Slow; WORST],
}

impl Tally {
    fn new() -> Tally {
        Tally { slices: (0..SLICES).map(|_| Histogram::default()).collect(), worst: [Slow::default(); WORST] }
    }

    /// Counts a latency. Is it among the longest?
    fn record(&mut self, slice: usize, slow: Slow) -> bool {
        if let Some(histogram) = self.slices.get_mut(slice) {
            histogram.record(slow.length_ns);
        }
        let longer = self.worst.iter().take_while(|other| other.length_ns >= slow.length_ns).count();
        if longer == WORST {
            return false;
        }
        self.worst[longer..].rotate_right(1);
        self.worst[longer] = slow;
        true
    }
}

/// What the thread of a processor counts.
pub(super) struct Tallies {
    processor: usize,
    kind: Kind,
    latencies: Tally,
    /// With [`Kind::Noise`]: the parts of gaps that the kernel does not know of.
    unknown: Tally,
    watched_ns: u64,
    resolution_ns: u64,
    skipped: u64,
}

impl Tallies {
    pub(super) fn new(processor: usize, kind: Kind) -> Tallies {
        let (latencies, unknown) = (Tally::new(), Tally::new());
        Tallies { processor, kind, latencies, unknown, watched_ns: 0, resolution_ns: 0, skipped: 0 }
    }

    pub(super) fn processor(&self) -> usize {
        self.processor
    }

    /// By kind.
    pub(super) fn measured(self) -> Vec<Measured> {
        let Tallies { processor, kind, latencies, unknown, watched_ns, resolution_ns, skipped } = self;
        let of = |kind, tally: Tally| Measured {
            processor,
            kind,
            watched_ns,
            resolution_ns,
            skipped,
            slices: tally.slices.iter().map(Counts::from).collect(),
            worst: tally.worst.into_iter().filter(|slow| slow.length_ns > 0).collect(),
        };
        match kind {
            Kind::Wakeup => vec![of(kind, latencies)],
            _ => vec![of(Kind::Noise, latencies), of(Kind::Hardware, unknown)],
        }
    }
}

/// cyclictest's loop: sleeps until absolute instants, an interval apart, and counts how late it runs.
pub(super) fn wake_up(
    tallies: &mut Tallies,
    ends: &Ends<'_>,
    interval_ns: u64,
    slow: &(dyn Fn(usize, Kind, Slow) + Sync),
) {
    let mut due_ns = ends.begin_ns;
    while !ends.is_over(due_ns) {
        os::sleep_until(due_ns);
        let at_ns = os::now_ns();
        let latency = Slow { at_ns, length_ns: at_ns.saturating_sub(due_ns) };
        if tallies.latencies.record(ends.slice(due_ns), latency) {
            slow(tallies.processor, Kind::Wakeup, latency);
        }
        due_ns += interval_ns;
        if due_ns <= at_ns {
            let missed = (at_ns - due_ns) / interval_ns + 1;
            tallies.skipped += missed;
            due_ns += missed * interval_ns;
        }
    }
    tallies.watched_ns = os::now_ns().saturating_sub(ends.begin_ns);
}

/// The time that the kernel knows the calling thread did not run, since some instant: what passed by the
/// clock, less its processor time.
fn away_ns() -> (u64, u64) {
    let now_ns = os::now_ns();
    (now_ns, now_ns.saturating_sub(os::thread_time_ns()))
}

/// After so long the time away is read again, so that little of it is not part of the next gap.
const REFRESH_NS: u64 = 1_000_000;
/// Turns of the loop that its resolution is measured by.
const TURNS: usize = 101;

/// oslat's loop: reads the clock as fast as possible and counts how much later than the time before it is.
/// Of each gap, the kernel knows the part in which it did not charge the thread.
pub(super) fn spin(
    tallies: &mut Tallies,
    ends: &Ends<'_>,
    burst_ns: u64,
    slow: &(dyn Fn(usize, Kind, Slow) + Sync),
) {
    let mut burst_at_ns = ends.begin_ns;
    os::sleep_until(burst_at_ns);
    let resolution_ns = turn_ns().saturating_mul(4).max(GAP_MIN_NS);
    tallies.resolution_ns = resolution_ns;
    while !ends.is_over(os::now_ns()) {
        let burst = Burst { until_ns: (os::now_ns() + burst_ns).min(ends.until_ns), resolution_ns };
        tallies.watched_ns += burst.spin(tallies, ends, slow);
        burst_at_ns += BURST_PERIOD_NS;
        let now_ns = os::now_ns();
        if burst_at_ns <= now_ns {
            burst_at_ns = now_ns + (BURST_PERIOD_NS - burst_ns);
        }
        os::sleep_until(burst_at_ns.min(ends.until_ns));
    }
}

struct Burst {
    until_ns: u64,
    resolution_ns: u64,
}

impl Burst {
    /// Returns how long it was, without the time that the loop itself spent on gaps.
    fn spin(&self, tallies: &mut Tallies, ends: &Ends<'_>, slow: &(dyn Fn(usize, Kind, Slow) + Sync)) -> u64 {
        let (mut read_ns, mut away_before_ns) = away_ns();
        let mut last_ns = os::now_ns();
        let mut watched_ns = 0;
        while last_ns < self.until_ns && !ends.is_over(last_ns) {
            let now_ns = os::now_ns();
            let gap_ns = now_ns.saturating_sub(last_ns);
            watched_ns += gap_ns;
            last_ns = now_ns;
            if gap_ns < self.resolution_ns && now_ns - read_ns.min(now_ns) < REFRESH_NS {
                continue;
            }
            let away = away_ns();
            if gap_ns >= self.resolution_ns {
                let known_ns = away.1.saturating_sub(away_before_ns).min(gap_ns);
                let slice = ends.slice(now_ns);
                let gap = Slow { at_ns: now_ns, length_ns: gap_ns };
                if tallies.latencies.record(slice, gap) {
                    slow(tallies.processor, Kind::Noise, gap);
                }
                let unknown = Slow { at_ns: now_ns, length_ns: gap_ns - known_ns };
                let is_seen = unknown.length_ns >= self.resolution_ns;
                if is_seen && tallies.unknown.record(slice, unknown) {
                    slow(tallies.processor, Kind::Hardware, unknown);
                }
            }
            (read_ns, away_before_ns) = away;
            last_ns = os::now_ns();
        }
        watched_ns
    }
}

/// The median length of a turn of the loop.
fn turn_ns() -> u64 {
    let mut turns = [0; TURNS];
    let mut last_ns = os::now_ns();
    for turn in &mut turns {
        let now_ns = os::now_ns();
        *turn = now_ns.saturating_sub(last_ns);
        last_ns = now_ns;
    }
    turns.sort_unstable();
    turns[TURNS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_in_order() {
        let mut tally = Tally::new();
        for length_ns in (1..=30).chain([7, 40]) {
            tally.record(0, Slow { at_ns: length_ns, length_ns });
        }
        let kept: Vec<u64> = tally.worst.iter().map(|slow| slow.length_ns).collect();
        assert_eq!(kept, [40, 30, 29, 28, 27, 26, 25, 24, 23, 22]);
        assert_eq!(tally.slices[0].count, 32);
        assert!(!tally.record(1, Slow { at_ns: 9, length_ns: 22 }));
    }

    #[test]
    fn slices_divide_the_time() {
        let stop = AtomicBool::new(false);
        let ends = Ends { begin_ns: 100, until_ns: 200, stops: [&stop, &stop] };
        assert_eq!([99, 100, 109, 110, 199, 200, 300].map(|at| ends.slice(at)), [0, 0, 0, 1, 9, 9, 9]);
    }
}
