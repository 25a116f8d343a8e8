//! Ports that are added and removed under the traffic of others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_model::network::Vlans;
use punctual_net::{InterfaceParams, Rate};
use punctual_switch::Error;
use punctual_switch::frame::Address;
use punctual_switch::testing::{self, FrontEnd, Options};

use super::common::{ALL, LONG, Lab, Setting, address, expect, expect_nothing, frame};

fn params(priority: u32) -> InterfaceParams {
    InterfaceParams { priority: Some(priority), ..InterfaceParams::default() }
}

/// Sends from `a` to `b` without a break until `end`. Each frame must arrive, once and in order. Returns
/// their number.
fn flow(a: &mut FrontEnd, b: &mut FrontEnd, end: &AtomicBool) -> u64 {
    let (mut sent, mut came) = (0, 0);
    while !end.load(Ordering::Acquire) || came < sent {
        // No more than the receiver has buffers for, so none may be lost.
        if sent - came < 100 && !end.load(Ordering::Acquire) && a.send(&frame(0, 1, sent + 1)).expect("sent")
        {
            sent += 1;
            continue;
        }
        let received = b.receive_within(LONG).expect("whole frames").expect("no frame is lost");
        if received.frame[11] == 0 && received.frame[..6] != ALL {
            came += 1;
            assert_eq!(testing::number(&received.frame), came, "each frame once, and in order");
        }
    }
    came
}

#[test]
fn adding_and_removing_ports_loses_and_reorders_no_frame_of_others() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let mut lab = Lab::new(Setting::plain(discipline, 2));
        let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
        let end = AtomicBool::new(false);
        let frames = std::thread::scope(|scope| {
            let traffic = scope.spawn(|| flow(&mut a, &mut b, &end));
            for round in 0..10 {
                // More urgent and less urgent than the existing ports.
                let [one, other] = [2, 3].map(|number| {
                    let port = lab.port(number, params((round + number as u32) % 4));
                    lab.switch_mut().plug(port).expect("plugged")
                });
                let (mut c, mut d) = (lab.vm(2, Options::default()), lab.vm(3, Options::default()));
                for number in 0..20 {
                    assert!(c.send(&frame(2, 3, number)).expect("sent"));
                    expect(&mut d, &frame(2, 3, number));
                }
                let stats = lab.switch_mut().unplug(one).expect("a port");
                // Those of this test, and the one from which the switch learned its address.
                assert_eq!((stats.sent.packets, stats.delivered.packets), (21, 20), "{discipline}");
                assert!(!lab.socket(2).exists() && lab.socket(3).exists());
                assert!(c.request(1, &[]).is_err(), "its VM is disconnected");
                assert!(lab.switch_mut().unplug(one).is_none());
                assert_eq!(lab.switch_mut().unplug(other).expect("a port").received.packets, 20);
            }
            end.store(true, Ordering::Release);
            traffic.join().expect("no frame is lost")
        });
        assert!(frames > 100, "{discipline}: {frames} frames");
        let report = lab.stop();
        assert_eq!(report.ports.len(), 4, "places are used again");
    }
}

#[test]
fn a_packet_to_a_removed_port_never_reaches_its_successor() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let mut setting = Setting::plain(discipline, 2);
        // One frame now, the next ones after a while.
        setting.ports[0].rate = Some(Rate::new(100, punctual_sched::Duration::from_ms(200)));
        let mut lab = Lab::new(setting);
        let mut a = lab.vm(0, Options::default());
        let port = lab.port(2, params(1));
        let place = lab.switch_mut().plug(port).expect("plugged");
        let mut c = lab.vm(2, Options::default());
        for number in 1..4 {
            assert!(a.send(&frame(0, 2, number)).expect("sent"));
        }
        expect(&mut c, &frame(0, 2, 1));
        let end = Instant::now() + LONG;
        // With the one from which the switch learned its address.
        while lab.switch().count().ports[0].sent.packets < 4 {
            assert!(Instant::now() < end, "the switch does not take frames");
            std::thread::sleep(Duration::from_millis(1));
        }
        lab.switch_mut().unplug(place).expect("a port");
        let port = lab.port(3, params(1));
        assert_eq!(lab.switch_mut().plug(port).expect("plugged"), place, "{discipline}");
        let mut d = lab.vm(3, Options::default());
        std::thread::sleep(Duration::from_millis(500));
        expect_nothing(&mut d);
        let report = lab.stop();
        assert_eq!(report.ports[0].drops.destination_ring, 2, "{discipline}: {:?}", report.ports[0].drops);
    }
}

#[test]
fn a_reserved_address_is_taken_from_its_user_and_removed_with_its_port() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    // The address of a port that does not exist yet.
    assert!(a.send(&frame(7, 1, 1)).expect("sent"));
    expect(&mut b, &frame(7, 1, 1));
    assert!(b.send(&frame(1, 7, 2)).expect("sent"));
    expect(&mut a, &frame(1, 7, 2));
    let port = punctual_switch::Port { address: Some(Address(address(7))), ..lab.port(7, params(0)) };
    let place = lab.switch_mut().plug(port).expect("plugged");
    let mut c = lab.vm(7, Options::default());
    assert!(b.send(&frame(1, 7, 3)).expect("sent"));
    expect(&mut c, &frame(1, 7, 3));
    lab.switch_mut().unplug(place).expect("a port");
    assert!(b.send(&frame(1, 7, 4)).expect("sent"));
    expect(&mut a, &frame(1, 7, 4));
}

#[test]
fn a_port_that_is_refused_changes_nothing() {
    let mut lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let refused = |lab: &mut Lab, port| lab.switch_mut().plug(port).expect_err("refused");
    let slots = InterfaceParams { ring_slots: Some(0), ..params(1) };
    let port = lab.port(2, slots);
    assert!(matches!(refused(&mut lab, port), Error::Discipline(text) if text.contains("ring_slots")));
    let port = punctual_switch::Port { plane: 1, ..lab.port(2, params(1)) };
    assert!(matches!(refused(&mut lab, port), Error::Plane { plane: 1, .. }));
    let port = lab.port(0, params(1));
    assert!(matches!(refused(&mut lab, port), Error::InUse(_)));
    let vlans = Vlans { untagged: Some(7), tagged: Vec::new() };
    let port = punctual_switch::Port { vlans, ..lab.port(2, params(1)) };
    assert!(matches!(refused(&mut lab, port), Error::FirstVlans));
    assert!(!lab.socket(2).exists());
    assert!(a.send(&frame(0, 1, 1)).expect("sent"));
    expect(&mut b, &frame(0, 1, 1));
    assert_eq!(lab.stop().ports.len(), 2);
}

#[test]
fn an_added_port_is_in_its_vlan() {
    let vlan = |number| Vlans { untagged: Some(number), tagged: Vec::new() };
    let mut setting = Setting::plain("preemptive", 2);
    setting.vlans = vec![vlan(7), vlan(8)];
    let mut lab = Lab::new(setting);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for number in [8, 9, 7] {
        let port = punctual_switch::Port { vlans: vlan(number), ..lab.port(2, params(1)) };
        let place = lab.switch_mut().plug(port).expect("plugged");
        let mut c = lab.vm(2, Options::default());
        assert!(c.send(&testing::frame(ALL, address(2), 5, 64)).expect("sent"));
        for (vm, of) in [(&mut a, 7), (&mut b, 8)] {
            if of == number {
                expect(vm, &testing::frame(ALL, address(2), 5, 64));
            } else {
                expect_nothing(vm);
            }
        }
        lab.switch_mut().unplug(place).expect("a port");
    }
}
