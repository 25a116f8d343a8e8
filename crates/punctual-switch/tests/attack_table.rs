//! Each attack of [`punctual_switch::testing::attack`], briefly: round trips of two other VMs go on, and the
//! switch ends in time. `measure attacks`, an example of this crate, measures the times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_model::network::Vlans;
use punctual_switch::testing::attack::{ATTACKS, Attack, Attacker};
use punctual_switch::testing::{FrontEnd, Options};

use super::common::{LONG, Lab, Setting, address, frame};

/// Round trips beside each attack.
const TRIPS: u64 = 200;

/// A frame that takes longer is lost.
const TRIP_MAX: Duration = LONG;

/// A switch must end within this, whatever is done to it.
const END_MAX: Duration = Duration::from_secs(1);

fn lab(attack: &Attack, planes: &[usize]) -> Lab {
    let mut setting = Setting { planes: planes.to_vec(), ..Setting::plain("rtca", 4) };
    setting
        .ports
        .iter_mut()
        .enumerate()
        .for_each(|(port, params)| params.priority = Some(1 + port as u32 / 2));
    if attack.has_vlans {
        let vlans = |tagged: &[u16]| Vlans { untagged: Some(10), tagged: tagged.to_vec() };
        setting.vlans = vec![vlans(&[]), vlans(&[]), vlans(&[]), vlans(&[20])];
    }
    Lab::new(setting)
}

/// Waits for a frame among others. Returns whether it arrived.
fn arrives(vm: &mut FrontEnd, wanted: &[u8]) -> bool {
    let end = Instant::now() + TRIP_MAX;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        if vm.receive_within(left).expect("whole frames").is_some_and(|received| received.frame == wanted) {
            return true;
        }
    }
    false
}

/// Ends the attacker, even if the test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn attacked(attack: &Attack, planes: &[usize]) {
    let mut lab = lab(attack, planes);
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let sockets = [2, 3].map(|port| lab.socket(port));
    let mut attacker = Attacker::new(*attack, sockets, [2, 3].map(address)).expect("an accomplice");
    let [has_acted, is_ending, is_over] = [const { AtomicBool::new(false) }; 3];
    std::thread::scope(|scope| {
        let (has_acted, is_ending, is_over) = (&has_acted, &is_ending, &is_over);
        let name = attack.name;
        let attacks = scope.spawn(move || {
            // The switch ends under attack, and its sockets with it.
            while !is_over.load(Ordering::Relaxed) {
                let done = attacker.prepare().and_then(|()| attacker.act());
                assert!(done.is_ok() || is_ending.load(Ordering::Relaxed), "{name}: {done:?}");
                has_acted.store(true, Ordering::Relaxed);
            }
        });
        let end = SetAtEnd(is_over);
        let start = Instant::now();
        while !has_acted.load(Ordering::Relaxed) {
            assert!(start.elapsed() < LONG && !attacks.is_finished(), "{name}: nothing is done");
            std::thread::yield_now();
        }
        let mut lost = 0;
        for number in 0..TRIPS {
            assert!(a.send(&frame(0, 1, number)).expect("sent"), "{name}");
            let is_there = arrives(&mut b, &frame(0, 1, number));
            assert!(b.send(&frame(1, 0, number)).expect("sent"), "{name}");
            let is_back = arrives(&mut a, &frame(1, 0, number));
            lost += u64::from(!is_there) + u64::from(!is_back);
        }
        let start = Instant::now();
        is_ending.store(true, Ordering::Relaxed);
        let report = lab.stop();
        let time = start.elapsed();
        drop(end);
        assert!(time < END_MAX && report.left_behind.is_empty(), "{name}: {time:?}, {report:?}");
        assert_eq!(
            lost,
            0,
            "{name}: {:?}",
            report.ports[..2].iter().map(|port| port.drops).collect::<Vec<_>>()
        );
        attacks.join().expect("an attacker");
    });
}

#[test]
fn round_trips_go_on_beside_each_attack_in_one_plane() {
    ATTACKS.iter().for_each(|attack| attacked(attack, &[0, 0, 0, 0]));
}

#[test]
fn round_trips_go_on_beside_each_attack_in_two_planes() {
    ATTACKS.iter().for_each(|attack| attacked(attack, &[0, 0, 1, 1]));
}
