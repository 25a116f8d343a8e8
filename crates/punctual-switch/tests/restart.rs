//! VMs and switches that go and come back.

use punctual_switch::Event;
use punctual_switch::session::{RECEIVE, SEND};
use punctual_switch::testing::{self, Options};

use super::common::{LONG, Lab, Setting, expect, expect_nothing, frame};

#[test]
fn a_vm_comes_back_and_its_neighbours_notice_a_gap() {
    let lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    for round in 0..5 {
        b.disconnect();
        lab.wait(1, |event| matches!(event, Event::Disconnected(None)));
        assert!(a.send(&frame(0, 1, round)).expect("sent"));
        assert!(a.send(&frame(0, 2, round)).expect("sent"));
        // The address of a VM that left is nobody's.
        expect(&mut c, &frame(0, 1, round));
        expect(&mut c, &frame(0, 2, round));
        b = lab.vm(1, Options::default());
        expect_nothing(&mut b);
        assert!(a.send(&frame(0, 1, 100 + round)).expect("sent"));
        expect(&mut b, &frame(0, 1, 100 + round));
    }
}

#[test]
fn a_second_monitor_is_turned_away() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    assert!(testing::FrontEnd::connected(&lab.socket(0), Options::default()).is_err());
    assert!(a.send(&frame(0, 1, 1)).expect("sent"));
    expect(&mut b, &frame(0, 1, 1));
}

#[test]
fn a_ring_that_is_stopped_goes_on_where_it_was() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let mut next = 0;
    for round in 0..20 {
        for number in 0..50 {
            assert!(a.send(&frame(0, 1, round * 50 + number)).expect("sent"));
            if number == 25 {
                a.stop_ring(SEND).expect("stopped");
                a.start_ring(SEND).expect("started");
            }
        }
        for _ in 0..50 {
            expect(&mut b, &frame(0, 1, next));
            next += 1;
        }
        b.stop_ring(RECEIVE).expect("stopped");
        b.start_ring(RECEIVE).expect("started");
        b.ask(1, &[]).expect("an answer");
    }
    lab.stop();
}

/// Restarts in the middle of traffic, in random order: frames may be lost, none comes twice or out of order.
/// `PUNCTUAL_RESTARTS` says how many, and `PUNCTUAL_SEED` in which order.
#[test]
fn restarts_of_switch_and_vms_duplicate_and_reorder_nothing() {
    let mut lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let (mut number, mut last, mut arrived) = (1, 0, 0);
    let number_of = |name, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect(name));
    let mut random: u64 = number_of("PUNCTUAL_SEED", 1);
    for round in 0..number_of("PUNCTUAL_RESTARTS", 100) {
        // Knuth's MMIX; the upper bits are the random ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..20 + round % 40 {
            number += u64::from(a.send(&frame(0, 1, number)).expect("sent"));
        }
        // In the middle of what was sent.
        for _ in 0..round % 7 * 100 {
            std::hint::spin_loop();
        }
        match random >> 62 {
            0 => {
                lab.stop();
                lab.start();
                a.connect(&lab.socket(0)).expect("connected");
                b.connect(&lab.socket(1)).expect("connected");
            }
            1 => {
                a.disconnect();
                lab.wait(0, |event| matches!(event, Event::Disconnected(None)));
                a.connect(&lab.socket(0)).expect("connected");
            }
            2 => {
                b.disconnect();
                lab.wait(1, |event| matches!(event, Event::Disconnected(None)));
                b.connect(&lab.socket(1)).expect("connected");
            }
            _ => {
                a.stop_ring(SEND).expect("stopped");
                a.start_ring(SEND).expect("started");
            }
        }
        while let Some(received) = b.receive().expect("whole frames") {
            let number = testing::number(&received.frame);
            assert!(number > last, "round {round}: {number} after {last}");
            (last, arrived) = (number, arrived + 1);
        }
    }
    assert!(a.send(&frame(0, 1, number)).expect("sent"));
    while last < number {
        let received = b.receive_within(LONG).expect("whole").expect("the last frame");
        assert!(testing::number(&received.frame) > last);
        (last, arrived) = (testing::number(&received.frame), arrived + 1);
    }
    assert!(arrived > number / 10, "{arrived} of {number} frames arrived");
    lab.stop();
}
