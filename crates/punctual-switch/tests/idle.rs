//! What a switch costs while nothing happens.

use std::time::Duration;

use punctual_switch::testing::Options;

use super::common::{Lab, Setting, expect, frame};

#[test]
fn an_idle_switch_does_not_wake_up() {
    for discipline in ["netback", "rtca", "preemptive"] {
        let mut setting = Setting::plain(discipline, 2);
        setting.planes = vec![0, 1];
        let lab = Lab::new(setting);
        let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
        assert!(a.send(&frame(0, 1, 1)).expect("sent"));
        expect(&mut b, &frame(0, 1, 1));
        // Asking costs a wake-up of each plane.
        let wakeups = || -> u64 { lab.switch().count().planes.iter().map(|plane| plane.wakeups).sum() };
        std::thread::sleep(Duration::from_millis(20));
        let before = wakeups();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(wakeups(), before + 2, "{discipline}");
    }
}

#[test]
fn a_driver_that_polls_is_not_called() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for number in 0..1_000 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
        while b.receive().expect("whole frames").is_none() {
            std::hint::spin_loop();
        }
    }
    let calls = b.calls(punctual_switch::session::RECEIVE);
    assert!(calls <= 1, "the driver never asked to hear, and was called {calls} times");
}
