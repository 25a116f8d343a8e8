//! The scan for pending events, with and without the fix of vmm-io s.4.1.

use proptest::prelude::*;
use punctual_net::event_channel::{EventChannels, PORTS, Port, Scan};

fn channels(scan: Scan, ports: u32) -> EventChannels {
    let mut channels = EventChannels::new(scan);
    for _ in 0..ports {
        channels.allocate().expect("enough ports");
    }
    channels
}

#[test]
fn ports_are_given_out_in_the_order_of_boot_and_the_smallest_free_one_first() {
    let mut channels = EventChannels::new(Scan::Resume);
    let [nic, first, second] = [(); 3].map(|()| channels.allocate().expect("enough ports"));
    assert_eq!([nic, first, second], [Port(0), Port(1), Port(2)]);
    channels.send(first);
    channels.release(first);
    assert_eq!(channels.take(), None, "what was pending on a released port is forgotten");
    assert_eq!(channels.allocate(), Some(Port(1)));
    assert_eq!(channels.allocate(), Some(Port(3)));
}

#[test]
fn there_is_no_port_beyond_the_last_and_nothing_is_pending_on_one_not_in_use() {
    let mut channels = channels(Scan::First, PORTS);
    assert_eq!(channels.allocate(), None);
    assert!(!channels.send(Port(PORTS)));
    channels.release(Port(PORTS));
    channels.release(Port(5));
    assert!(!channels.send(Port(5)));
    assert!(!channels.any_pending());
}

#[test]
fn a_second_event_before_the_first_is_handled_tells_nothing_new() {
    let mut channels = channels(Scan::First, 2);
    assert!(channels.send(Port(1)));
    assert!(!channels.send(Port(1)));
    assert_eq!(channels.take(), Some(Port(1)));
    assert_eq!(channels.take(), None);
}

/// Handles events until `port` gets its turn, while `busy` ports are always pending. At most `limit` events.
fn events_until(channels: &mut EventChannels, port: Port, busy: &[u32], limit: usize) -> Option<usize> {
    channels.send(port);
    (0..limit).find(|_| {
        for &port in busy {
            channels.send(Port(port));
        }
        channels.take() == Some(port)
    })
}

#[test]
fn without_the_fix_a_busy_device_starves_the_guests() {
    for scan in [Scan::First, Scan::Word] {
        assert_eq!(events_until(&mut channels(scan, 10), Port(4), &[0], 100_000), None);
    }
}

#[test]
fn without_the_fix_the_guest_booted_first_is_not_starved_by_later_ones() {
    for scan in [Scan::First, Scan::Word] {
        assert_eq!(events_until(&mut channels(scan, 10), Port(1), &[2, 3, 4], 100_000), Some(0));
    }
}

#[test]
fn with_the_fix_a_guest_waits_for_every_busy_port_once_at_most() {
    assert_eq!(events_until(&mut channels(Scan::Resume, 10), Port(4), &[0], 100_000), Some(1));
    let busy: Vec<u32> = (0..200).filter(|&port| port != 150).collect();
    assert_eq!(events_until(&mut channels(Scan::Resume, 200), Port(150), &busy, 100_000), Some(150));
}

/// A word is left when it has no pending port; the words selected when the scan began come next.
#[test]
fn as_shipped_a_port_of_a_later_word_waits_until_the_first_word_is_empty_once() {
    let mut by_word = channels(Scan::Word, 200);
    let mut from_zero = channels(Scan::First, 200);
    for channels in [&mut by_word, &mut from_zero] {
        for port in [1, 70] {
            channels.send(Port(port));
        }
        assert_eq!(channels.take(), Some(Port(1)));
        channels.send(Port(0));
        assert_eq!(channels.take(), Some(Port(0)), "the scan restarts within the word");
    }
    // Port 64 joins the word under way; port 3 waits for the next scan, unless that starts at port 0 each
    // time.
    for channels in [&mut by_word, &mut from_zero] {
        assert_eq!(channels.take(), Some(Port(70)));
        channels.send(Port(3));
        channels.send(Port(64));
    }
    assert_eq!([by_word.take(), by_word.take()], [Some(Port(64)), Some(Port(3))]);
    assert_eq!([from_zero.take(), from_zero.take()], [Some(Port(3)), Some(Port(64))]);
}

#[test]
fn as_shipped_a_scan_that_found_nothing_left_is_over() {
    let mut channels = channels(Scan::Word, 200);
    for events in [&[150][..], &[3, 150]] {
        for &port in events {
            channels.send(Port(port));
        }
        let handled: Vec<u32> = core::iter::from_fn(|| channels.take()).map(|port| port.0).collect();
        assert_eq!(handled, events);
    }
}

proptest! {
    /// The fix's promise: no port is handled a second time before all others that were pending all along.
    #[test]
    fn with_the_fix_no_port_is_handled_twice_while_another_waits(
        sends in proptest::collection::vec((0u32..300, 0u32..300, any::<bool>()), 1..400)
    ) {
        let mut channels = channels(Scan::Resume, 300);
        // For each port: since when an event is pending, in events handled; and the events handled.
        let mut pending_since = [None; 300];
        let mut handled: Vec<u32> = Vec::new();
        for (first, second, take) in sends {
            for port in [first, second] {
                if channels.send(Port(port)) {
                    pending_since[port as usize] = Some(handled.len());
                }
            }
            if take && let Some(Port(port)) = channels.take() {
                handled.push(port);
                pending_since[port as usize] = None;
                for since in pending_since.iter().flatten() {
                    let meanwhile = &handled[*since..];
                    let twice = meanwhile.iter().filter(|&&other| other == port).count();
                    prop_assert!(twice <= 1, "port {} twice in {:?}", port, meanwhile);
                }
            }
        }
    }

    /// Whatever the scan, every event sent is handled once, and none that was not sent.
    #[test]
    fn every_pending_event_is_handled_once(
        ports in proptest::collection::btree_set(0u32..PORTS, 0..100),
        scan in prop_oneof![Just(Scan::First), Just(Scan::Word), Just(Scan::Resume)],
    ) {
        let mut channels = channels(scan, PORTS);
        for &port in &ports {
            prop_assert!(channels.send(Port(port)));
        }
        let handled: Vec<u32> = core::iter::from_fn(|| channels.take()).map(|port| port.0).collect();
        prop_assert_eq!(handled, ports.into_iter().collect::<Vec<_>>());
    }
}
