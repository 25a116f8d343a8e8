//! Frames of flows: an Ethernet header with the EtherType for local experiments (IEEE Std 802), the packet's
//! role in its flow, and zeros up to the length in the host file.

/// IEEE 802 local experimental EtherType 1.
pub(crate) const ETHERTYPE: u16 = 0x88b5;
/// The EtherType of a VLAN tag (IEEE 802.1Q), and its length.
const TAGGED: [u8; 2] = [0x81, 0];
const TAG_BYTES: usize = 4;
/// Length of both addresses.
const ADDRESSES_BYTES: usize = 12;
/// Length of the shortest frame.
const HEADER_BYTES: usize = 42;

/// The role of a packet in its flow or chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A packet that wants a reply.
    Request,
    Reply,
    /// A packet without an answer.
    Plain,
    /// Data of a stream.
    Data,
    /// Acknowledges all data of a stream before the packet's number.
    Ack,
    /// Releases a job of this step of the chain.
    Hop(u8),
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Number of the flow or chain.
    pub owner: u16,
    pub role: Role,
    /// Sequence number within the flow and role, from 0.
    pub number: u64,
    /// Creation time of the packet, since the run's start. A reply carries its request's creation time, a hop
    /// the release time of the chain's first step.
    pub origin_ns: u64,
}

impl Packet {
    /// Writes the packet into `frame` as a frame of `bytes`, or of the shortest length if that is greater.
    /// With a PCP the frame has a tag of VLAN 0, which carries a priority only.
    pub fn write(&self, (from, to): ([u8; 6], [u8; 6]), pcp: Option<u8>, bytes: u32, frame: &mut Vec<u8>) {
        let (role, step) = match self.role {
            Role::Request => (0, 0),
            Role::Reply => (1, 0),
            Role::Plain => (2, 0),
            Role::Data => (3, 0),
            Role::Ack => (4, 0),
            Role::Hop(step) => (5, step),
        };
        frame.clear();
        frame.extend(to);
        frame.extend(from);
        if let Some(pcp) = pcp {
            frame.extend(TAGGED);
            frame.extend([pcp << 5, 0]);
        }
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend([role, step]);
        frame.extend(self.owner.to_be_bytes());
        frame.extend(self.number.to_be_bytes());
        frame.extend(self.origin_ns.to_be_bytes());
        frame.resize((bytes as usize).max(HEADER_BYTES + tag_bytes(frame)), 0);
    }

    /// Reads a frame; returns its sender and packet, or `None` for a frame of another kind.
    pub fn read(frame: &[u8]) -> Option<([u8; 6], Packet)> {
        let addresses: &[u8; ADDRESSES_BYTES] = frame.first_chunk()?;
        let rest: &[u8; HEADER_BYTES - ADDRESSES_BYTES] =
            frame.get(ADDRESSES_BYTES + tag_bytes(frame)..)?.first_chunk()?;
        let number = |at: usize| rest[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if rest[..2] != ETHERTYPE.to_be_bytes() {
            return None;
        }
        let role = match rest[2] {
            0 => Role::Request,
            1 => Role::Reply,
            2 => Role::Plain,
            3 => Role::Data,
            4 => Role::Ack,
            5 => Role::Hop(rest[3]),
            _ => return None,
        };
        let owner = u16::from_be_bytes([rest[4], rest[5]]);
        let [.., a, b, c, d, e, f] = *addresses;
        Some(([a, b, c, d, e, f], Packet { owner, role, number: number(6), origin_ns: number(14) }))
    }
}

/// Length of the frame's VLAN tag, if it has one.
pub(super) fn tag_bytes(frame: &[u8]) -> usize {
    let kind = frame.get(ADDRESSES_BYTES..ADDRESSES_BYTES + TAGGED.len());
    if kind == Some(&TAGGED) { TAG_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_is_what_was_written() {
        let roles = [Role::Request, Role::Reply, Role::Plain, Role::Data, Role::Ack, Role::Hop(7)];
        for (number, role) in roles.into_iter().enumerate() {
            let packet = Packet { owner: 300, role, number: number as u64, origin_ns: u64::MAX - 1 };
            let mut frame = vec![9; 4000];
            for pcp in [None, Some(4)] {
                packet.write(([1; 6], [2; 6]), pcp, 98, &mut frame);
                assert_eq!((frame.len(), Packet::read(&frame)), (98, Some(([1; 6], packet))));
                assert_eq!(frame[..6], [2; 6]);
                assert_eq!(frame[12..16] == [0x81, 0, 4 << 5, 0], pcp.is_some());
                // Without the tag, as a guest's kernel hands it over.
                let bare = [&frame[..12], &frame[12 + tag_bytes(&frame)..]].concat();
                assert_eq!(Packet::read(&bare), Some(([1; 6], packet)));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Packet::read(&bytes);
        }
    }
}
