//! Every interleaving of both sides of the queues, in loom's model of memory.

use std::collections::HashMap;
use std::sync::Arc as Plain;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;
use punctual_sockets::layout;
use punctual_sockets::queue::{Geometry, GuestQueues, HostQueues, Words, header};

const SMALL: Geometry = Geometry { slots: 1, sockets: 1, events: 2 };
const SOCKET: u32 = 0;

/// The words that these tests use.
struct Model(Plain<HashMap<u32, AtomicU32>>);

impl Model {
    fn new() -> Arc<Self> {
        let places = [
            layout::HOST_SLEEPING_AT,
            layout::EVENT_HEAD_AT,
            layout::NEED_IRQ_AT,
            layout::EVENT_TAIL_AT,
            layout::SUBMISSION_HEAD_AT,
            layout::SUBMISSIONS_AT,
            layout::EVENTS_AT,
            layout::EVENTS_AT + 4,
            layout::READY_AT,
            layout::QUEUED_AT,
            layout::QUEUED_AT + 4,
            header(0, layout::request::STATE),
            header(0, layout::request::WANT_EVENT),
            header(0, layout::request::OP),
            header(0, layout::response::RESULT),
        ];
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

    fn swap(&self, at: u32, value: u32) -> u32 {
        self.0[&at].swap(value, Ordering::AcqRel)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The guest submits once while the host is about to sleep: the host sees it, or its doorbell rings; and the
/// request is whole.
#[test]
fn no_submission_is_slept_over() {
    loom::model(|| {
        let words = Model::new();
        let doorbell = Arc::new(AtomicBool::new(false));
        let (guest_words, guest_doorbell) = (Arc::clone(&words), Arc::clone(&doorbell));
        let guest = thread::spawn(move || {
            let mut guest = GuestQueues::new(&*guest_words, SMALL);
            guest_words.store(header(0, layout::request::OP), 7);
            if guest.submit(&*guest_words, 0) {
                guest_doorbell.store(true, Ordering::SeqCst);
            }
        });
        let mut host = HostQueues::new(SMALL);
        let mut taken = host.take(&*words).expect("sound");
        if taken.is_none() && !host.sleep(&*words) {
            taken = host.take(&*words).expect("sound");
            assert!(taken.is_some(), "the host stayed awake for nothing");
        }
        if taken.is_some() {
            assert_eq!(words.load(header(0, layout::request::OP)), 7, "a request that is not whole");
        }
        guest.join().expect("the guest ended");
        assert!(taken.is_some() || doorbell.load(Ordering::SeqCst), "a submission was slept over");
    });
}

/// The host answers while the caller is about to sleep: the caller sees it, or gets an event; and the answer
/// is whole.
#[test]
fn no_answer_is_slept_over() {
    loom::model(|| {
        let words = Model::new();
        let host_words = Arc::clone(&words);
        let host = thread::spawn(move || {
            let mut host = HostQueues::new(SMALL);
            host_words.store(header(0, layout::response::RESULT), 5);
            host.complete(&*host_words, 0);
        });
        let mut guest = GuestQueues::new(&*words, SMALL);
        let is_done = guest.want_event(&*words, 0);
        if is_done {
            assert_eq!(words.load(header(0, layout::response::RESULT)), 5, "an answer that is not whole");
        }
        host.join().expect("the host ended");
        let event = guest.next_event(&*words);
        assert!(is_done || event == Some(SMALL.sockets), "an answer was slept over");
    });
}

/// Two changes of a socket while the guest takes events and is about to halt: it has seen the last one, or an
/// interrupt is on its way; and the queue never holds more than each socket once.
#[test]
fn no_event_is_halted_over() {
    loom::model(|| {
        let words = Model::new();
        let interrupt = Arc::new(AtomicBool::new(false));
        let (host_words, host_interrupt) = (Arc::clone(&words), Arc::clone(&interrupt));
        let host = thread::spawn(move || {
            let mut host = HostQueues::new(SMALL);
            for ready in [1, 2] {
                host.ready(&*host_words, SOCKET, ready);
                if host.event(&*host_words, SOCKET) {
                    host_interrupt.store(true, Ordering::SeqCst);
                }
            }
        });
        let mut guest = GuestQueues::new(&*words, SMALL);
        let mut seen = 0;
        let mut drain = |guest: &mut GuestQueues| {
            while let Some(index) = guest.next_event(&*words) {
                assert_eq!(index, SOCKET, "an event of nothing");
                seen = words.load(layout::READY_AT);
            }
        };
        drain(&mut guest);
        let is_halted = !guest.arm(&*words);
        host.join().expect("the host ended");
        if !is_halted || interrupt.load(Ordering::SeqCst) {
            drain(&mut guest);
        }
        assert_eq!(seen, 2, "the guest halted over an event");
        assert!(words.load(layout::EVENT_HEAD_AT) <= 2);
    });
}

/// Without the fence of the host before it looks whether the guest wants an interrupt, the model must find
/// the fault: it is not blind.
#[test]
#[should_panic = "halted over"]
fn a_missing_fence_is_found() {
    loom::model(|| {
        let words = Model::new();
        let interrupt = Arc::new(AtomicBool::new(false));
        let (host_words, host_interrupt) = (Arc::clone(&words), Arc::clone(&interrupt));
        let host = thread::spawn(move || {
            host_words.store(layout::EVENTS_AT, SOCKET);
            host_words.store(layout::EVENT_HEAD_AT, 1);
            if host_words.load(layout::NEED_IRQ_AT) != 0 {
                host_interrupt.store(true, Ordering::SeqCst);
            }
        });
        let guest = GuestQueues::new(&*words, SMALL);
        let is_halted = !guest.arm(&*words);
        host.join().expect("the host ended");
        assert!(!is_halted || interrupt.load(Ordering::SeqCst), "halted over");
    });
}
