//! When a flow sends, for simulated and real guests.

use alloc::vec;
use alloc::vec::Vec;

use crate::{exponential_ns, mix};

/// A storm that finds the queue in front of the ring full tries again after this.
pub const STORM_RETRY_NS: u64 = 1_000_000;

/// Packets in the stack in front of a ring at most (Linux `txqueuelen`).
pub const SEND_QUEUE_MAX: usize = 1000;

/// The seed of the host's `flow`-th flow.
pub fn seed(host_seed: u64, flow: usize) -> u64 {
    mix(host_seed ^ 0x666c_6f77, flow as u64)
}

/// From the `number`-th burst of a periodic flow to the next: the period, and an exponentially distributed
/// time of mean `slack_mean_ns`.
pub fn burst_gap_ns(seed: u64, number: u64, period_ns: u64, slack_mean_ns: u64) -> u64 {
    let slack_ns = match slack_mean_ns {
        0 => 0,
        mean_ns => exponential_ns(mean_ns, mix(seed, number)),
    };
    period_ns.saturating_add(slack_ns)
}

/// When a GOOSE publisher sends (IEC 61850-8-1): at each event at once, then after `retransmit_ns`, after
/// twice as long, and so on up to `heartbeat_ns`, which is the distance until the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goose {
    /// Least distance of events; without it there is one only.
    pub period_ns: Option<u64>,
    /// Mean of an exponentially distributed time added to it.
    pub slack_mean_ns: u64,
    /// From an event's message to the first repetition.
    pub retransmit_ns: u64,
    /// Greatest distance of messages.
    pub heartbeat_ns: u64,
}

/// Where a [`Goose`] publisher is in its sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GooseState {
    events: u64,
    next_event_ns: Option<u64>,
    /// To the repetition after the last message; zero before the first event.
    distance_ns: u64,
}

impl GooseState {
    /// The time of the message after that of `due_ns`; the first one is that of the first event.
    pub fn after_ns(&mut self, goose: &Goose, seed: u64, due_ns: u64) -> u64 {
        if self.distance_ns == 0 {
            self.event(goose, seed, due_ns);
        }
        let repetition_ns = due_ns.saturating_add(self.distance_ns);
        match self.next_event_ns {
            Some(event_ns) if event_ns <= repetition_ns => {
                self.event(goose, seed, event_ns);
                event_ns
            }
            _ => {
                self.distance_ns = self.distance_ns.saturating_mul(2).min(goose.heartbeat_ns);
                repetition_ns
            }
        }
    }

    fn event(&mut self, goose: &Goose, seed: u64, at_ns: u64) {
        self.distance_ns = goose.retransmit_ns.min(goose.heartbeat_ns).max(1);
        self.next_event_ns = goose.period_ns.map(|period_ns| {
            at_ns.saturating_add(burst_gap_ns(seed, self.events, period_ns.max(1), goose.slack_mean_ns))
        });
        self.events = self.events.wrapping_add(1);
    }
}

impl Goose {
    /// From an event to each message while their distances grow and no other event comes, the event's own
    /// first; at most 65. Later ones come every `heartbeat_ns`.
    pub fn growing_offsets_ns(&self) -> Vec<u64> {
        let (mut offsets_ns, mut at_ns) = (vec![0], 0_u64);
        let mut distance_ns = self.retransmit_ns.max(1);
        while distance_ns < self.heartbeat_ns {
            at_ns = at_ns.saturating_add(distance_ns);
            if self.period_ns.is_some_and(|period_ns| at_ns >= period_ns) {
                break;
            }
            offsets_ns.push(at_ns);
            distance_ns = distance_ns.saturating_mul(2);
        }
        offsets_ns
    }
}
