//! VLANs (IEEE 802.1Q): which VLAN a frame is in, and with which tag it leaves.
//!
//! # Rules
//! - A frame without a tag, or with a tag of VLAN 0, is in the port's untagged VLAN. A frame with another tag
//!   is in the VLAN of its tag, if that is in the port's trunk. All other frames are dropped.
//! - A frame leaves through ports of its VLAN only: untagged where it is the port's untagged VLAN, else
//!   tagged.
//! - Behind a tag that is taken off, no other tag may come to light where it would count: a frame with a tag
//!   behind one of VLAN 0 is dropped, and a frame with two tags does not leave untagged through a port that
//!   has a trunk.
//! - A reserved address belongs to its VM in every VLAN, a learned one in the VLAN where it was learned.
//! - The receiver gets the Ethernet header, with the type behind a tag, as it was read at ingress. A guest
//!   that changes its frame in the meantime does not change its VLAN.
//!
//! A switch without VLANs passes tags unchanged.

use punctual_model::network::{DEFAULT_VLAN, Vlans};

use crate::frame::{ETHERNET_BYTES, PROVIDER_TAGGED, TAG_BYTES, TAGGED};
use crate::narrow::{to_u8, to_u16};

/// VLANs of a switch. Entries of the address table have 7 bits for them, and one value means all.
pub(crate) const VLANS_MAX: usize = 126;

/// The VLAN number of a tag.
const NUMBER: u16 = 0x0fff;

/// A VLAN by its index among those of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlan(pub(crate) u8);

/// More VLANs than `VLANS_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a switch has at most {VLANS_MAX} VLANs, not {0}")]
pub struct TooManyVlans(pub usize);

/// Which ports are in which VLANs.
#[derive(Debug)]
pub struct Filter {
    /// By index.
    numbers: Vec<u16>,
    /// By number.
    places: Box<[Option<Vlan>]>,
    ports: Vec<Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    untagged: Option<Vlan>,
    /// A bit for each index.
    tagged: u128,
}

impl Member {
    fn new(vlans: &Vlans, places: &[Option<Vlan>]) -> Member {
        let of = |number: &u16| places[usize::from(number & NUMBER)];
        Member {
            untagged: vlans.untagged.as_ref().and_then(of),
            tagged: vlans.tagged.iter().filter_map(of).fold(0, |all, vlan| all | 1 << vlan.0),
        }
    }
}

impl Filter {
    /// The filter of ports with these VLANs; `None` if none of them has any.
    ///
    /// # Errors
    /// When there are too many VLANs.
    pub fn new(ports: &[Vlans]) -> Result<Option<Filter>, TooManyVlans> {
        if !ports.iter().any(Vlans::are_given) {
            return Ok(None);
        }
        let default = Vlans { untagged: Some(DEFAULT_VLAN), tagged: Vec::new() };
        let ports = || ports.iter().map(|vlans| if vlans.are_given() { vlans } else { &default });
        let mut numbers: Vec<u16> =
            ports().flat_map(|vlans| vlans.untagged.iter().chain(&vlans.tagged)).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > VLANS_MAX {
            return Err(TooManyVlans(numbers.len()));
        }
        let mut places = vec![None; usize::from(NUMBER) + 1].into_boxed_slice();
        for (place, number) in numbers.iter().enumerate() {
            places[usize::from(number & NUMBER)] = Some(Vlan(to_u8(place)));
        }
        let ports = ports().map(|vlans| Member::new(vlans, &places)).collect();
        Ok(Some(Filter { numbers, places, ports }))
    }

    /// This filter with a port added or changed. VLANs keep their indices, so frames in flight stay in
    /// theirs.
    ///
    /// # Errors
    /// When there are too many VLANs; those of removed ports count.
    pub(crate) fn with(&self, port: usize, vlans: &Vlans) -> Result<Filter, TooManyVlans> {
        let default = Vlans { untagged: Some(DEFAULT_VLAN), tagged: Vec::new() };
        let vlans = if vlans.are_given() { vlans } else { &default };
        let Filter { numbers, places, ports } = self;
        let (mut numbers, mut places, mut ports) = (numbers.clone(), places.clone(), ports.clone());
        for number in vlans.untagged.iter().chain(&vlans.tagged) {
            let place = &mut places[usize::from(number & NUMBER)];
            if place.is_none() {
                *place = Some(Vlan(to_u8(numbers.len())));
                numbers.push(*number);
            }
            if numbers.len() > VLANS_MAX {
                return Err(TooManyVlans(numbers.len()));
            }
        }
        let none = Member { untagged: None, tagged: 0 };
        ports.resize(ports.len().max(port + 1), none);
        ports[port] = Member::new(vlans, &places);
        Ok(Filter { numbers, places, ports })
    }

    /// The VLAN of a frame with this tag from `port`; `None` if the port is not in it, or if another tag is
    /// behind one of VLAN 0.
    #[inline]
    pub fn classify(&self, port: usize, tag: Option<VlanTag>) -> Option<Vlan> {
        let member = &self.ports[port];
        match tag.map(|tag| tag.control & NUMBER) {
            Some(0) if tag.is_some_and(VlanTag::is_stacked) => None,
            None | Some(0) => member.untagged,
            Some(number) => self.places[usize::from(number)].filter(|vlan| member.tagged & 1 << vlan.0 != 0),
        }
    }

    /// The header of a frame of `vlan` that leaves through `port`; `None` if it may not.
    #[inline]
    pub fn rewrite(&self, port: usize, vlan: Vlan, start: &EthernetHeader) -> Option<HeaderRewrite> {
        let member = &self.ports[port];
        if !self.admits(port, vlan, start.is_stacked()) {
            return None;
        }
        if member.untagged == Some(vlan) {
            return Some(HeaderRewrite::untagged(start));
        }
        // The priority bits of the tag stay as they are.
        let number = *self.numbers.get(usize::from(vlan.0)).filter(|_| member.tagged & 1 << vlan.0 != 0)?;
        Some(HeaderRewrite::tagged(start, start.tag.map_or(0, |tag| tag.control) & !NUMBER | number))
    }

    /// May a frame of `vlan`, with a second tag or not, leave through `port`?
    #[inline]
    pub(crate) fn admits(&self, port: usize, vlan: Vlan, is_stacked: bool) -> bool {
        let member = &self.ports[port];
        if member.untagged == Some(vlan) {
            // The second tag would become the first one, and say a VLAN of the trunk.
            return !is_stacked || member.tagged == 0;
        }
        member.tagged & 1 << vlan.0 != 0
    }
}

/// A VLAN tag and what is behind it, read at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority and VLAN (the TCI of IEEE 802.1Q).
    pub control: u16,
    /// The type behind the tag.
    pub kind: [u8; 2],
}

impl VlanTag {
    /// The priority code point (PCP).
    #[inline]
    pub(crate) fn pcp(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// Is there another tag behind it?
    #[inline]
    fn is_stacked(self) -> bool {
        [TAGGED, PROVIDER_TAGGED].contains(&self.kind)
    }
}

/// The Ethernet header of a frame as it was read at ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Addresses and type.
    pub bytes: [u8; ETHERNET_BYTES],
    pub tag: Option<VlanTag>,
}

impl EthernetHeader {
    #[inline]
    pub(crate) fn is_stacked(&self) -> bool {
        self.tag.is_some_and(VlanTag::is_stacked)
    }
}

const ADDRESSES_BYTES: usize = ETHERNET_BYTES - 2;

/// Addresses, tag and type.
const TAGGED_BYTES: usize = ETHERNET_BYTES + TAG_BYTES;

/// What the receiver gets instead of the first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderRewrite {
    bytes: [u8; ETHERNET_BYTES + TAG_BYTES],
    length: usize,
    /// Bytes of the sender's frame that it replaces.
    pub(crate) replaces: usize,
}

impl HeaderRewrite {
    fn new(parts: &[&[u8]], replaces: usize) -> HeaderRewrite {
        let mut rewrite = HeaderRewrite { bytes: [0; ETHERNET_BYTES + TAG_BYTES], length: 0, replaces };
        for part in parts {
            rewrite.bytes[rewrite.length..rewrite.length + part.len()].copy_from_slice(part);
            rewrite.length += part.len();
        }
        rewrite
    }

    fn untagged(start: &EthernetHeader) -> HeaderRewrite {
        match start.tag {
            None => HeaderRewrite::new(&[&start.bytes], ETHERNET_BYTES),
            Some(tag) => HeaderRewrite::new(&[&start.bytes[..ADDRESSES_BYTES], &tag.kind], TAGGED_BYTES),
        }
    }

    fn tagged(start: &EthernetHeader, tag: u16) -> HeaderRewrite {
        let (addresses, kind) = start.bytes.split_at(ADDRESSES_BYTES);
        let tag = tag.to_be_bytes();
        match start.tag {
            None => HeaderRewrite::new(&[addresses, &TAGGED, &tag, kind], ETHERNET_BYTES),
            Some(was) => HeaderRewrite::new(&[addresses, &TAGGED, &tag, &was.kind], TAGGED_BYTES),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// How many bytes longer the frame becomes.
    pub(crate) fn growth(&self) -> i16 {
        to_u16(self.length).cast_signed() - to_u16(self.replaces).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vlans(untagged: Option<u16>, tagged: &[u16]) -> Vlans {
        Vlans { untagged, tagged: tagged.to_vec() }
    }

    fn filter(ports: &[Vlans]) -> Filter {
        Filter::new(ports).expect("few VLANs").expect("VLANs")
    }

    /// A tag in front of an IPv4 packet.
    fn tag(control: u16) -> Option<VlanTag> {
        Some(VlanTag { control, kind: [8, 0] })
    }

    #[test]
    fn nobody_has_vlans_unless_somebody_says_so() {
        assert!(Filter::new(&[Vlans::default(), Vlans::default()]).expect("few").is_none());
        let filter = filter(&[Vlans::default(), vlans(Some(7), &[])]);
        assert_ne!(filter.classify(0, None), filter.classify(1, None));
        assert_eq!(filter.classify(0, None), filter.places[1], "the default is VLAN 1");
    }

    #[test]
    fn a_frame_is_in_the_ports_vlan_or_in_one_of_its_trunk() {
        let filter = filter(&[vlans(Some(7), &[8, 9]), vlans(None, &[8])]);
        let place = |number: usize| filter.places[number];
        assert_eq!(filter.classify(0, None), place(7));
        assert_eq!(filter.classify(0, tag(0xe000)), place(7), "a tag with a priority alone");
        assert_eq!(filter.classify(0, tag(0xe009)), place(9));
        for (port, tag) in [(0, tag(7)), (0, tag(4)), (0, tag(0xfff)), (1, None), (1, tag(9))] {
            assert_eq!(filter.classify(port, tag), None, "{port} {tag:?}");
        }
    }

    #[test]
    fn a_port_that_comes_leaves_the_vlans_of_others_where_they_are() {
        let before = filter(&[vlans(Some(7), &[9]), vlans(Some(9), &[])]);
        let after = before.with(3, &vlans(Some(8), &[7])).expect("few VLANs");
        for (port, tag) in [(0, None), (0, tag(9)), (1, None), (0, tag(8))] {
            assert_eq!(before.classify(port, tag), after.classify(port, tag));
        }
        let seven = before.classify(0, None).expect("a member");
        assert_eq!([2, 3].map(|port| after.admits(port, seven, false)), [false, true], "no port 2 is there");
        let again = after.with(3, &Vlans::default()).expect("few VLANs");
        assert_eq!((again.admits(3, seven, false), again.classify(3, None)), (false, again.places[1]));
        let many: Vec<u16> = (100..100 + to_u16(VLANS_MAX)).collect();
        assert_eq!(again.with(3, &vlans(None, &many)).expect_err("too many"), TooManyVlans(VLANS_MAX + 1));
    }

    #[test]
    fn more_vlans_than_an_entry_has_room_for_are_refused() {
        let all: Vec<u16> = (1..=127).collect();
        assert_eq!(Filter::new(&[vlans(None, &all)]).expect_err("too many"), TooManyVlans(127));
        assert!(Filter::new(&[vlans(None, &all[1..])]).is_ok());
    }

    #[test]
    fn a_tag_behind_a_tag_does_not_come_to_light_on_a_trunk() {
        let ports = [vlans(Some(7), &[]), vlans(Some(7), &[9]), vlans(None, &[7, 9]), vlans(Some(9), &[7])];
        let filter = filter(&ports);
        for kind in [TAGGED, PROVIDER_TAGGED] {
            let behind = |control| Some(VlanTag { control, kind });
            let priority_only = [0, 1].map(|port| filter.classify(port, behind(0xe000)));
            assert_eq!(priority_only, [None; 2]);
            let nine = filter.classify(2, behind(9)).expect("a member");
            let header = EthernetHeader { tag: behind(9), ..EthernetHeader::default() };
            let leaves = [0, 1, 2, 3].map(|port| filter.rewrite(port, nine, &header).is_some());
            assert_eq!(leaves, [false, true, true, false], "untagged at port 3, which has a trunk");
        }
    }

    /// The frame as the receiver gets it.
    fn rewritten(rewrite: &HeaderRewrite, frame: &[u8]) -> Vec<u8> {
        [rewrite.bytes(), &frame[rewrite.replaces..]].concat()
    }

    proptest! {
        #[test]
        fn tags_come_and_go_and_the_rest_stays(
            addresses in any::<[u8; 12]>(),
            rest in proptest::collection::vec(any::<u8>(), 2..64),
            tag in proptest::option::of(0u16..=u16::MAX),
            number in 1u16..=4094,
            leaves_tagged in any::<bool>(),
        ) {
            let tag = tag.map(|tag| tag & !NUMBER | number);
            prop_assume!(!rest.starts_with(&TAGGED) && !rest.starts_with(&PROVIDER_TAGGED));
            let bare = [&addresses[..], &rest].concat();
            let with = |tag: u16| [&addresses[..], &TAGGED, &tag.to_be_bytes(), &rest].concat();
            let frame = tag.map_or(bare.clone(), with);
            let of = |tagged: bool| if tagged { vlans(None, &[number]) } else { vlans(Some(number), &[]) };
            let filter = filter(&[of(tag.is_some()), of(leaves_tagged)]);
            let tagged = tag.map(|control| VlanTag { control, kind: [rest[0], rest[1]] });
            let start = EthernetHeader { bytes: *frame.first_chunk().expect("long enough"), tag: tagged };
            let vlan = filter.classify(0, tagged).expect("a member");
            prop_assert!(filter.admits(1, vlan, false));
            let rewrite = filter.rewrite(1, vlan, &start).expect("a member");
            let wanted = if leaves_tagged { with(tag.unwrap_or_default() & !NUMBER | number) } else { bare };
            prop_assert_eq!(rewritten(&rewrite, &frame), wanted);
            let tags = i16::from(leaves_tagged) - i16::from(tag.is_some());
            prop_assert_eq!(rewrite.growth(), 4 * tags);
            // The type that was checked leaves, whatever the guest's memory holds meanwhile.
            prop_assert_eq!(&rewrite.bytes()[rewrite.bytes().len() - 2..], &rest[..2]);
        }

        #[test]
        fn a_frame_leaves_only_where_its_vlan_is(
            own in proptest::collection::vec(memberships(), 2..6),
            port in 0usize..2,
            tag in proptest::option::of(0u16..22),
        ) {
            let ports = own;
            let Some(filter) = Filter::new(&ports).expect("few VLANs") else { return Ok(()) };
            let known = |vlans: &Vlans| if vlans.are_given() { vlans.clone() } else { vlans_of_default() };
            let number = match tag {
                None | Some(0) => known(&ports[port]).untagged,
                Some(number) => known(&ports[port]).tagged.contains(&number).then_some(number),
            };
            let tag = tag.and_then(self::tag);
            let vlan = filter.classify(port, tag);
            prop_assert_eq!(vlan.is_some(), number.is_some());
            let (Some(vlan), Some(number)) = (vlan, number) else { return Ok(()) };
            for (other, of) in ports.iter().enumerate() {
                let of = known(of);
                let is_member = of.untagged == Some(number) || of.tagged.contains(&number);
                let header = EthernetHeader { tag, ..EthernetHeader::default() };
                let rewrite = filter.rewrite(other, vlan, &header);
                prop_assert_eq!(rewrite.is_some(), is_member);
                prop_assert_eq!(filter.admits(other, vlan, false), is_member);
            }
        }
    }

    fn vlans_of_default() -> Vlans {
        vlans(Some(DEFAULT_VLAN), &[])
    }

    fn memberships() -> impl Strategy<Value = Vlans> {
        let parts = (proptest::option::of(1u16..20), proptest::collection::btree_set(1u16..20, 0..5));
        parts.prop_map(|(untagged, tagged)| {
            let tagged = tagged.into_iter().filter(|number| Some(*number) != untagged).collect();
            Vlans { untagged, tagged }
        })
    }
}
