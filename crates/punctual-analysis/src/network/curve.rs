//! Packets in time.

use punctual_model::network::Goose;
use punctual_sched::Duration;

use crate::demand::{Demand, NANOSECOND};

/// An arrival curve: `burst` packets at once every `period` or less often, up to `jitter` late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ArrivalCurve {
    pub(super) burst: u64,
    pub(super) period: Duration,
    pub(super) jitter: Duration,
}

impl ArrivalCurve {
    pub(super) fn every(period: Duration) -> Self {
        ArrivalCurve { burst: 1, period: period.max(NANOSECOND), jitter: Duration::ZERO }
    }

    /// Messages of a GOOSE publisher.
    ///
    /// With s(n) from an event to its n-th repetition, and k messages until the next event can come, the
    /// densest sequences have an event every `period` or every s(k) and a bit, so `p` is the smaller one of
    /// period/k and s(k)/(k + 1). An interval holds at most n messages of its last event in s(n - 1), at most
    /// x/p of other whole events in x, and, as repetitions grow apart, at most 1 + x/p of the event before
    /// its first. So it holds 1 + (length + jitter)/p, where jitter is the most that n p is beyond s(n - 1).
    pub(super) fn of_goose(goose: &Goose) -> Self {
        let offsets_ns = goose.growing_offsets_ns();
        let (growing, last_ns) = (offsets_ns.len() as u64, offsets_ns.last().copied().unwrap_or_default());
        let heartbeat_ns = goose.heartbeat_ns.max(1);
        let (period_ns, last) = match goose.period_ns {
            Some(event_ns) => {
                let steady = event_ns.saturating_sub(1).saturating_sub(last_ns) / heartbeat_ns;
                let doubled = 1_u64.checked_shl(growing as u32 - 1).unwrap_or(u64::MAX);
                let next_ns =
                    if steady == 0 { goose.retransmit_ns.saturating_mul(doubled) } else { u64::MAX };
                let until_ns = last_ns.saturating_add(steady.saturating_mul(heartbeat_ns));
                let after_ns = until_ns.saturating_add(next_ns.min(heartbeat_ns));
                let messages = growing + steady;
                let period_ns = (event_ns / messages).min(after_ns.saturating_add(1) / (messages + 1));
                (period_ns.max(1), Some((messages, until_ns)))
            }
            None => (heartbeat_ns, None),
        };
        let jitter_ns = (1..).zip(offsets_ns).chain(last).map(|(number, offset_ns): (u64, u64)| {
            number.saturating_mul(period_ns).saturating_sub(offset_ns)
        });
        let jitter = Duration::from_ns(jitter_ns.max().unwrap_or_default());
        ArrivalCurve::every(Duration::from_ns(period_ns)).later(jitter)
    }

    pub(super) fn later(self, by: Duration) -> Self {
        ArrivalCurve { jitter: self.jitter + by, ..self }
    }

    /// The most packets in a closed interval of this length.
    pub(super) fn packets(&self, window: Duration) -> u64 {
        (window + self.jitter).div_floor(self.period).saturating_add(1).saturating_mul(self.burst)
    }

    pub(super) fn demand(&self, cost: Duration) -> Demand {
        Demand::implicit(cost * self.burst, self.period).late_by(self.jitter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times of messages, by the standard's words: each event, and repetitions until the next one.
    fn messages(goose: &Goose, separations_ns: &[u64]) -> Vec<u64> {
        let (mut all, mut event_ns) = (Vec::new(), 0);
        for separation_ns in separations_ns {
            let (mut at_ns, mut distance_ns) = (event_ns, goose.retransmit_ns);
            while at_ns < event_ns + separation_ns && all.len() < 2_000 {
                all.push(at_ns);
                at_ns += distance_ns;
                distance_ns = (2 * distance_ns).min(goose.heartbeat_ns);
            }
            event_ns += separation_ns;
        }
        all
    }

    proptest! {
        #[test]
        fn no_interval_holds_more_goose_messages_than_the_curve_says(
            retransmit_ns in 1..50_u64,
            longer_ns in 0..500_u64,
            period_ns in proptest::option::of(1..2_000_u64),
            slacks_ns in proptest::collection::vec(prop_oneof![Just(0), 0..30_u64, 0..3_000_u64], 1..12),
        ) {
            let heartbeat_ns = retransmit_ns + longer_ns;
            let goose = Goose { period_ns, slack_mean_ns: 0, retransmit_ns, heartbeat_ns };
            let separations_ns = match period_ns {
                Some(period_ns) => slacks_ns.iter().map(|slack_ns| period_ns + slack_ns).collect(),
                None => vec![20_000],
            };
            let (all, curve) = (messages(&goose, &separations_ns), ArrivalCurve::of_goose(&goose));
            for first in 0..all.len() {
                for last in first..all.len().min(first + 200) {
                    let window = Duration::from_ns(all[last] - all[first]);
                    prop_assert!(curve.packets(window) > (last - first) as u64, "{curve:?} {all:?}");
                }
            }
        }
    }
}
