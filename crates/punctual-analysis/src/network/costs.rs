//! What the steps of a packet take.

use punctual_model::index::DomainIx;
use punctual_model::network::{Endpoint, Network};
use punctual_sched::Duration;

const BITS_PER_BYTE: u128 = 8;
const NS_PER_SECOND: u128 = 1_000_000_000;
const MILLION: u128 = 1_000_000;
const KIB: u128 = 1024;

fn duration(ns: u128) -> Duration {
    u64::try_from(ns).map_or(Duration::MAX, Duration::from_ns)
}

/// A cost with the greatest jitter.
pub(super) fn most(network: &Network, cost: Duration) -> Duration {
    let more = u128::from(cost.as_ns()) * u128::from(network.costs.jitter_ppm);
    cost + duration(more.div_ceil(MILLION))
}

/// How long a packet is on the link.
pub(super) fn wire_time(network: &Network, bytes: u32) -> Duration {
    let bits = u128::from(bytes) * BITS_PER_BYTE * NS_PER_SECOND;
    duration(bits.div_ceil(u128::from(network.nic.bandwidth_bps.max(1))))
}

/// Copying a packet to its receiver.
pub(super) fn copy(network: &Network, bytes: u32) -> Duration {
    let copied = u128::from(network.costs.copy_per_kib.as_ns()) * u128::from(bytes);
    duration(copied.div_ceil(KIB))
}

/// The delay of the link and beyond, for an end that is outside.
pub(super) fn link_delay(network: &Network, end: Endpoint) -> Duration {
    match end {
        Endpoint::Guest(_) => Duration::ZERO,
        Endpoint::Outside(o) => network.nic.delay + network.outside[o].delay,
    }
}

/// The least time of a packet from end to end.
pub(super) fn least_time(network: &Network, from: Endpoint, to: Endpoint, bytes: u32) -> Duration {
    let costs = &network.costs;
    let on_link = |end: Endpoint| match end {
        Endpoint::Guest(_) => Duration::ZERO,
        Endpoint::Outside(_) => wire_time(network, bytes) + link_delay(network, end),
    };
    let sent = guest(from).map_or(Duration::ZERO, |_| costs.guest_send + costs.tx);
    let received = guest(to).map_or(Duration::ZERO, |_| costs.rx + costs.guest_receive);
    on_link(from) + on_link(to) + costs.softnet + sent + received
}

/// How long the receiver takes to answer if it is outside.
pub(super) fn turnaround(network: &Network, to: Endpoint) -> Duration {
    match to {
        Endpoint::Outside(o) => network.outside[o].turnaround,
        Endpoint::Guest(_) => Duration::ZERO,
    }
}

pub(super) fn guest(end: Endpoint) -> Option<DomainIx> {
    match end {
        Endpoint::Guest(domain) => Some(domain),
        Endpoint::Outside(_) => None,
    }
}

/// What `work` asks for in a second in the long run: a tenth of what it asks for in ten, at most.
pub(super) fn per_second(work: impl FnOnce(Duration) -> Duration) -> Duration {
    work(Duration::from_secs(10)) / 10
}
