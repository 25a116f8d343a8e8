//! Frames from VM to VM.

use punctual_model::network::Groups;
use punctual_net::{InterfaceParams, Rate};
use punctual_switch::features;
use punctual_switch::session::TX;
use punctual_switch::testing::{self, Options};

use super::common::{ALL, LONG, Lab, SHORT, Setting, address, expect, expect_nothing, frame};

const DISCIPLINES: [&str; 3] = ["netback", "rtca", "preemptive"];

#[test]
fn a_frame_goes_to_the_port_of_its_address_and_to_no_other() {
    for discipline in DISCIPLINES {
        let mut lab = Lab::new(Setting::plain(discipline, 3));
        let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
        for number in 0..1_000 {
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
            expect(&mut b, &frame(0, 1, number));
        }
        expect_nothing(&mut c);
        expect_nothing(&mut a);
        let report = lab.stop();
        assert_eq!(report.ports[0].delivered.packets, 1_000, "{discipline}");
        assert_eq!(report.ports[1].received.bytes, 64_000);
        assert_eq!(report.ports[0].latency.histogram().count(), 1_000);
        assert_eq!(report.ports[0].drops.no_receiver, 1, "the frame to itself");
    }
}

#[test]
fn broadcasts_and_unknown_addresses_reach_all_others() {
    let lab = Lab::new(Setting::plain("rtca", 4));
    let mut vms = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    for to in [ALL, address(77), [0x33, 0x33, 0, 0, 0, 1]] {
        let sent = testing::frame(to, address(0), 5, 80);
        assert!(vms[0].send(&sent).expect("sent"));
        expect(&mut vms[1], &sent);
        expect(&mut vms[2], &sent);
    }
    expect_nothing(&mut vms[0]);
}

#[test]
fn floods_leave_a_quarter_of_a_sleeping_receivers_buffers_to_frames_for_it() {
    for planes in [vec![0, 0, 0], vec![0, 0, 1]] {
        let mut lab = Lab::new(Setting { planes, ..Setting::plain("rtca", 3) });
        let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
        // To all, and to an address that nobody has.
        for (number, to) in (0..600).zip([ALL, address(77)].into_iter().cycle()) {
            while !c.send(&testing::frame(to, address(2), number, 64)).expect("sent") {
                std::thread::yield_now();
            }
        }
        while c.free(TX) < 256 {
            c.reclaim().expect("reclaimed");
        }
        for number in 0..60 {
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
        }
        for number in 0..60 {
            while b.receive_within(LONG).expect("whole").expect("a frame").frame != frame(0, 1, number) {}
        }
        let report = lab.stop();
        assert_eq!(report.ports[0].drops.destination_ring, 0);
        assert!(report.ports[2].drops.destination_ring > 600, "{:?}", report.ports[2].drops);
    }
}

/// Sampled values (IEC 61850-9-2) have group addresses, and 4,000 frames a second a stream.
#[test]
fn frames_of_a_group_go_to_its_members_however_many_they_are() {
    const FRAMES: u64 = 20_000;
    let group = Groups::parse("01:0c:cd:04:00:00-01:0c:cd:04:01:ff").expect("groups");
    for planes in [vec![0, 0, 0, 0], vec![0, 1, 0, 1]] {
        let mut setting = Setting { planes, ..Setting::plain("rtca", 4) };
        setting.groups = vec![vec![group], vec![group]];
        let mut lab = Lab::new(setting);
        let [mut publisher, mut subscriber, mut other, mut flooder] =
            [0, 1, 2, 3].map(|port| lab.vm(port, Options::default()));
        let to = [1, 0x0c, 0xcd, 4, 0, 7];
        let (mut sent, mut received) = (0, 0);
        while received < FRAMES {
            if sent < FRAMES
                && sent - received < 64
                && publisher.send(&testing::frame(to, address(0), 0, 64)).expect("sent")
            {
                sent += 1;
            }
            received += u64::from(subscriber.receive().expect("whole").is_some());
            publisher.reclaim().expect("reclaimed");
        }
        // A port that is no member floods, within the limit, to all.
        assert!(flooder.send(&testing::frame(to, address(3), 0, 64)).expect("sent"));
        other.receive_within(LONG).expect("whole").expect("the flooded frame");
        let report = lab.stop();
        let drops = report.ports[0].drops;
        assert_eq!((drops.flood, drops.softnet, drops.destination_ring), (0, 0, 0));
        assert_eq!(report.ports[2].received.packets, 1, "no member gets none of them");
    }
}

#[test]
fn floods_are_limited_and_other_frames_pass() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for number in 0..3_000 {
        let sent = testing::frame(ALL, address(0), number, 64);
        while !a.send(&sent).expect("sent") {
            std::thread::yield_now();
        }
        while b.receive().expect("whole frames").is_some() {}
    }
    while !a.send(&frame(0, 1, 1)).expect("sent") {}
    while b.receive_within(LONG).expect("whole").expect("a frame").frame != frame(0, 1, 1) {}
    let report = lab.stop();
    let flooded = report.ports[0].drops.flood;
    assert!((1_000..=2_000).contains(&flooded), "{flooded} of 3000 were beyond the rate");
}

#[test]
fn every_layout_of_headers_and_rings_works() {
    let old = features::EVENT_IDX | features::VERSION_1;
    let kinds = [
        Options::default(),
        Options { features: features::OFFERED & !features::EVENT_IDX, ..Options::default() },
        Options { features: old, ..Options::default() },
        Options { entries: 16, buffer_bytes: 512, ..Options::default() },
        Options { entries: 1024, ..Options::default() },
    ];
    for kind in kinds {
        let lab = Lab::new(Setting::plain("preemptive", 2));
        let (mut a, mut b) = (lab.vm(0, kind), lab.vm(1, Options::default()));
        for number in 0..40 {
            let sent = testing::frame(address(1), address(0), number, 200);
            assert!(a.send_with([0; 12], &sent, 60).expect("sent"));
            expect(&mut b, &sent);
            let back = frame(1, 0, number);
            assert!(b.send(&back).expect("sent"));
            expect(&mut a, &back);
        }
    }
}

/// A segment of TCP over IPv4 with a partial checksum.
const SEGMENT: [u8; 12] = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];

#[test]
fn a_segment_of_64_kib_crosses_as_one_with_its_header() {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let (mut a, mut b) = (
        lab.vm(0, Options { buffer_bytes: 4096, ..Options::default() }),
        lab.vm(1, Options { buffer_bytes: 1536, ..Options::default() }),
    );
    let mut c =
        lab.vm(2, Options { features: features::VERSION_1 | features::EVENT_IDX, ..Options::default() });
    let sent = testing::frame(address(1), address(0), 9, 65_000);
    assert!(a.send_with(SEGMENT, &sent, 4096).expect("sent"));
    let received = b.receive_within(LONG).expect("whole").expect("a frame");
    assert_eq!(received.header[..10], SEGMENT[..10]);
    assert!(received.frame == sent);
    assert_eq!(u16::from_le_bytes([received.header[10], received.header[11]]), 43, "buffers");
    // Its driver accepts no segments.
    assert!(a.send_with(SEGMENT, &testing::frame(address(2), address(0), 1, 900), 4096).expect("sent"));
    expect_nothing(&mut c);
    // Nor frames longer than its buffers.
    assert!(a.send(&testing::frame(address(2), address(0), 1, 3_000)).expect("sent"));
    expect_nothing(&mut c);
    assert!(a.send(&frame(0, 2, 3)).expect("sent"));
    expect(&mut c, &frame(0, 2, 3));
    let drops = lab.stop().ports[0].drops;
    assert_eq!((drops.offload, drops.destination_ring), (1, 1));
}

/// virtio 1.2, section 5.1.6.2.1; a tap of Linux refuses the same.
#[test]
fn a_header_that_does_not_fit_its_frame_does_not_reach_the_receiver() {
    let mut lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let sent = testing::frame(address(1), address(0), 9, 900);
    let with = |at: usize, value: u16| {
        let mut header = SEGMENT;
        header[at..at + 2].copy_from_slice(&value.to_le_bytes());
        header
    };
    let without_checksum = [0, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0];
    let (hdr_len, gso_size, csum_start) = (2, 4, 6);
    let last = u16::try_from(sent.len() - 18).expect("short");
    let lies = [
        with(hdr_len, 65_535),
        with(gso_size, 0),
        with(csum_start, 65_535),
        with(csum_start, last + 1),
        without_checksum,
    ];
    for lie in lies {
        assert!(a.send_with(lie, &sent, 4096).expect("sent"));
    }
    for truth in [with(csum_start, last), SEGMENT] {
        assert!(a.send_with(truth, &sent, 4096).expect("sent"));
        let received = b.receive_within(LONG).expect("whole").expect("a frame");
        assert_eq!(received.header[..10], truth[..10], "the lies are not before it");
    }
    assert_eq!(lab.stop().ports[0].drops.malformed, lies.len() as u64);
}

#[test]
fn an_indirect_table_is_read() {
    let lab = Lab::new(Setting::plain("netback", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let sent = testing::frame(address(1), address(0), 3, 300);
    let bytes = [&[0; 12][..], &sent].concat();
    let (table, data) = (a.buffer(TX, 100), a.buffer(TX, 101));
    vm_memory::Bytes::write_slice(a.memory(), &bytes, vm_memory::GuestAddress(data)).expect("written");
    a.describe_at(table, data, 12, 1, 1).expect("written");
    a.describe_at(table + 16, data + 12, 100, 1, 2).expect("written");
    a.describe_at(table + 32, data + 112, 200, 0, 0).expect("written");
    a.describe(TX, 100, table, 48, 4, 0).expect("written");
    a.offer(TX, 100).expect("offered");
    expect(&mut b, &sent);
}

#[test]
fn a_rate_limit_delays_and_drops_nothing() {
    let rate = Rate::new(64 * 10, punctual_sched::Duration::from_ms(20));
    let mut setting = Setting::plain("rtca", 2);
    setting.ports[0] = InterfaceParams { rate: Some(rate), ..setting.ports[0].clone() };
    let mut lab = Lab::new(setting);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let start = std::time::Instant::now();
    for number in 0..60 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
    }
    for number in 0..60 {
        expect(&mut b, &frame(0, 1, number));
    }
    // The first ten at once, then ten in each window; the first window began before.
    assert!(start.elapsed() >= SHORT * 2, "60 frames took {:?}", start.elapsed());
    let drops = lab.stop().ports[0].drops;
    assert_eq!(drops.total(), 1, "only the frame to itself: {drops:?}");
}

#[test]
fn a_vm_without_buffers_loses_frames_and_the_sender_gets_its_buffers_back() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let (mut a, b) =
        (lab.vm(0, Options::default()), lab.vm(1, Options { entries: 16, ..Options::default() }));
    for number in 0..100 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
    }
    let end = std::time::Instant::now() + LONG;
    while lab.switch().count().ports[0].sent.packets < 101 && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(b);
    let report = lab.stop();
    assert_eq!(report.ports[1].received.packets, 16);
    assert_eq!(report.ports[0].drops.destination_ring, 84);
    a.reclaim().expect("reclaimed");
    assert_eq!(a.free(TX), 256, "every buffer came back");
}
