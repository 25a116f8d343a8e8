//! An idle switch.

use std::time::Duration;

use punctual_net::Rate;
use punctual_switch::session::RX;
use punctual_switch::testing::Options;

use super::common::{LONG, Lab, Setting, expect, frame};

#[test]
fn an_idle_switch_does_not_wake_up() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let mut setting = Setting::plain(discipline, 2);
        setting.planes = vec![0, 1];
        let lab = Lab::new(setting);
        let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
        assert!(a.send(&frame(0, 1, 1)).expect("sent"));
        expect(&mut b, &frame(0, 1, 1));
        // Counting wakes each plane once.
        let wakeups = || -> u64 { lab.switch().count().planes.iter().map(|plane| plane.wakeups).sum() };
        std::thread::sleep(Duration::from_millis(20));
        let before = wakeups();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(wakeups(), before + 2, "{discipline}");
    }
}

#[test]
fn a_plane_that_polls_sleeps_after_its_poll_time() {
    let mut setting = Setting::plain("rtca", 2);
    setting.poll = punctual_sched::Duration::from_ms(20);
    let lab = Lab::new(setting);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let count = || lab.switch().count().planes[0];
    let before = count();
    // Frames that arrive within the poll time find it awake.
    for number in 0..200 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
        expect(&mut b, &frame(0, 1, number));
    }
    let busy = count();
    // The machine may have kept a driver from running for longer.
    assert!(busy.wakeups - before.wakeups < 50, "{before:?}, {busy:?}");
    std::thread::sleep(Duration::from_millis(400));
    let idle = count();
    // It polled for 20 ms after each of two counts, and after the last frame.
    assert!(idle.processor_ns - busy.processor_ns < 100_000_000, "{busy:?}, {idle:?}");
    assert!(idle.wakeups - busy.wakeups <= 2, "{busy:?}, {idle:?}");
}

#[test]
fn frames_that_wait_for_credit_do_not_keep_a_plane_awake() {
    let mut setting = Setting::plain("rtca", 2);
    setting.ports[0].rate = Some(Rate::new(64, punctual_sched::Duration::from_ms(500)));
    let lab = Lab::new(setting);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for number in 0..40 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
    }
    // After the first packets the switch has room for more, and frames wait in the guest's ring.
    for _ in 0..3 {
        assert!(b.receive_within(LONG).expect("whole").is_some());
    }
    let wakeups = || lab.switch().count().planes[0].wakeups;
    let took_ns = || lab.switch().count().planes[0].processor_ns;
    let (before, before_ns) = (wakeups(), took_ns());
    std::thread::sleep(Duration::from_millis(300));
    // Counting wakes the plane once, and credit may arrive once.
    let (more, more_ns) = (wakeups() - before, took_ns() - before_ns);
    assert!(more <= 4, "{more} wake-ups");
    assert!(more_ns < 100_000_000, "{more_ns} ns");
}

#[test]
fn a_driver_that_polls_is_not_called() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    // A starting ring calls once.
    b.calls(RX);
    for number in 0..1_000 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
        while b.receive().expect("whole frames").is_none() {
            std::hint::spin_loop();
        }
    }
    let calls = b.calls(RX);
    assert!(calls <= 1, "the driver never asked for a call, and was called {calls} times");
}
