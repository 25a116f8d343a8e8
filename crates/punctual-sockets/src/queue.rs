//! Submission and event queues, and the rules for when a doorbell or an interrupt is needed
//! (`docs/vmrpc.md`).
//!
//! The queues work on any memory of words: shared memory in the server, loom's model of memory in
//! `tests/model.rs`. The host's counters are kept in [`HostQueues`] and only written to the memory, so a
//! guest that overwrites them there harms itself alone. Counters only grow, and wrap. Each socket and slot is
//! in an event queue at most once, so an event queue never overflows.

use crate::layout::{self, in_queue as place};

/// Memory of 32-bit words that both sides share. `at` is a word's offset in bytes.
pub trait Words {
    /// Reads a word with acquire ordering.
    fn load(&self, at: u32) -> u32;
    /// Writes a word with release ordering.
    fn store(&self, at: u32, value: u32);
    /// Sets bits of a word with acquire and release ordering; returns the old word.
    fn set(&self, at: u32, bits: u32) -> u32;
    /// Clears bits of a word with acquire and release ordering.
    fn clear(&self, at: u32, bits: u32);
    /// Sequentially consistent fence.
    fn fence(&self);
}

/// Number and size of the queues: [`Geometry::FULL`], or smaller in models.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub queues: u32,
    /// Slots of a queue, and entries of its submission ring.
    pub slots: u32,
    pub sockets: u32,
    /// Entries of an event queue, a power of two.
    pub events: u32,
}

impl Geometry {
    /// The geometry of `docs/vmrpc.md`.
    pub const FULL: Geometry = Geometry {
        queues: layout::QUEUES,
        slots: layout::QUEUE_SLOTS,
        sockets: layout::SOCKETS,
        events: layout::EVENTS,
    };
}

/// An invalid submission ring. The server stops serving the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error("the guest claims {0} submitted calls in a queue of {slots} slots", slots = layout::QUEUE_SLOTS)]
    TooManySubmissions(u32),
    #[error("the guest submitted slot {0} in a queue that does not have it")]
    WrongSlot(u32),
}

/// The host's side of the queues.
#[derive(Debug)]
pub struct HostQueues {
    geometry: Geometry,
    counters: Vec<HostCounters>,
    /// The queue whose submission is taken next.
    turn: u32,
}

/// The host's counters of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct HostCounters {
    event_head: u32,
    submission_tail: u32,
}

/// Offset of a word of a slot's header.
pub fn header(slot: u32, word: u32) -> u32 {
    debug_assert!(slot < layout::SLOTS && word * 4 < layout::HEADER_BYTES);
    layout::HEADERS_AT + slot * layout::HEADER_BYTES + word * 4
}

/// Offset of a word of a queue.
pub fn in_queue(queue: u32, place: u32) -> u32 {
    debug_assert!(queue < layout::QUEUES && place < layout::QUEUE_BYTES);
    layout::QUEUES_AT + queue * layout::QUEUE_BYTES + place
}

impl HostQueues {
    /// Empty queues.
    pub fn new(geometry: Geometry) -> Self {
        let counters = vec![HostCounters::default(); geometry.queues as usize];
        HostQueues { geometry, counters, turn: 0 }
    }

    /// Takes over memory of an earlier server and discards its pending submissions and events.
    pub(crate) fn resume<W: Words>(words: &W, geometry: Geometry) -> Self {
        let counters = (0..geometry.queues).map(|queue| {
            let event_head = words.load(in_queue(queue, place::EVENT_TAIL));
            words.store(in_queue(queue, place::EVENT_HEAD), event_head);
            HostCounters { event_head, submission_tail: words.load(in_queue(queue, place::SUBMISSION_HEAD)) }
        });
        let counters = counters.collect();
        for index in 0..geometry.sockets + geometry.queues * geometry.slots {
            words.store(layout::QUEUED_AT + index * 4, 0);
        }
        HostQueues { geometry, counters, turn: 0 }
    }

    /// The next slot that the guest submitted. Queues take turns, one call each, so a busy vCPU cannot starve
    /// another.
    ///
    /// # Errors
    /// A ring is invalid.
    pub fn next_submission<W: Words>(&mut self, words: &W) -> Result<Option<u32>, RingError> {
        for _ in 0..self.geometry.queues {
            let queue = self.turn;
            self.turn = (queue + 1) % self.geometry.queues;
            if let Some(slot) = self.next_submission_of(words, queue)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn next_submission_of<W: Words>(&mut self, words: &W, queue: u32) -> Result<Option<u32>, RingError> {
        let (slots, counters) = (self.geometry.slots, &mut self.counters[queue as usize]);
        let tail = counters.submission_tail;
        let pending = words.load(in_queue(queue, place::SUBMISSION_HEAD)).wrapping_sub(tail);
        if pending == 0 {
            return Ok(None);
        }
        if pending > slots {
            return Err(RingError::TooManySubmissions(pending));
        }
        let slot = words.load(in_queue(queue, place::SUBMISSIONS + tail % slots * 4));
        counters.submission_tail = tail.wrapping_add(1);
        if slot / slots == queue { Ok(Some(slot)) } else { Err(RingError::WrongSlot(slot)) }
    }

    /// Completes a call whose response was written. Returns the queue to interrupt, if any.
    pub fn complete<W: Words>(&mut self, words: &W, slot: u32) -> Option<u32> {
        words.store(header(slot, layout::request::STATE), layout::DONE);
        // Either the host sees that the caller sleeps, or the caller sees that the call is done.
        words.fence();
        let queue = words.load(header(slot, layout::request::WANT_EVENT)).checked_sub(1)?;
        self.push_event(words, self.geometry.sockets + slot, queue)
    }

    /// Publishes what a socket is ready for, without an event.
    pub fn set_ready<W: Words>(&mut self, words: &W, socket: u32, ready: u32) {
        debug_assert!(socket < self.geometry.sockets);
        words.store(layout::READY_AT + socket * 4, ready);
    }

    /// Queues an event of a socket for the vCPU that waits for it. Returns the queue to interrupt, if any.
    pub fn notify<W: Words>(&mut self, words: &W, socket: u32) -> Option<u32> {
        debug_assert!(socket < self.geometry.sockets);
        // Either the host sees the new home, or the vCPU that wrote it sees what the socket is ready for.
        words.fence();
        let queue = words.load(layout::HOME_AT + socket * 4);
        self.push_event(words, socket, queue)
    }

    /// Puts a socket or a slot into an event queue, unless it is queued there. Any number of a queue is
    /// valid, because the guest wrote it.
    fn push_event<W: Words>(&mut self, words: &W, index: u32, queue: u32) -> Option<u32> {
        debug_assert!(index < self.geometry.sockets + self.geometry.queues * self.geometry.slots);
        let queue = queue % self.geometry.queues;
        let (bit, counters) = (1 << queue, &mut self.counters[queue as usize]);
        // The caller has published the change. The guest clears the bit before it reads the change, so a bit
        // that is set here means that the guest will still read it.
        if words.set(layout::QUEUED_AT + index * 4, bit) & bit == 0 {
            let at = place::EVENTS + counters.event_head % self.geometry.events * 4;
            words.store(in_queue(queue, at), index);
            counters.event_head = counters.event_head.wrapping_add(1);
            words.store(in_queue(queue, place::EVENT_HEAD), counters.event_head);
        }
        // Either the host sees need_irq, or the guest sees the event before it halts.
        words.fence();
        (words.load(in_queue(queue, place::NEED_IRQ)) != 0).then_some(queue)
    }

    /// Asks the guest for the doorbell before the host sleeps. Returns false when there are submissions, and
    /// the host must not sleep.
    pub fn prepare_sleep<W: Words>(&self, words: &W) -> bool {
        words.store(layout::HOST_SLEEPING_AT, 1);
        // Either the guest sees that the host sleeps, or the host sees the submission.
        words.fence();
        let is_empty = |(queue, counters): (u32, &HostCounters)| {
            words.load(in_queue(queue, place::SUBMISSION_HEAD)) == counters.submission_tail
        };
        if (0..).zip(&self.counters).all(is_empty) {
            return true;
        }
        self.end_sleep(words);
        false
    }

    /// Ends the request for the doorbell.
    pub(crate) fn end_sleep<W: Words>(&self, words: &W) {
        words.store(layout::HOST_SLEEPING_AT, 0);
    }
}

/// The guest's side of the queues, which `guest-module` implements in C.
#[derive(Debug)]
pub struct GuestQueues {
    geometry: Geometry,
    counters: Vec<GuestCounters>,
}

/// The guest's counters of a queue.
#[derive(Clone, Copy, Debug)]
struct GuestCounters {
    event_tail: u32,
    submission_head: u32,
}

impl GuestQueues {
    /// Continues from the counters that an earlier guest left in the memory.
    pub fn new<W: Words>(words: &W, geometry: Geometry) -> Self {
        let counters = (0..geometry.queues).map(|queue| GuestCounters {
            event_tail: words.load(in_queue(queue, place::EVENT_TAIL)),
            submission_head: words.load(in_queue(queue, place::SUBMISSION_HEAD)),
        });
        GuestQueues { geometry, counters: counters.collect() }
    }

    /// Submits a slot whose request was written. Returns whether the host needs the doorbell.
    pub fn submit<W: Words>(&mut self, words: &W, slot: u32) -> bool {
        let (slots, queue) = (self.geometry.slots, slot / self.geometry.slots);
        let head = &mut self.counters[queue as usize].submission_head;
        words.store(header(slot, layout::request::STATE), layout::SUBMITTED);
        words.store(in_queue(queue, place::SUBMISSIONS + *head % slots * 4), slot);
        *head = head.wrapping_add(1);
        words.store(in_queue(queue, place::SUBMISSION_HEAD), *head);
        words.fence();
        words.load(layout::HOST_SLEEPING_AT) != 0
    }

    /// Asks for an event in `queue` when the call of `slot` is done. Returns whether it is done already.
    pub fn want_event<W: Words>(&self, words: &W, slot: u32, queue: u32) -> bool {
        words.store(header(slot, layout::request::WANT_EVENT), queue + 1);
        words.fence();
        words.load(header(slot, layout::request::STATE)) == layout::DONE
    }

    /// Directs events of a socket to `queue`. Returns what the socket is ready for.
    pub fn wait_at<W: Words>(&self, words: &W, socket: u32, queue: u32) -> u32 {
        words.store(layout::HOME_AT + socket * 4, queue);
        words.fence();
        words.load(layout::READY_AT + socket * 4)
    }

    /// The next event: the number of a socket, or [`Geometry::sockets`] plus the number of a slot.
    pub fn next_event<W: Words>(&mut self, words: &W, queue: u32) -> Option<u32> {
        let tail = &mut self.counters[queue as usize].event_tail;
        if words.load(in_queue(queue, place::EVENT_HEAD)) == *tail {
            return None;
        }
        let index = words.load(in_queue(queue, place::EVENTS + *tail % self.geometry.events * 4));
        *tail = tail.wrapping_add(1);
        words.store(in_queue(queue, place::EVENT_TAIL), *tail);
        words.clear(layout::QUEUED_AT + index * 4, 1 << queue);
        Some(index)
    }

    /// Enables the interrupt of `queue`. Returns whether an event is already there.
    pub fn enable_interrupt<W: Words>(&self, words: &W, queue: u32) -> bool {
        words.store(in_queue(queue, place::NEED_IRQ), 1);
        words.fence();
        words.load(in_queue(queue, place::EVENT_HEAD)) != self.counters[queue as usize].event_tail
    }

    pub fn disable_interrupt<W: Words>(&self, words: &W, queue: u32) {
        words.store(in_queue(queue, place::NEED_IRQ), 0);
    }
}
