//! Features of virtio-net (virtio 1.2, sections 5.1.3 and 6) that a port offers.
//!
//! A port offers in both directions what segmentation and checksums need, so that a segment of 64 KiB crosses
//! the switch as one packet. MAC address, link state and control queue are the monitor's; it adds them.

use crate::protocol::F_PROTOCOL_FEATURES;

/// The device takes packets whose checksum is not complete.
pub const CSUM: u64 = 1;
/// The driver does.
pub const GUEST_CSUM: u64 = 1 << 1;
/// The device says its MTU.
pub const MTU: u64 = 1 << 3;
/// The driver takes TCP segments over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// The driver takes TCP segments over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// The driver takes TCP segments with ECN.
pub const GUEST_ECN: u64 = 1 << 9;
/// The device takes TCP segments over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// The device takes TCP segments over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// The device takes TCP segments with ECN.
pub const HOST_ECN: u64 = 1 << 13;
/// A packet may fill several receive buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// Any layout of header and frame in descriptors.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// Tables of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Events at an index.
pub const EVENT_IDX: u64 = 1 << 29;
/// Virtio 1.
pub const VERSION_1: u64 = 1 << 32;

/// What a port offers; that of a network with an MTU offers [`MTU`], too.
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
