//! Features of virtio-net (virtio 1.2, sections 5.1.3 and 6) that a port offers.
//!
//! A port offers checksum and segmentation offloads in both directions, so that a segment of 64 KiB crosses
//! the switch as one packet. The front-end adds features of its own: MAC address, link state, control queue.

use crate::protocol::F_PROTOCOL_FEATURES;

/// The device accepts packets with partial checksums.
pub const CSUM: u64 = 1;
/// The driver does.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The device reports its MTU.
pub const MTU: u64 = 1 << 3;
/// The driver accepts TSO over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The driver accepts TSO over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The driver accepts TSO with ECN.
pub const GUEST_ECN: u64 = 1 << 9;
/// The device accepts TSO over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The device accepts TSO over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The device accepts TSO with ECN.
pub const HOST_ECN: u64 = 1 << 13;
/// A packet may span several receive buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// Header and frame may be laid out in descriptors in any way.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// Indirect descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// `used_event` and `avail_event`.
pub const EVENT_IDX: u64 = 1 << 29;
/// Virtio 1, not legacy.
pub const VERSION_1: u64 = 1 << 32;

/// What a port offers. In a network with an MTU it also offers [`MTU`].
pub const OFFERED: u64 = CSUM
    | GUEST_CSUM
    | GUEST_TSO4
    | GUEST_TSO6
    | GUEST_ECN
    | HOST_TSO4
    | HOST_TSO6
    | HOST_ECN
    | MRG_RXBUF
    | ANY_LAYOUT
    | INDIRECT_DESC
    | EVENT_IDX
    | VERSION_1
    | F_PROTOCOL_FEATURES;
