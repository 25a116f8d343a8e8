//! What a switch counted.

use std::sync::atomic::Ordering;

use punctual_model::Recorder;
use punctual_net::DropReason;
use punctual_sched::Duration;
use serde::Serialize;

use crate::counters::Counters;

/// Frames of a port that were dropped, by reason. A frame to several ports counts for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The port's part of the TX stage was full, which happens to floods alone.
    pub source_ring: u64,
    /// The softnet queue was full.
    pub softnet: u64,
    /// The receiver had no buffer left, or no VM.
    pub destination_ring: u64,
    /// The receiver's driver did not agree to segments or checksums like these.
    pub offload: u64,
    /// No frame: too short, too long, or in too many pieces.
    pub malformed: u64,
    /// Beyond the budget of frames to all ports.
    pub flood: u64,
    /// To the port it came from, or to no port at all.
    pub no_receiver: u64,
    /// In no VLAN of its port, or to an address that is not in its VLAN.
    pub vlan: u64,
    /// Longer than the network's MTU.
    pub mtu: u64,
    /// The sender's rings stopped; it sends the frame again if it goes on.
    pub stopped: u64,
}

impl Drops {
    /// Counts one that a discipline dropped.
    pub(crate) fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::SourceRing => &mut self.source_ring,
            DropReason::Softnet => &mut self.softnet,
            DropReason::DestinationRing => &mut self.destination_ring,
        } += 1;
    }

    /// All reasons together.
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

/// Frames and their bytes, without virtio-net headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes.
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

/// What the thread of an uplink did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UplinkStats {
    /// Of the frames that the port received, those that nobody beyond it took.
    pub lost: u64,
    /// How often the thread woke up.
    pub wakeups: u64,
    /// Processor time that the thread took, as of its last sleep.
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

/// What a port's VM sent and received.
#[derive(Clone, Debug, Default)]
pub struct PortStats {
    /// Frames that it sent. A frame to several ports counts for each of them.
    pub sent: Count,
    /// Of these, those that reached their receivers.
    pub delivered: Count,
    /// Of these, those that did not.
    pub drops: Drops,
    /// Frames that it received.
    pub received: Count,
    /// From the switch's first look at a frame that the port's VM sent, until its receiver was told.
    pub latency: Histogram,
    /// Frames that wait, in the ring with which it sends or in the switch, as of when this was counted.
    pub queued: u64,
    /// Of an uplink, which has no VM.
    pub uplink: Option<UplinkStats>,
}

impl PortStats {
    /// Becomes the same without allocating.
    pub(crate) fn copy_from(&mut self, other: &PortStats) {
        let PortStats { sent, delivered, drops, received, latency, queued, uplink } = other;
        (self.sent, self.delivered, self.drops, self.received) = (*sent, *delivered, *drops, *received);
        (self.queued, self.uplink) = (*queued, *uplink);
        self.latency.counts.copy_from_slice(&latency.counts);
    }

    /// Adds what another plane counted of the same port.
    pub(crate) fn merge(&mut self, other: &PortStats) {
        self.sent.merge(&other.sent);
        self.delivered.merge(&other.delivered);
        self.drops.merge(&other.drops);
        self.received.merge(&other.received);
        self.latency.merge(&other.latency);
        self.queued += other.queued;
    }
}

/// As many linear buckets as in a [`Recorder`]: 128 in each octave.
const SUB_BITS: u32 = 7;

/// Everything above is counted as this; about 18 minutes.
const VALUE_MAX_NS: u64 = (1 << 40) - 1;

const BUCKETS: usize = bucket_of(VALUE_MAX_NS) + 1;

const fn bucket_of(ns: u64) -> usize {
    let octave = (63 - (ns | ((1 << (SUB_BITS + 1)) - 1)).leading_zeros()) - SUB_BITS;
    ((octave as usize) << SUB_BITS) + (ns >> octave) as usize
}

/// Counts of durations. A [`Recorder`] is smaller, but sorts and allocates while it records.
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
        write!(f, "Histogram({} values)", self.recorder().count())
    }
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn record(&mut self, value: Duration) {
        let count = &mut self.counts[bucket_of(value.as_ns().min(VALUE_MAX_NS))];
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// The same as a recorder; each value is at most 1/128 below the true one.
    pub fn recorder(&self) -> Recorder {
        let mut recorder = Recorder::new();
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let octave = (bucket >> SUB_BITS).saturating_sub(1);
            let low_ns = ((bucket - (octave << SUB_BITS)) as u64) << octave;
            recorder.record_n(Duration::from_ns(low_ns), count);
        }
        recorder
    }
}

/// What a plane's thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlaneStats {
    /// Packets carried through a stage: TX, softnet, RX.
    pub carried: [u64; 3],
    /// How often it woke up.
    pub wakeups: u64,
    /// Processor time that the thread took.
    pub processor_ns: u64,
    /// How often its budget was used up.
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
            let last = histogram.recorder().max().as_ns();
            assert!(last <= ns && ns - last <= ns / 128, "{ns} became {last}");
        }
        assert_eq!(histogram.recorder().count(), 10);
        histogram.record(Duration::from_ns(u64::MAX));
        assert!(histogram.recorder().max().as_ns() > 1 << 39);
    }
}
