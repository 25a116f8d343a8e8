//! The headers of a frame that the switch reads: virtio-net's (virtio 1.2, section 5.1.6) and Ethernet's.

use crate::features;
use crate::narrow::to_u32;

/// Bytes of the virtio-net header of virtio 1, and of the legacy one with mergeable buffers.
pub(crate) const HEADER_BYTES: usize = 12;

/// Bytes of both addresses and the type.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// The type of a frame with a VLAN tag: the TPID of IEEE 802.1Q.
pub const TAGGED: [u8; 2] = [0x81, 0];

/// The type of a frame with a provider's tag: the TPID of IEEE 802.1ad.
pub(crate) const PROVIDER_TAGGED: [u8; 2] = [0x88, 0xa8];

/// Bytes of a VLAN tag with its TPID.
pub(crate) const TAG_BYTES: usize = 4;

/// The longest frame: a segment of 64 KiB with Ethernet header and two VLAN tags.
pub const FRAME_BYTES_MAX: u32 = 65_536 + 22;

/// Bytes of the virtio-net header of a driver that accepted `features`.
pub(crate) fn header_bytes(features: u64) -> usize {
    match features & (features::VERSION_1 | features::MRG_RXBUF) {
        // The legacy header has no `num_buffers`.
        0 => HEADER_BYTES - 2,
        _ => HEADER_BYTES,
    }
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
const GSO_ECN: u8 = 0x80;

/// Does a frame with this header need no checksum and no segmentation?
pub(crate) fn is_complete(header: &[u8; HEADER_BYTES]) -> bool {
    header[0] & NEEDS_CSUM == 0 && header[1] == 0
}

/// The header with which a receiver that accepted `features` gets a frame that was sent with header `sent`.
/// `None`: the receiver does not accept such a frame. The caller sets `num_buffers`.
#[inline]
pub(crate) fn vnet_header_for(sent: &[u8; HEADER_BYTES], features: u64) -> Option<[u8; HEADER_BYTES]> {
    let flags = sent[0] & NEEDS_CSUM;
    if (flags, sent[1]) != (0, 0) && !takes_offload(flags, sent[1], features) {
        return None;
    }
    let mut header = [0; HEADER_BYTES];
    header[..10].copy_from_slice(&sent[..10]);
    header[0] = flags;
    Some(header)
}

/// Does a receiver that accepted `features` accept these flags and this `gso_type`?
fn takes_offload(flags: u8, kind: u8, features: u64) -> bool {
    let has = |feature: u64| features & feature != 0;
    let segments = match kind & !GSO_ECN {
        0 => kind == 0,
        1 => has(features::GUEST_TSO4),
        4 => has(features::GUEST_TSO6),
        _ => false,
    };
    let ecn = kind & GSO_ECN == 0 || has(features::GUEST_ECN);
    let checksum = flags == 0 || has(features::GUEST_CSUM);
    segments && ecn && checksum
}

/// Is a frame longer than `mtu` permits? For a segment the frames count that it becomes: `gso_size` bytes
/// behind IP and TCP headers of minimal length.
#[inline]
pub(crate) fn exceeds_mtu(
    mtu: u32,
    header: &[u8; HEADER_BYTES],
    start: &[u8; ETHERNET_BYTES],
    bytes: u32,
) -> bool {
    let payload = match header[1] & !GSO_ECN {
        0 => {
            let tag = if start.ends_with(&TAGGED) { TAG_BYTES } else { 0 };
            bytes.saturating_sub(to_u32(ETHERNET_BYTES + tag))
        }
        kind => u32::from(u16::from_le_bytes([header[4], header[5]])) + if kind == 4 { 60 } else { 40 },
    };
    payload > mtu
}

/// Shifts `hdr_len` and `csum_start` of a frame whose Ethernet header became longer or shorter.
#[inline]
pub(crate) fn shift_offsets(header: &mut [u8; HEADER_BYTES], growth: i16) {
    let mut shift = |at: usize| {
        let place = u16::from_le_bytes([header[at], header[at + 1]]).saturating_add_signed(growth);
        header[at..at + 2].copy_from_slice(&place.to_le_bytes());
    };
    // hdr_len and csum_start.
    shift(2);
    shift(6);
}

/// Bytes of the virtio-net header and the Ethernet header.
pub(crate) const FRAME_HEAD_BYTES: usize = HEADER_BYTES + ETHERNET_BYTES;

/// The virtio-net header and the Ethernet header of a frame, in words as they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameHead {
    /// Little-endian.
    pub(crate) words: [u64; 3],
    /// The Ethernet type, little-endian.
    pub(crate) last: u16,
}

impl From<[u8; FRAME_HEAD_BYTES]> for FrameHead {
    fn from(bytes: [u8; FRAME_HEAD_BYTES]) -> Self {
        let word = |at: usize| std::array::from_fn(|byte| bytes[at + byte]);
        let words = [0, 8, 16].map(|at| u64::from_le_bytes(word(at)));
        FrameHead { words, last: u16::from_le_bytes([bytes[24], bytes[25]]) }
    }
}

impl FrameHead {
    fn bytes(&self) -> [u8; FRAME_HEAD_BYTES] {
        let [first, second, third] = self.words.map(u64::to_le_bytes);
        let last = self.last.to_le_bytes();
        std::array::from_fn(|at| match at / 8 {
            0 => first[at],
            1 => second[at - 8],
            2 => third[at - 16],
            _ => last[at - 24],
        })
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let bytes = self.bytes();
        std::array::from_fn(|at| bytes[at])
    }

    pub(crate) fn ethernet_header(&self) -> [u8; ETHERNET_BYTES] {
        let bytes = self.bytes();
        std::array::from_fn(|at| bytes[HEADER_BYTES + at])
    }

    /// Both addresses, to compare.
    #[inline]
    pub(crate) fn address_key(&self) -> (u64, u32) {
        (self.words[2], (self.words[1] >> 32) as u32)
    }

    /// `gso_type`; 0: not a segment.
    #[inline]
    fn kind(&self) -> u8 {
        (self.words[0] >> 8 & 0xff) as u8
    }

    /// Does the header agree with a frame of so many bytes? A checksum is within the frame; a segment has
    /// headers within it, a size, and a checksum to be completed (virtio 1.2, section 5.1.6.2.1). Linux's tap
    /// refuses the same (`drivers/net/tun.c`, `include/linux/virtio_net.h`).
    #[inline]
    pub(crate) fn is_consistent(&self, bytes: u32) -> bool {
        self.words[0] & (0xff00 | u64::from(NEEDS_CSUM)) == 0 || self.has_fitting_offload(bytes)
    }

    fn has_fitting_offload(&self, bytes: u32) -> bool {
        let header = self.header();
        let word = |at: usize| u32::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let [hdr_len, gso_size, csum_start, csum_offset] = [2, 4, 6, 8].map(word);
        let has_checksum = header[0] & NEEDS_CSUM != 0;
        let is_segment = self.kind() & !GSO_ECN != 0;
        (!has_checksum || csum_start + csum_offset + 2 <= bytes)
            && (!is_segment || has_checksum && gso_size > 0 && hdr_len <= bytes)
    }

    /// As the function of this name, with a fast path for short frames.
    #[inline]
    pub(crate) fn exceeds_mtu(&self, mtu: u32, bytes: u32) -> bool {
        let is_short = self.kind() == 0 && bytes <= mtu;
        !is_short && exceeds_mtu(mtu, &self.header(), &self.ethernet_header(), bytes)
    }

    /// As the function of this name, for a frame in one buffer, in words.
    #[inline]
    pub(crate) fn vnet_header_for(&self, features: u64) -> Option<(u64, u32)> {
        const ONE: u32 = 1 << 16;
        if self.kind() == 0 && self.words[0] & u64::from(NEEDS_CSUM) == 0 {
            return Some((self.words[0] & !0xff, (self.words[1] & 0xffff) as u32 | ONE));
        }
        let [a, b, c, d, e, f, g, h, i, j, ..] = vnet_header_for(&self.header(), features)?;
        Some((u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, 0, 0]) | ONE))
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 6]);

impl Address {
    /// Multicast or broadcast?
    pub(crate) fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Destination and source.
#[inline]
pub(crate) fn addresses(frame: &[u8; ETHERNET_BYTES]) -> (Address, Address) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *frame;
    (Address([a, b, c, d, e, f]), Address([g, h, i, j, k, l]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = features::OFFERED;

    fn header(flags: u8, kind: u8) -> [u8; HEADER_BYTES] {
        [flags, kind, 66, 0, 0xa8, 5, 34, 0, 16, 0, 9, 9]
    }

    #[test]
    fn a_segment_passes_as_it_is_to_whom_takes_it() {
        assert_eq!(vnet_header_for(&header(1, 1), ALL), Some([1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]));
        assert_eq!(vnet_header_for(&header(1, 0x84), ALL).map(|h| h[1]), Some(0x84));
        // Only a device may set `VIRTIO_NET_HDR_F_DATA_VALID`.
        assert_eq!(vnet_header_for(&header(3, 1), ALL).map(|h| h[0]), Some(1));
    }

    #[test]
    fn a_frame_that_its_receiver_does_not_take_has_no_header() {
        assert_eq!(vnet_header_for(&header(1, 0), ALL & !features::GUEST_CSUM), None);
        assert_eq!(vnet_header_for(&header(0, 1), ALL & !features::GUEST_TSO4), None);
        assert_eq!(vnet_header_for(&header(0, 4), ALL & !features::GUEST_TSO6), None);
        assert_eq!(vnet_header_for(&header(0, 0x81), ALL & !features::GUEST_ECN), None);
        assert_eq!(vnet_header_for(&header(0, 3), ALL), None, "UDP fragments are not offered");
        assert!(vnet_header_for(&header(0, 0), 0).is_some());
    }

    #[test]
    fn an_mtu_counts_what_is_behind_addresses_type_and_tag() {
        let plain = [8; ETHERNET_BYTES];
        let mut tagged = plain;
        tagged[12..].copy_from_slice(&TAGGED);
        let exceeds_mtu = |start, bytes| super::exceeds_mtu(1_500, &header(0, 0), start, bytes);
        assert!(!exceeds_mtu(&plain, 1_514) && exceeds_mtu(&plain, 1_515));
        assert!(!exceeds_mtu(&tagged, 1_518) && exceeds_mtu(&tagged, 1_519));
    }

    #[test]
    fn an_mtu_counts_the_frames_that_a_segment_becomes() {
        // gso_size is 0x05a8 = 1,448.
        let exceeds_mtu = |kind, mtu| super::exceeds_mtu(mtu, &header(1, kind), &[0; ETHERNET_BYTES], 65_000);
        assert!(!exceeds_mtu(1, 1_500) && !exceeds_mtu(0x81, 1_488) && exceeds_mtu(1, 1_487));
        assert!(!exceeds_mtu(4, 1_508) && exceeds_mtu(4, 1_507));
    }

    #[test]
    fn places_move_with_the_front() {
        let mut moved = header(1, 1);
        shift_offsets(&mut moved, 4);
        assert_eq!(moved, [1, 1, 70, 0, 0xa8, 5, 38, 0, 16, 0, 9, 9]);
        shift_offsets(&mut moved, -4);
        assert_eq!(moved, header(1, 1));
    }

    #[test]
    fn the_older_header_is_shorter() {
        assert_eq!(header_bytes(0), 10);
        assert_eq!(header_bytes(features::MRG_RXBUF), 12);
        assert_eq!(header_bytes(features::VERSION_1), 12);
    }
}
