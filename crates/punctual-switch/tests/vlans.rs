//! VLANs and the MTU, from VM to VM.

use punctual_model::network::Vlans;
use punctual_switch::features;
use punctual_switch::testing::{self, FrontEnd, Options};

use super::common::{ALL, LONG, Lab, Setting, address, expect, expect_nothing};

fn vlans(untagged: Option<u16>, tagged: &[u16]) -> Vlans {
    Vlans { untagged, tagged: tagged.to_vec() }
}

/// A frame from port to port, in a VLAN if one is given.
fn frame(from: u8, to: [u8; 6], tag: Option<u16>, number: u64) -> Vec<u8> {
    let mut frame = testing::frame(to, address(from), number, 100);
    if let Some(tag) = tag {
        let [high, low] = tag.to_be_bytes();
        frame.splice(12..12, [0x81, 0, high, low]);
    }
    frame
}

/// Ports 0 and 1 are in VLAN 10, 2 in 20, 3 has both as a trunk, 4 has the default.
fn setting() -> Setting {
    let mut setting = Setting::plain("rtca", 5);
    let own = [vlans(Some(10), &[]), vlans(Some(10), &[]), vlans(Some(20), &[]), vlans(None, &[10, 20])];
    setting.vlans = own.to_vec();
    setting
}

/// A VM on a port.
fn vm(lab: &Lab, port: usize) -> FrontEnd {
    FrontEnd::connected(&lab.socket(port), Options::default()).expect("a VM")
}

#[test]
fn frames_stay_in_their_vlan_and_have_a_tag_where_the_port_is_a_trunk() {
    let mut lab = Lab::new(setting());
    let [mut a, mut b, mut c, mut d, mut e] = [0, 1, 2, 3, 4].map(|port| vm(&lab, port));
    assert!(a.send(&frame(0, ALL, None, 1)).expect("sent"));
    expect(&mut b, &frame(0, ALL, None, 1));
    expect(&mut d, &frame(0, ALL, Some(10), 1));
    expect_nothing(&mut c);
    expect_nothing(&mut e);
    // The trunk answers; the address was learned in VLAN 10 only.
    assert!(d.send(&frame(3, address(0), Some(0xe00a), 2)).expect("sent"));
    expect(&mut a, &frame(3, address(0), None, 2));
    expect_nothing(&mut b);
    assert!(d.send(&frame(3, address(0), Some(20), 3)).expect("sent"));
    expect(&mut c, &frame(3, address(0), None, 3));
    expect_nothing(&mut a);
    drop(lab.stop());
}

#[test]
fn frames_outside_of_the_vlans_are_dropped_and_counted() {
    let mut lab = Lab::new(setting());
    let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|port| vm(&lab, port));
    // An address that was learned in another VLAN is unknown in this one.
    assert!(c.send(&frame(2, ALL, None, 1)).expect("sent"));
    expect(&mut d, &frame(2, ALL, Some(20), 1));
    for (vm, tags) in [(&mut a, [Some(20), Some(10)]), (&mut d, [None, Some(30)])] {
        for tag in tags {
            assert!(vm.send(&frame(9, address(1), tag, 2)).expect("sent"));
        }
    }
    // A tag that does not fit into its frame.
    assert!(a.send(&frame(0, address(1), Some(10), 2)[..16]).expect("sent"));
    assert!(a.send(&frame(0, address(1), None, 3)).expect("sent"));
    expect(&mut b, &frame(0, address(1), None, 3));
    let report = lab.stop();
    let dropped = |port: usize| (report.ports[port].drops.vlan, report.ports[port].drops.malformed);
    assert_eq!([dropped(0), dropped(3)], [(2, 1), (2, 0)]);
}

/// A frame with two tags, the second of this type.
fn stacked(from: u8, to: [u8; 6], tags: [u16; 2], kind: [u8; 2], number: u64) -> Vec<u8> {
    let mut frame = frame(from, to, Some(tags[0]), number);
    frame.splice(16..16, [kind, tags[1].to_be_bytes()].concat());
    frame
}

#[test]
fn a_tag_behind_a_tag_does_not_lead_into_another_vlan() {
    let mut setting = Setting::plain("rtca", 5);
    // Ports 1 and 3 have a VLAN of their own and a trunk, as routers and uplinks to the outside do.
    let own = [vlans(Some(10), &[]), vlans(Some(10), &[20]), vlans(None, &[10, 20]), vlans(Some(20), &[10])];
    setting.vlans = own.to_vec();
    let mut lab = Lab::new(setting);
    let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|port| vm(&lab, port));
    for kind in [[0x81, 0], [0x88, 0xa8]] {
        // Behind a tag with a priority alone: known to no receiver's port, and flooded.
        for to in [ALL, address(1)] {
            assert!(a.send(&stacked(0, to, [0xe000, 20], kind, 1)).expect("sent"));
        }
        // In VLAN 20, and behind it VLAN 10: port 3 would take off the first tag.
        assert!(c.send(&stacked(2, ALL, [20, 10], kind, 2)).expect("sent"));
        expect(&mut b, &stacked(2, ALL, [20, 10], kind, 2));
    }
    [&mut b, &mut c, &mut d].into_iter().for_each(expect_nothing);
    assert!(a.send(&frame(0, ALL, None, 3)).expect("sent"));
    expect(&mut b, &frame(0, ALL, None, 3));
    expect(&mut d, &frame(0, ALL, Some(10), 3));
    let report = lab.stop();
    assert_eq!(report.ports[0].drops.vlan, 4);
}

#[test]
fn header_offsets_shift_with_the_tag() {
    let lab = Lab::new(setting());
    let [mut a, mut d] = [0, 3].map(|port| vm(&lab, port));
    let segment = |headers: u8, checksum: u8| [1, 1, headers, 0, 0xa8, 5, checksum, 0, 16, 0, 0, 0];
    assert!(a.send_with(segment(54, 34), &frame(0, ALL, None, 1), 4096).expect("sent"));
    let received = d.receive_within(LONG).expect("whole").expect("a frame");
    assert_eq!(received.header[..10], segment(58, 38)[..10]);
    assert!(d.send_with(segment(58, 38), &frame(3, ALL, Some(10), 1), 30).expect("sent"));
    let received = a.receive_within(LONG).expect("whole").expect("a frame");
    assert_eq!(received.header[..10], segment(54, 34)[..10]);
    assert_eq!(received.frame, frame(3, ALL, None, 1));
}

#[test]
fn without_vlans_tags_pass_unchanged() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| vm(&lab, port));
    for tag in [None, Some(7), Some(0xffff)] {
        assert!(a.send(&frame(0, ALL, tag, 1)).expect("sent"));
        expect(&mut b, &frame(0, ALL, tag, 1));
    }
}

#[test]
fn the_mtu_is_reported_and_longer_frames_are_dropped() {
    let mut setting = Setting::plain("rtca", 2);
    setting.mtu = Some(1_000);
    let mut lab = Lab::new(setting);
    let with_mtu = Options { features: features::OFFERED | features::MTU, ..Options::default() };
    let mut a = FrontEnd::connected(&lab.socket(0), with_mtu).expect("the feature is offered");
    let mut b = vm(&lab, 1);
    let send = |a: &mut FrontEnd, header, bytes| {
        assert!(a.send_with(header, &testing::frame(ALL, address(0), 1, bytes), 2_000).expect("sent"));
    };
    for bytes in [1_014, 1_015] {
        send(&mut a, [0; 12], bytes);
    }
    // Segments of 960 and of 961 bytes, with 40 of headers.
    for size in [[0xc0, 3], [0xc1, 3]] {
        send(&mut a, [1, 1, 54, 0, size[0], size[1], 34, 0, 16, 0, 0, 0], 30_000);
    }
    for bytes in [1_014, 30_000] {
        assert_eq!(b.receive_within(LONG).expect("whole").expect("a frame").frame.len(), bytes);
    }
    expect_nothing(&mut b);
    assert_eq!(lab.stop().ports[0].drops.mtu, 2);
    let lab = Lab::new(Setting::plain("rtca", 2));
    assert!(FrontEnd::connected(&lab.socket(0), with_mtu).is_err(), "nothing is offered without an MTU");
}
