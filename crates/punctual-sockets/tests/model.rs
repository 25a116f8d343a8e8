//! Every interleaving of both sides of the queues, in loom's model of memory.

use std::collections::HashMap;
use std::sync::Arc as Plain;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;
use punctual_sockets::layout::{self, in_queue as place, request, response};
use punctual_sockets::queue::{Geometry, GuestQueues, HostQueues, Words, header, in_queue};

const SMALL: Geometry = Geometry { queues: 1, slots: 1, sockets: 1, events: 2 };
const TWO: Geometry = Geometry { queues: 2, ..SMALL };
const SOCKET: u32 = 0;

/// Only the words that these tests use, because loom models each one.
struct Model(Plain<HashMap<u32, AtomicU32>>);

impl Model {
    fn new() -> Arc<Self> {
        let mut places = vec![layout::HOST_SLEEPING_AT, layout::READY_AT, layout::HOME_AT];
        for queue in 0..TWO.queues {
            let own = [place::EVENT_HEAD, place::NEED_IRQ, place::EVENT_TAIL, place::SUBMISSION_HEAD];
            let rings = [place::SUBMISSIONS, place::EVENTS, place::EVENTS + 4];
            places.extend(own.into_iter().chain(rings).map(|at| in_queue(queue, at)));
            let (ours, others) = ([request::STATE, request::WANT_EVENT, request::OP], [response::RESULT]);
            places.extend(ours.into_iter().chain(others).map(|word| header(queue, word)));
        }
        places.extend((0..SMALL.sockets + TWO.queues).map(|index| layout::QUEUED_AT + index * 4));
        Arc::new(Model(Plain::new(places.into_iter().map(|at| (at, AtomicU32::new(0))).collect())))
    }
}

impl Words for Model {
    fn load(&self, at: u32) -> u32 {
        self.0[&at].load(Ordering::Acquire)
    }

    fn store(&self, at: u32, value: u32) {
        self.0[&at].store(value, Ordering::Release);
    }

    fn set(&self, at: u32, bits: u32) -> u32 {
        self.0[&at].fetch_or(bits, Ordering::AcqRel)
    }

    fn clear(&self, at: u32, bits: u32) {
        self.0[&at].fetch_and(!bits, Ordering::AcqRel);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The guest submits while the host is about to sleep: the host sees the submission or receives the doorbell,
/// and the request is complete.
#[test]
fn the_host_never_sleeps_through_a_submission() {
    loom::model(|| {
        let words = Model::new();
        let doorbell = Arc::new(AtomicBool::new(false));
        let (guest_words, guest_doorbell) = (Arc::clone(&words), Arc::clone(&doorbell));
        let guest = thread::spawn(move || {
            let mut guest = GuestQueues::new(&*guest_words, SMALL);
            guest_words.store(header(0, request::OP), 7);
            if guest.submit(&*guest_words, 0) {
                guest_doorbell.store(true, Ordering::SeqCst);
            }
        });
        let mut host = HostQueues::new(SMALL);
        let mut taken = host.next_submission(&*words).expect("a valid ring");
        if taken.is_none() && !host.prepare_sleep(&*words) {
            taken = host.next_submission(&*words).expect("a valid ring");
            assert!(taken.is_some(), "the host stayed awake without a submission");
        }
        if taken.is_some() {
            assert_eq!(words.load(header(0, request::OP)), 7, "the request is incomplete");
        }
        guest.join().expect("the guest thread ends");
        assert!(taken.is_some() || doorbell.load(Ordering::SeqCst), "the host slept through a submission");
    });
}

/// The host responds while the caller is about to sleep: the caller sees the response or gets an event, and
/// the response is complete.
#[test]
fn a_caller_never_sleeps_through_a_response() {
    loom::model(|| {
        let words = Model::new();
        let host_words = Arc::clone(&words);
        let host = thread::spawn(move || {
            let mut host = HostQueues::new(SMALL);
            host_words.store(header(0, response::RESULT), 5);
            host.complete(&*host_words, 0);
        });
        let mut guest = GuestQueues::new(&*words, SMALL);
        let is_done = guest.want_event(&*words, 0, 0);
        if is_done {
            assert_eq!(words.load(header(0, response::RESULT)), 5, "the response is incomplete");
        }
        host.join().expect("the host thread ends");
        let event = guest.next_event(&*words, 0);
        assert!(is_done || event == Some(SMALL.sockets), "the caller slept through a response");
    });
}

/// A socket changes twice while the guest takes events and is about to halt: the guest has seen the last
/// change, or an interrupt is pending, and the queue holds the socket at most once.
#[test]
fn the_guest_never_halts_with_a_pending_event() {
    loom::model(|| {
        let words = Model::new();
        let interrupt = Arc::new(AtomicBool::new(false));
        let (host_words, host_interrupt) = (Arc::clone(&words), Arc::clone(&interrupt));
        let host = thread::spawn(move || {
            let mut host = HostQueues::new(SMALL);
            for ready in [1, 2] {
                host.set_ready(&*host_words, SOCKET, ready);
                if host.notify(&*host_words, SOCKET).is_some() {
                    host_interrupt.store(true, Ordering::SeqCst);
                }
            }
        });
        let mut guest = GuestQueues::new(&*words, SMALL);
        let mut seen = 0;
        let mut drain = |guest: &mut GuestQueues| {
            while let Some(index) = guest.next_event(&*words, 0) {
                assert_eq!(index, SOCKET, "an event of an unknown socket");
                seen = words.load(layout::READY_AT);
            }
        };
        drain(&mut guest);
        let is_halted = !guest.enable_interrupt(&*words, 0);
        host.join().expect("the host thread ends");
        if !is_halted || interrupt.load(Ordering::SeqCst) {
            drain(&mut guest);
        }
        assert_eq!(seen, 2, "the guest halted although an event was pending");
        assert!(words.load(in_queue(0, place::EVENT_HEAD)) <= 2);
    });
}

/// Another vCPU submits while the host is about to sleep: the host sees the submission or receives the
/// doorbell.
#[test]
fn the_host_never_sleeps_through_a_submission_of_another_vcpu() {
    loom::model(|| {
        let words = Model::new();
        let doorbell = Arc::new(AtomicBool::new(false));
        let (guest_words, guest_doorbell) = (Arc::clone(&words), Arc::clone(&doorbell));
        let guest = thread::spawn(move || {
            if GuestQueues::new(&*guest_words, TWO).submit(&*guest_words, 1) {
                guest_doorbell.store(true, Ordering::SeqCst);
            }
        });
        let mut host = HostQueues::new(TWO);
        let is_asleep = host.prepare_sleep(&*words);
        guest.join().expect("the guest thread ends");
        assert!(!is_asleep || doorbell.load(Ordering::SeqCst), "the host slept through a submission");
        assert_eq!(host.next_submission(&*words), Ok(Some(1)));
    });
}

/// A program waits on a vCPU while an older event of the socket is still in the queue of another vCPU: the
/// program sees what the socket is ready for, or the next event comes to its vCPU.
#[test]
fn an_event_comes_to_the_vcpu_that_waits() {
    loom::model(|| {
        let words = Model::new();
        let mut host = HostQueues::new(TWO);
        host.notify(&*words, SOCKET);
        let host_words = Arc::clone(&words);
        let host = thread::spawn(move || {
            host.set_ready(&*host_words, SOCKET, 1);
            host.notify(&*host_words, SOCKET);
        });
        let mut guest = GuestQueues::new(&*words, TWO);
        let is_ready = guest.wait_at(&*words, SOCKET, 1) == 1;
        host.join().expect("the host thread ends");
        let event = guest.next_event(&*words, 1);
        assert!(is_ready || event == Some(SOCKET), "the event went to another queue");
    });
}

/// Without the host's fence before it reads `need_irq`, the model must find the fault. This shows that the
/// model can find such faults.
#[test]
#[should_panic = "halted although an event was pending"]
fn a_missing_fence_is_found() {
    loom::model(|| {
        let words = Model::new();
        let interrupt = Arc::new(AtomicBool::new(false));
        let (host_words, host_interrupt) = (Arc::clone(&words), Arc::clone(&interrupt));
        let host = thread::spawn(move || {
            host_words.store(in_queue(0, place::EVENTS), SOCKET);
            host_words.store(in_queue(0, place::EVENT_HEAD), 1);
            if host_words.load(in_queue(0, place::NEED_IRQ)) != 0 {
                host_interrupt.store(true, Ordering::SeqCst);
            }
        });
        let guest = GuestQueues::new(&*words, SMALL);
        let is_halted = !guest.enable_interrupt(&*words, 0);
        host.join().expect("the host thread ends");
        assert!(!is_halted || interrupt.load(Ordering::SeqCst), "halted although an event was pending");
    });
}
