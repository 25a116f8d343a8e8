//! An urgent VM beside floods, with all invariants checked.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_switch::session::{RX, TX};
use punctual_switch::testing::Options;

use super::common::{Lab, Setting, expect, frame};

/// Two urgent VMs exchange frames while two others flood each other. Returns the most less urgent packets
/// that went before a waiting urgent one in TX, softnet and RX.
fn beside_floods(discipline: &'static str, batch: Option<u64>, planes: [usize; 4]) -> [u64; 3] {
    let mut setting = Setting::plain(discipline, 4);
    (setting.batch, setting.planes) = (batch, planes.into());
    for (port, params) in setting.ports.iter_mut().enumerate() {
        params.priority = Some(if port < 2 { 1 } else { 2 });
    }
    let mut lab = Lab::new(setting);
    let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|port| lab.vm(port, Options::default()));
    let (flooded, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (vm, from, to) in [(&mut c, 2, 3), (&mut d, 3, 2)] {
                vm.flood_with(&frame(from, to, 1)).expect("written");
            }
            while done.load(Ordering::Relaxed) == 0 {
                for vm in [&mut c, &mut d] {
                    let sent = vm.refill(TX, 1).expect("refilled");
                    flooded.fetch_add(sent.into(), Ordering::Relaxed);
                    vm.refill(RX, 1).expect("refilled");
                }
            }
        });
        for number in 0.. {
            if number >= 500 && flooded.load(Ordering::Relaxed) > 10_000 {
                break;
            }
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
            expect(&mut b, &frame(0, 1, number));
            assert!(b.send(&frame(1, 0, number)).expect("sent"));
            expect(&mut a, &frame(1, 0, number));
        }
        done.store(1, Ordering::Relaxed);
    });
    let report = lab.stop();
    assert_eq!(report.ports[0].drops.total(), 1, "only the frame to itself");
    report.checked[0].clone().expect("no violation")
}

#[test]
fn nothing_less_urgent_goes_before_an_urgent_packet_under_preemption() {
    assert_eq!(beside_floods("preemptive", None, [0; 4]), [0; 3]);
}

#[test]
fn a_batch_at_most_goes_before_an_urgent_packet_in_softnet_and_rx_under_rtca() {
    let [tx, softnet, rx] = beside_floods("rtca", None, [0; 4]);
    assert_eq!(tx, 0);
    assert!(softnet <= 1 && rx <= 1, "{softnet}, {rx} packets");
    let [tx, softnet, _] = beside_floods("rtca", Some(64), [0; 4]);
    assert_eq!(tx, 0);
    assert!(softnet <= 64, "{softnet} packets");
}

#[test]
fn as_shipped_whole_rounds_go_before_an_urgent_packet() {
    // This needs an urgent packet that arrives in the middle of a round of the flood.
    let mut seen = Vec::new();
    while seen.iter().all(|[_, softnet, rx]: &[u64; 3]| *softnet <= 1 && *rx <= 1) {
        assert!(seen.len() < 20, "{seen:?}");
        seen.push(beside_floods("netback", None, [0; 4]));
    }
}

#[test]
fn in_a_plane_of_their_own_urgent_packets_meet_no_others() {
    for discipline in ["netback", "rtca", "preemptive"] {
        assert_eq!(beside_floods(discipline, None, [0, 0, 1, 1]), [0; 3]);
    }
}
