//! VMs and switches that stop and start again.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use punctual_net::InterfaceParams;
use punctual_switch::protocol::F_PROTOCOL_FEATURES;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{self, FrontEnd, Options};
use punctual_switch::{Event, features};

use super::common::{LONG, Lab, SHORT, Setting, expect, expect_nothing, frame};

#[test]
fn a_vm_reconnects_and_its_neighbours_notice_a_gap() {
    let lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    for round in 0..5 {
        b.disconnect();
        lab.wait(1, |event| matches!(event, Event::Disconnected(None)));
        assert!(a.send(&frame(0, 1, round)).expect("sent"));
        assert!(a.send(&frame(0, 2, round)).expect("sent"));
        // The address of a disconnected VM is unknown.
        expect(&mut c, &frame(0, 1, round));
        expect(&mut c, &frame(0, 2, round));
        b = lab.vm(1, Options::default());
        expect_nothing(&mut b);
        assert!(a.send(&frame(0, 1, 100 + round)).expect("sent"));
        expect(&mut b, &frame(0, 1, 100 + round));
    }
}

#[test]
fn a_driver_that_the_last_switch_did_not_call_is_called_by_the_next_one() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    for queue in [RX, TX] {
        let mut vm = FrontEnd::new(Options::default()).expect("memory");
        assert!(vm.send(&frame(0, 1, 1)).expect("sent"), "something to use");
        // It sleeps until the next entry is used, and the switch dies before the call.
        vm.wait_for_call(queue, Duration::ZERO).expect("asked");
        vm.use_without_call(queue).expect("written");
        vm.connect(&lab.socket(queue)).expect("connected");
        // The plane signals the call event when it reads its mailbox.
        let end = Instant::now() + LONG;
        while vm.calls(queue) == 0 {
            assert!(Instant::now() < end, "queue {queue}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn an_interrupt_that_moves_under_traffic_costs_no_frame_and_is_not_lost() {
    for planes in [vec![0, 0], vec![0, 1]] {
        let mut setting = Setting::plain("rtca", 2);
        setting.planes = planes;
        let lab = Lab::new(setting);
        let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
        expect_nothing(&mut b);
        for number in 0..300 {
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
            // The call comes before, during or after the move, while the driver sleeps.
            b.replace_call(RX).expect("told");
            a.replace_call(TX).expect("told");
            expect(&mut b, &frame(0, 1, number));
        }
        assert_eq!(lab.switch().count().ports[0].drops.destination_ring, 0);
    }
}

#[test]
fn a_second_front_end_is_refused() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    assert!(testing::FrontEnd::connected(&lab.socket(0), Options::default()).is_err());
    assert!(a.send(&frame(0, 1, 1)).expect("sent"));
    expect(&mut b, &frame(0, 1, 1));
}

#[test]
fn a_front_end_that_reconnects_while_the_switch_stops_is_refused() {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let socket = lab.socket(0);
    let mut front_end = UnixStream::connect(&socket).expect("connected");
    lab.wait(0, |event| matches!(event, Event::Connected));
    let _vms = [1, 2].map(|port| lab.vm(port, Options::default()));
    let again = std::thread::spawn(move || {
        assert_eq!(front_end.read(&mut [0]).expect("ended"), 0);
        UnixStream::connect(&socket)
    });
    lab.stop();
    let again = again.join().expect("no panic");
    assert_eq!(again.expect_err("refused").kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_stopped_ring_continues_where_it_was() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let mut next = 0;
    for round in 0..20 {
        for number in 0..50 {
            assert!(a.send(&frame(0, 1, round * 50 + number)).expect("sent"));
            if number == 25 {
                a.stop_ring(TX).expect("stopped");
                a.start_ring(TX).expect("started");
            }
        }
        for _ in 0..50 {
            expect(&mut b, &frame(0, 1, next));
            next += 1;
        }
        b.stop_ring(RX).expect("stopped");
        b.start_ring(RX).expect("started");
        b.request(1, &[]).expect("an answer");
    }
    lab.stop();
}

/// As Cloud Hypervisor does when it reconnects.
#[test]
fn buffers_from_before_a_restart_are_used_whatever_the_vring_base() {
    let skipping = Options { base_is_avail: true, ..Options::default() };
    let mut lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, skipping));
    for switch in 0..5 {
        for number in 0..100 {
            assert!(a.send(&frame(0, 1, switch * 200 + number)).expect("sent"));
            expect(&mut b, &frame(0, 1, switch * 200 + number));
        }
        lab.stop();
        for number in 100..200 {
            assert!(a.send(&frame(0, 1, switch * 200 + number)).expect("sent"));
        }
        lab.start();
        // The receiver first: frames to an unknown address would be dropped.
        b.connect(&lab.socket(1)).expect("connected");
        a.connect(&lab.socket(0)).expect("connected");
        for number in 100..200 {
            expect(&mut b, &frame(0, 1, switch * 200 + number));
        }
    }
}

/// As QEMU 7.2 does if the driver accepts its features while there is no switch.
#[test]
fn a_vm_whose_front_end_lost_the_features_sends_and_receives() {
    let forgetful = Options { features_lost: true, buffer_bytes: 1536, ..Options::default() };
    let drivers = [
        features::OFFERED,
        features::OFFERED & !features::EVENT_IDX,
        features::VERSION_1 | features::EVENT_IDX,
        features::VERSION_1,
    ];
    for features in drivers {
        let mut lab = Lab::new(Setting::plain("rtca", 2));
        let start = Instant::now();
        let mut b = lab.vm(1, Options::default());
        let mut a = FrontEnd::new(Options { features, ..forgetful }).expect("memory");
        // Frames that wait in the ring are sent once the switch is there.
        assert!(a.send(&frame(0, 1, 0)).expect("sent"));
        a.connect(&lab.socket(0)).expect("connected");
        lab.wait(0, |event| matches!(event, Event::Assumed));
        expect(&mut b, &frame(0, 1, 0));
        // Often enough for both rings to wrap, with pauses in which the plane falls asleep.
        for number in 1..600 {
            if number % 100 == 0 {
                std::thread::sleep(SHORT);
            }
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
            expect(&mut b, &frame(0, 1, number));
            assert!(b.send(&frame(1, 0, number)).expect("sent"));
            expect(&mut a, &frame(1, 0, number));
        }
        assert!(start.elapsed() < LONG, "a kick or an interrupt got lost");
        lab.stop();
    }
}

#[test]
fn a_legacy_driver_may_accept_nothing() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let mut old = lab.vm(0, Options { features: F_PROTOCOL_FEATURES, ..Options::default() });
    old.disconnect();
    let event = lab.wait(0, |event| matches!(event, Event::Assumed | Event::Disconnected(_)));
    assert_eq!(event, Event::Disconnected(None));
}

/// A VM of the test below: sends to the two others and checks what arrives, while it and the switch restart.
struct Traffic<'a> {
    own: u8,
    socket: std::path::PathBuf,
    /// Switches so far; each VM connects to every one.
    switches: &'a AtomicU64,
    /// Asks the VM to disconnect (1), or to reboot (2).
    restart: &'a [AtomicU64; VMS],
    end: &'a AtomicBool,
}

const VMS: usize = 3;

impl Traffic<'_> {
    /// Runs until `end`. Returns how many frames it received and sent.
    fn run(&self) -> (u64, u64) {
        let (mut vm, mut switch) = (FrontEnd::new(Options::default()).expect("memory"), 0);
        // By VM: the number of the next frame to it, and of the last one from it.
        let (mut next, mut last, mut came) = ([1; VMS], [0; VMS], 0);
        while !self.end.load(Ordering::Acquire) {
            match self.restart[usize::from(self.own)].swap(0, Ordering::AcqRel) {
                0 => {}
                1 => (switch, _) = (0, vm.disconnect()),
                _ => (switch, vm) = (0, FrontEnd::new(Options::default()).expect("memory")),
            }
            let present = self.switches.load(Ordering::Acquire);
            if switch != present {
                // QEMU retries, too.
                if vm.connect(&self.socket).is_err() {
                    vm.disconnect();
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                switch = present;
            }
            self.send(&mut vm, &mut next, 8);
            came += self.take(&mut vm, &mut last);
            std::thread::yield_now();
        }
        // All flows must recover: a last frame goes through each.
        while vm.connect(&self.socket).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let end = Instant::now() + LONG;
        let mut waits = [true; VMS];
        waits[usize::from(self.own)] = false;
        while waits.contains(&true) {
            assert!(Instant::now() < end, "VM {}: no frame comes from {waits:?}", self.own);
            let before = last;
            self.send(&mut vm, &mut next, 1);
            came += self.take(&mut vm, &mut last);
            (0..VMS).for_each(|other| waits[other] &= last[other] == before[other]);
            std::thread::yield_now();
        }
        // Others may still wait.
        for _ in 0..200 {
            self.send(&mut vm, &mut next, 1);
            came += self.take(&mut vm, &mut last);
            std::thread::sleep(Duration::from_millis(1));
        }
        (came, next.iter().sum::<u64>() - VMS as u64)
    }

    fn send(&self, vm: &mut FrontEnd, next: &mut [u64; VMS], count: usize) {
        for other in (0..VMS as u8).filter(|other| *other != self.own) {
            for _ in 0..count {
                let number = &mut next[usize::from(other)];
                *number += u64::from(vm.send(&frame(self.own, other, *number)).expect("sent"));
            }
        }
    }

    /// Checks what arrived: no frame twice, none out of order.
    fn take(&self, vm: &mut FrontEnd, last: &mut [u64; VMS]) -> u64 {
        let mut came = 0;
        while let Some(received) = vm.receive().expect("whole frames") {
            if received.frame[5] != self.own {
                // Flooded: for another VM, whose address the switch does not know yet.
                continue;
            }
            let (from, number) = (usize::from(received.frame[11]), testing::number(&received.frame));
            assert!(number > last[from], "VM {}: from {from} {number} after {}", self.own, last[from]);
            (last[from], came) = (number, came + 1);
        }
        came
    }
}

/// Restarts switch and VMs, and adds and removes ports, in random order under traffic in every direction.
/// Frames may be lost, none may arrive twice or out of order, and nothing may hang. `PUNCTUAL_RESTARTS` sets
/// the number, `PUNCTUAL_SEED` the order.
#[test]
fn restarts_of_switch_and_vms_duplicate_and_reorder_nothing() {
    let number_of = |name, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().expect(name));
    let (restarts, mut random) = (number_of("PUNCTUAL_RESTARTS", 30), number_of("PUNCTUAL_SEED", 1_u64));
    let mut lab = Lab::new(Setting::plain("preemptive", VMS));
    let (switches, restart, end) = (AtomicU64::new(1), Default::default(), AtomicBool::new(false));
    let mut extra = None;
    let counts = std::thread::scope(|scope| {
        let vm = |own: u8| Traffic {
            own,
            socket: lab.socket(own.into()),
            switches: &switches,
            restart: &restart,
            end: &end,
        };
        let vms: Vec<_> = (0..VMS as u8).map(vm).collect();
        let vms: Vec<_> = vms.into_iter().map(|vm| scope.spawn(move || vm.run())).collect();
        for _ in 0..restarts {
            // Knuth's MMIX; the upper bits are the random ones.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_micros(random >> 40 & 0x7fff));
            match random >> 61 {
                0..3 => {
                    lab.stop();
                    extra = None;
                    lab.start();
                    switches.fetch_add(1, Ordering::AcqRel);
                }
                3..7 => {
                    let how = 1 + (random >> 50 & 1);
                    restart[(random >> 58) as usize % VMS].store(how, Ordering::Release);
                }
                _ => match extra.take() {
                    Some(place) => drop(lab.switch_mut().unplug(place).expect("a port")),
                    None => {
                        let port = lab.port(9, InterfaceParams::default());
                        extra = Some(lab.switch_mut().plug(port).expect("plugged"));
                    }
                },
            }
        }
        end.store(true, Ordering::Release);
        vms.into_iter().map(|vm| vm.join().expect("no frame twice, none out of order")).collect::<Vec<_>>()
    });
    for (vm, (came, sent)) in counts.iter().enumerate() {
        println!("VM {vm}: {came} frames came, {sent} sent");
        assert!(*came > 100 && *sent > 100, "VM {vm}: {came} frames came, {sent} sent");
    }
    lab.stop();
}
