//! Front-ends that misbehave, as a process does that may open one VM's socket: other ports continue, and the
//! switch ends when it must.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_switch::Event;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::attack::full_eventfd;
use punctual_switch::testing::{FrontEnd, Options};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::common::{ALL, Lab, Setting, expect, frame};

/// `SET_VRING_KICK`, `SET_VRING_CALL`, `SET_VRING_ERR`.
const KICK: u32 = 12;
const CALL: u32 = 13;
const ERR: u32 = 14;

/// A switch that cannot end any thread in time must itself end within this.
const END_MAX: Duration = Duration::from_secs(1);

/// Hands over a file for an event of a queue.
fn hand_over(vm: &FrontEnd, request: u32, queue: usize, file: BorrowedFd<'_>) {
    vm.send_request(request, &[queue as u64], &[file]).expect("sent");
}

/// Frames between two VMs, which must arrive.
fn exchange(a: &mut FrontEnd, b: &mut FrontEnd, count: u64) {
    for number in 0..count {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
        expect(b, &frame(0, 1, number));
    }
}

/// Waits for a frame to a VM that gets no calls.
fn wait_without_calls(vm: &mut FrontEnd) {
    let start = Instant::now();
    while vm.receive().expect("whole").is_none() {
        assert!(start.elapsed() < super::common::LONG, "a frame");
        std::thread::yield_now();
    }
}

/// Two planes: ports 0 and 1 in the first, port 2 in the second.
fn in_two_planes() -> Setting {
    Setting { planes: vec![0, 0, 1], ..Setting::plain("rtca", 3) }
}

#[test]
fn full_call_events_that_block_stop_nobody() {
    for setting in [Setting::plain("rtca", 3), in_two_planes()] {
        let mut lab = Lab::new(setting);
        let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
        let events = [RX, TX].map(|queue| (queue, full_eventfd().expect("an eventfd")));
        for (queue, event) in &events {
            hand_over(&c, CALL, *queue, event.as_fd());
        }
        c.request(1, &[]).expect("the control thread goes on");
        // Floods need the receiver's ring in each plane.
        for number in 0..20 {
            assert!(a.send(&punctual_switch::testing::frame(ALL, [2; 6], number, 64)).expect("sent"));
            assert!(c.send(&frame(2, 0, number)).expect("sent"));
            expect(&mut a, &frame(2, 0, number));
            wait_without_calls(&mut c);
            assert!(b.receive_within(super::common::LONG).expect("whole").is_some());
        }
        exchange(&mut a, &mut b, 50);
        let start = Instant::now();
        let report = lab.stop();
        assert!(start.elapsed() < END_MAX && report.left_behind.is_empty(), "{report:?}");
    }
}

#[test]
fn a_full_err_event_that_blocks_stops_nobody() {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    let event = full_eventfd().expect("an eventfd");
    hand_over(&c, ERR, TX, event.as_fd());
    c.request(1, &[]).expect("done");
    c.publish_avail(TX, 40_000).expect("written");
    lab.wait(2, |event| matches!(event, Event::Broken(_)));
    exchange(&mut a, &mut b, 50);
    lab.stop();
}

#[test]
fn events_that_are_no_eventfds_end_their_connection() {
    let lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let (_read, pipe) = rustix::pipe::pipe().expect("a pipe");
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (socket, _other) = pair.expect("sockets");
    let file: OwnedFd = tempfile::tempfile().expect("a file").into();
    for event in [pipe, socket, file] {
        for request in [KICK, CALL, ERR] {
            let c = lab.vm(2, Options::default());
            hand_over(&c, request, TX, event.as_fd());
            let ended = lab.wait(2, |event| matches!(event, Event::Disconnected(_)));
            let Event::Disconnected(Some(reason)) = ended else { panic!("{ended:?}") };
            assert!(reason.ends_with("is not an eventfd"), "{reason}");
        }
    }
    exchange(&mut a, &mut b, 10);
}

#[test]
fn memory_in_a_file_of_a_disk_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = std::fs::File::create_new(folder.path().join("memory")).expect("a file");
    file.set_len(1 << 20).expect("long enough");
    let lab = Lab::new(Setting::plain("rtca", 1));
    let vm = lab.vm(0, Options::default());
    vm.send_request(5, &[1, 0, 1 << 20, 0, 0], &[file.as_fd()]).expect("sent");
    let ended = lab.wait(0, |event| matches!(event, Event::Disconnected(_)));
    let Event::Disconnected(Some(reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.contains("memory-backend-memfd"), "{reason}");
}

#[test]
fn a_switch_ends_although_a_plane_does_not() {
    let stuck = |plane: usize| {
        let never = Duration::MAX;
        if plane == 1 {
            std::thread::sleep(never);
        }
    };
    let mut lab = Lab::new(Setting { enter: stuck, ..in_two_planes() });
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    // The control thread waits for the plane that does not answer.
    let c = FrontEnd::connected(&lab.socket(2), Options::default()).expect("connected");
    drop(c);
    exchange(&mut a, &mut b, 10);
    let start = Instant::now();
    let report = lab.stop();
    assert!(start.elapsed() < END_MAX, "{:?}", start.elapsed());
    assert!(report.left_behind.contains(&"plane 1".to_owned()), "{:?}", report.left_behind);
    assert_eq!(report.planes.len(), 1, "the other plane has counted");
    assert!((0..3).all(|port| !lab.socket(port).exists()), "no socket is left");
}

#[test]
fn memory_that_can_be_sealed_does_not_shrink() {
    let lab = Lab::new(Setting::plain("rtca", 1));
    let vm = lab.vm(0, Options::default());
    let refused = vm.shorten_memory().expect_err("sealed");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}

/// The receiver's memory shrinks, and the sender's.
#[test]
fn memory_that_shrinks_under_traffic_costs_its_port_only() {
    for (setting, sends) in
        [(Setting::plain("rtca", 3), false), (in_two_planes(), false), (in_two_planes(), true)]
    {
        let mut lab = Lab::new(setting);
        let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
        let mut c = lab.vm(2, Options { sealable: false, ..Options::default() });
        assert!(a.send(&frame(0, 2, 1)).expect("sent"));
        expect(&mut c, &frame(0, 2, 1));
        if sends {
            // The kick may come before the memory shrinks, or after.
            assert!(c.send(&frame(2, 0, 1)).expect("sent"));
        }
        c.shorten_memory().expect("shortened");
        c.kick(TX);
        for number in 2..4 {
            assert!(a.send(&frame(0, 2, number)).expect("sent"));
        }
        let event = lab.wait(2, |event| matches!(event, Event::Broken(_)));
        assert_eq!(event, Event::Broken(punctual_switch::RingError::MissingPages));
        exchange(&mut a, &mut b, 50);
        c.disconnect();
        lab.wait(2, |event| matches!(event, Event::Disconnected(None)));
        let mut c = lab.vm(2, Options::default());
        assert!(a.send(&frame(0, 2, 9)).expect("sent"));
        expect(&mut c, &frame(0, 2, 9));
        lab.stop();
    }
}
