//! The counters of a switch.

use std::sync::atomic::Ordering;

use punctual_net::DropReason;
use punctual_sched::Duration;
use serde::Serialize;

use crate::counters::Counters;
use crate::narrow::to_usize;

/// Dropped frames of a port, by reason. A frame to several ports counts once for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The port's queue of stage TX was full; only floods can fill it.
    pub source_ring: u64,
    /// The softnet queue was full.
    pub softnet: u64,
    /// The receiver had no buffer left, or no VM.
    pub destination_ring: u64,
    /// The receiver's driver did not accept this kind of offload.
    pub offload: u64,
    /// Too short or too long for a frame, or in too many descriptors.
    pub malformed: u64,
    /// Beyond the port's rate for floods.
    pub flood: u64,
    /// Addressed to the sender's own port, or no port could receive it.
    pub no_receiver: u64,
    /// In none of the port's VLANs, or addressed to a port that is not in its VLAN.
    pub vlan: u64,
    /// Longer than the network's MTU.
    pub mtu: u64,
    /// The sender's ring stopped. The frame is sent again when the ring restarts.
    pub stopped: u64,
}

impl Drops {
    /// Counts a packet that the discipline dropped.
    pub(crate) fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::SourceRing => &mut self.source_ring,
            DropReason::Softnet => &mut self.softnet,
            DropReason::DestinationRing => &mut self.destination_ring,
        } += 1;
    }

    pub fn total(&self) -> u64 {
        let of_discipline = self.source_ring + self.softnet + self.destination_ring;
        let of_frames = self.offload + self.malformed + self.vlan + self.mtu;
        of_discipline + of_frames + self.flood + self.no_receiver + self.stopped
    }

    fn merge(&mut self, other: &Drops) {
        self.source_ring += other.source_ring;
        self.softnet += other.softnet;
        self.destination_ring += other.destination_ring;
        self.offload += other.offload;
        self.malformed += other.malformed;
        self.flood += other.flood;
        self.no_receiver += other.no_receiver;
        self.vlan += other.vlan;
        self.mtu += other.mtu;
        self.stopped += other.stopped;
    }
}

/// Frames and bytes, without virtio-net headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn merge(&mut self, other: &Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The counters of an uplink's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UplinkStats {
    /// Received frames that the wire did not accept.
    pub lost: u64,
    pub wakeups: u64,
    /// Processor time of the thread when it last slept.
    pub processor_ns: u64,
}

impl UplinkStats {
    pub(crate) fn of(counters: &Counters) -> UplinkStats {
        UplinkStats {
            lost: counters.lost.load(Ordering::Relaxed),
            wakeups: counters.wakeups.load(Ordering::Relaxed),
            processor_ns: counters.processor_ns.load(Ordering::Relaxed),
        }
    }
}

/// The counters of a port.
#[derive(Clone, Debug, Default)]
pub struct PortStats {
    /// A frame to several ports counts once for each. Each is delivered, dropped or in flight.
    pub sent: Count,
    pub delivered: Count,
    pub drops: Drops,
    pub received: Count,
    /// Of delivered frames, from ingress until the receiver was notified.
    pub latency: Histogram,
    /// Frames that waited in the TX ring or in the switch when this was counted.
    pub queued: u64,
    /// If the port is an uplink.
    pub uplink: Option<UplinkStats>,
}

impl PortStats {
    /// Copies `other` without allocating.
    pub(crate) fn copy_from(&mut self, other: &PortStats) {
        let PortStats { sent, delivered, drops, received, latency, queued, uplink } = other;
        (self.sent, self.delivered, self.drops, self.received) = (*sent, *delivered, *drops, *received);
        (self.queued, self.uplink) = (*queued, *uplink);
        self.latency.counts.copy_from_slice(&latency.counts);
    }

    /// Adds another plane's counters of the same port.
    pub(crate) fn merge(&mut self, other: &PortStats) {
        self.sent.merge(&other.sent);
        self.delivered.merge(&other.delivered);
        self.drops.merge(&other.drops);
        self.received.merge(&other.received);
        self.latency.merge(&other.latency);
        self.queued += other.queued;
    }
}

/// 128 linear buckets in each octave, as in a [`punctual_model::Histogram`].
const SUB_BITS: u32 = 7;

/// Longer values count as this, about 18 minutes.
const VALUE_MAX_NS: u64 = (1 << 40) - 1;

const BUCKETS: usize = bucket_of(VALUE_MAX_NS) + 1;

const fn bucket_of(ns: u64) -> usize {
    let octave = (63 - (ns | ((1 << (SUB_BITS + 1)) - 1)).leading_zeros()) - SUB_BITS;
    ((octave as usize) << SUB_BITS) + to_usize(ns >> octave)
}

/// A histogram of durations. A [`punctual_model::Histogram`] is smaller, but sorts and allocates while it
/// records.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u32]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS].into_boxed_slice() }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} values)", self.histogram().count())
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&mut self, value: Duration) {
        self.record_n(value, 1);
    }

    #[inline]
    pub(crate) fn record_n(&mut self, value: Duration, n: u32) {
        let count = &mut self.counts[bucket_of(value.as_ns().min(VALUE_MAX_NS))];
        *count = count.saturating_add(n);
    }

    fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// The same as a histogram of the model; each value is at most 1/128 below the true one.
    pub fn histogram(&self) -> punctual_model::Histogram {
        let mut histogram = punctual_model::Histogram::new();
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let octave = (bucket >> SUB_BITS).saturating_sub(1);
            let low_ns = ((bucket - (octave << SUB_BITS)) as u64) << octave;
            histogram.record_n(Duration::from_ns(low_ns), count);
        }
        histogram
    }
}

/// The counters of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlaneStats {
    /// Packets that stages TX, softnet and RX completed.
    pub carried: [u64; 3],
    pub wakeups: u64,
    /// Processor time of the thread.
    pub processor_ns: u64,
    /// How often its budget was exhausted.
    pub exhaustions: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_loses_less_than_a_128th() {
        let mut histogram = Histogram::default();
        for ns in [0, 1, 127, 128, 255, 256, 1_000, 123_456, 987_654_321, 1 << 39] {
            histogram.record(Duration::from_ns(ns));
            let last = histogram.histogram().max().as_ns();
            assert!(last <= ns && ns - last <= ns / 128, "{ns} became {last}");
        }
        assert_eq!(histogram.histogram().count(), 10);
        histogram.record(Duration::from_ns(u64::MAX));
        assert!(histogram.histogram().max().as_ns() > 1 << 39);
    }
}
