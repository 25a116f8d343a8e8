//! When a flow sends, for simulated and real guests.

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
