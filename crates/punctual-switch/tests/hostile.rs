//! Guests that misbehave: it costs only their own port.

use punctual_switch::Event;
use punctual_switch::RingError;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{FrontEnd, Options};
use vm_memory::{Bytes, GuestAddress};

use super::common::{Lab, Setting, expect, frame};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const TABLE: u16 = 4;

/// The third guest misbehaves: the switch reports its port, the other two continue, and so does the third
/// after a reset.
fn breaks(wanted: RingError, spoil: impl Fn(&mut FrontEnd)) {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    spoil(&mut c);
    // A frame that makes the plane read a broken RX ring.
    assert!(a.send(&frame(0, 2, 1)).expect("sent"));
    let event = lab.wait(2, |event| matches!(event, Event::Broken(_)));
    assert_eq!(event, Event::Broken(wanted));
    for number in 0..100 {
        assert!(a.send(&frame(0, 1, number)).expect("sent"));
        expect(&mut b, &frame(0, 1, number));
    }
    c.disconnect();
    lab.wait(2, |event| matches!(event, Event::Disconnected(None)));
    let mut c = lab.vm(2, Options::default());
    assert!(a.send(&frame(0, 2, 2)).expect("sent"));
    expect(&mut c, &frame(0, 2, 2));
    lab.stop();
}

#[test]
fn more_is_available_than_the_ring_has_entries() {
    breaks(RingError::AvailIndex, |vm| vm.publish_avail(TX, 40_000).expect("written"));
    breaks(RingError::AvailIndex, |vm| {
        vm.publish_avail(RX, 40_000).expect("written");
    });
}

#[test]
fn a_head_or_a_next_descriptor_is_beyond_the_table() {
    breaks(RingError::BadChain, |vm| vm.offer(TX, 256).expect("offered"));
    breaks(RingError::BadChain, |vm| {
        let buffer = vm.buffer(TX, 7);
        vm.describe(TX, 7, buffer, 12, NEXT, 256).expect("written");
        vm.offer(TX, 7).expect("offered");
    });
}

#[test]
fn descriptors_have_the_wrong_direction() {
    breaks(RingError::BadChain, |vm| {
        let buffer = vm.buffer(TX, 7);
        vm.describe(TX, 7, buffer, 100, WRITE, 0).expect("written");
        vm.offer(TX, 7).expect("offered");
    });
    breaks(RingError::BadChain, |vm| {
        for head in 0..256 {
            let buffer = vm.buffer(RX, head);
            vm.describe(RX, head, buffer, 2048, 0, 0).expect("written");
        }
    });
}

#[test]
fn addresses_are_outside_of_memory() {
    for address in [1 << 40, u64::MAX - 5] {
        breaks(RingError::OutOfBounds, |vm| {
            vm.describe(TX, 7, address, 100, 0, 0).expect("written");
            vm.offer(TX, 7).expect("offered");
        });
        breaks(RingError::OutOfBounds, |vm| {
            for head in 0..256 {
                vm.describe(RX, head, address, 2048, WRITE, 0).expect("written");
            }
        });
        breaks(RingError::BadChain, |vm| {
            vm.describe(TX, 7, address, 1600, TABLE, 0).expect("written");
            vm.offer(TX, 7).expect("offered");
        });
    }
}

#[test]
fn the_rest_of_a_frame_is_outside_of_memory() {
    breaks(RingError::OutOfBounds, |vm| {
        let start = [&[0; 12][..], &frame(2, 0, 9)[..40]].concat();
        let buffer = vm.buffer(TX, 7);
        vm_memory::Bytes::write_slice(vm.memory(), &start, vm_memory::GuestAddress(buffer)).expect("written");
        vm.describe(TX, 7, buffer, start.len() as u32, NEXT, 8).expect("written");
        vm.describe(TX, 8, 1 << 50, 60, 0, 0).expect("written");
        vm.offer(TX, 7).expect("offered");
    });
}

#[test]
fn malformed_frames_are_counted_and_returned() {
    let mut lab = Lab::new(Setting::plain("preemptive", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    // Too short, and too long.
    assert!(a.send(&[1; 13]).expect("sent"));
    let buffer = a.buffer(TX, 200);
    a.describe(TX, 200, buffer, u32::MAX, 0, 0).expect("written");
    a.offer(TX, 200).expect("offered");
    // In too many descriptors.
    assert!(a.send_with([0; 12], &frame(0, 1, 1), 2).expect("sent"));
    assert!(a.send(&frame(0, 1, 2)).expect("sent"));
    expect(&mut b, &frame(0, 1, 2));
    // Two loops, one of them of empty descriptors.
    for (head, bytes) in [(201, 9), (202, 0)] {
        let buffer = a.buffer(TX, head);
        a.describe(TX, head, buffer, bytes, NEXT, head).expect("written");
        a.offer(TX, head).expect("offered");
    }
    while lab.switch().count().ports[0].drops.malformed < 5 {
        std::thread::yield_now();
    }
    lab.stop();
}

#[test]
fn buffers_too_small_for_any_frame_block_nothing() {
    let lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    let _c = lab.vm(2, Options { buffer_bytes: 16, entries: 1024, ..Options::default() });
    for number in 0..200 {
        assert!(a.send(&punctual_switch::testing::frame([0xff; 6], [2; 6], number, 1514)).expect("sent"));
        assert!(b.receive_within(super::common::LONG).expect("whole").is_some());
    }
    assert_eq!(
        lab.wait(2, |event| matches!(event, Event::Broken(_))),
        Event::Broken(RingError::SmallBuffers)
    );
}

/// Receive buffers that would cost a plane much more for each frame than others do: in tiny pieces, and with
/// an empty descriptor.
#[test]
fn receive_buffers_in_tiny_pieces_are_broken() {
    for (bytes, count) in [(12u32, 2u64), (0, 3)] {
        breaks(RingError::SmallBuffers, |vm| {
            for head in 0..256 {
                // A table in the buffer itself, for pieces behind it.
                let table = vm.buffer(RX, head);
                for piece in 0..count {
                    let flags = if piece + 1 < count { WRITE | NEXT } else { WRITE };
                    let at = table + 16 * piece;
                    vm.describe_at(at, table + 512, bytes, flags, piece as u16 + 1).expect("written");
                }
                vm.describe(RX, head, table, (16 * count) as u32, TABLE, 0).expect("written");
            }
        });
    }
}

#[test]
fn kicks_at_full_speed_delay_no_one_else() {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b, c] = [0, 1, 2].map(|port| lab.vm(port, Options::default()));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                c.kick(TX);
                c.kick(RX);
            }
        });
        for number in 0..2_000 {
            assert!(a.send(&frame(0, 1, number)).expect("sent"));
            expect(&mut b, &frame(0, 1, number));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    lab.stop();
}

#[test]
fn memory_that_is_not_shared_is_detected_and_the_remedy_is_named() {
    let lab = Lab::new(Setting::plain("rtca", 2));
    let options = Options { shared: false, ..Options::default() };
    let mut vm = FrontEnd::connected(&lab.socket(0), options).expect("connected");
    // QEMU creates signalled kick events and signals them when it starts a ring; a driver kicks when it makes
    // an entry available.
    for queue in [RX, TX, RX, TX, RX] {
        vm.kick(queue);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(vm.send(&frame(0, 1, 1)).expect("sent"));
    let event = lab.wait(0, |event| matches!(event, Event::Broken(_)));
    assert_eq!(event, Event::Broken(RingError::NotShared));
    let Event::Broken(broken) = event else { return };
    assert!(broken.to_string().contains("share=on"));
}

#[test]
fn nonsense_on_the_socket_ends_its_connection_only() {
    let lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for request in 0..64u32 {
        let mut vm = FrontEnd::new(Options::default()).expect("memory");
        if vm.connect(&lab.socket(2)).is_err() {
            panic!("request {request}: the port does not come back");
        }
        // The answer may be an error or the end of the connection.
        let _ = vm.send_request(request, &[u64::MAX, 3, 5, 7], &[]);
        let _ = vm.send_request(request, &[u64::MAX], &[]);
        vm.disconnect();
        lab.wait(2, |event| matches!(event, Event::Disconnected(_)));
    }
    assert!(a.send(&frame(0, 1, 2)).expect("sent"));
    expect(&mut b, &frame(0, 1, 2));
}

/// Frames in one buffer of their receiver, and in thirty.
#[test]
fn a_frame_that_leaves_memory_uses_no_buffers_of_its_receiver() {
    let mut lab = Lab::new(Setting::plain("rtca", 3));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
    for round in 0..20 {
        let mut c = lab.vm(2, Options::default());
        // Its first 100 bytes are the last of the memory.
        let address = c.buffer(TX, 255) + 2048 - 100;
        let start = [&[0; 12][..], &frame(2, 1, round)].concat();
        c.memory().write_slice(&start, GuestAddress(address)).expect("written");
        let claimed = if round % 2 == 0 { 60_000 } else { 1_000 };
        c.describe(TX, 7, address, claimed, 0, 0).expect("written");
        c.offer(TX, 7).expect("offered");
        let event = lab.wait(2, |event| matches!(event, Event::Broken(_)));
        assert_eq!(event, Event::Broken(RingError::OutOfBounds));
        c.disconnect();
        lab.wait(2, |event| matches!(event, Event::Disconnected(None)));
        assert!(a.send(&frame(0, 1, round)).expect("sent"));
        expect(&mut b, &frame(0, 1, round));
    }
    let used: u64 = lab.switch().count().ports[1].received.packets;
    assert_eq!(u64::from(b.stop_ring(RX).expect("stopped")), used, "goes on behind what was used");
    lab.stop();
}
