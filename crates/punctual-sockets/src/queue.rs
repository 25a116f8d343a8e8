//! Submissions and events: who tells whom, and when a doorbell or an interrupt is needed.
//!
//! The rules of `docs/vmrpc.md`, for any memory of words: shared memory in the server, loom's model of memory
//! in `tests/model.rs`.

use crate::layout;

/// Memory of 32-bit words that two sides share. A word's place is its offset in bytes.
pub trait Words {
    /// Reads a word, with acquire ordering.
    fn load(&self, at: u32) -> u32;
    /// Writes a word, with release ordering.
    fn store(&self, at: u32, value: u32);
    /// Exchanges a word, with acquire and release ordering.
    fn swap(&self, at: u32, value: u32) -> u32;
    /// A sequentially consistent fence.
    fn fence(&self);
}

/// How large the queues are; [`Geometry::FULL`], or smaller in models.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Slots, and words of the ring of submissions.
    pub slots: u32,
    /// Sockets.
    pub sockets: u32,
    /// Words of the event queue, a power of two.
    pub events: u32,
}

impl Geometry {
    /// What `docs/vmrpc.md` says.
    pub const FULL: Geometry =
        Geometry { slots: layout::SLOTS, sockets: layout::SOCKETS, events: layout::EVENTS };
}

/// Something that a guest cannot do by mistake; it is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// More submissions than there are slots.
    #[error("{0} calls are submitted, and there are {slots} slots", slots = layout::SLOTS)]
    Submissions(u32),
    /// A submission of a slot that does not exist.
    #[error("slot {0} is submitted, and there are {slots}", slots = layout::SLOTS)]
    Slot(u32),
}

/// The host's side of the queues.
#[derive(Debug)]
pub struct HostQueues {
    geometry: Geometry,
    event_head: u32,
    submission_tail: u32,
}

/// The place of a word of a slot's header.
pub fn header(slot: u32, word: u32) -> u32 {
    layout::HEADERS_AT + slot * layout::HEADER_BYTES + word * 4
}

impl HostQueues {
    /// Empty queues.
    pub fn new(geometry: Geometry) -> Self {
        HostQueues { geometry, event_head: 0, submission_tail: 0 }
    }

    /// Goes on in memory that a server before used: nothing that was submitted or queued counts.
    pub fn resume<W: Words>(words: &W, geometry: Geometry) -> Self {
        let submission_tail = words.load(layout::SUBMISSION_HEAD_AT);
        let event_head = words.load(layout::EVENT_TAIL_AT);
        words.store(layout::EVENT_HEAD_AT, event_head);
        for index in 0..geometry.sockets + geometry.slots {
            words.swap(layout::QUEUED_AT + index * 4, 0);
        }
        HostQueues { geometry, event_head, submission_tail }
    }

    /// The next slot that the guest submitted.
    ///
    /// # Errors
    /// When the ring says what cannot be.
    pub fn take<W: Words>(&mut self, words: &W) -> Result<Option<u32>, Broken> {
        let waiting = words.load(layout::SUBMISSION_HEAD_AT).wrapping_sub(self.submission_tail);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.geometry.slots {
            return Err(Broken::Submissions(waiting));
        }
        let slot = words.load(layout::SUBMISSIONS_AT + self.submission_tail % self.geometry.slots * 4);
        self.submission_tail = self.submission_tail.wrapping_add(1);
        if slot < self.geometry.slots { Ok(Some(slot)) } else { Err(Broken::Slot(slot)) }
    }

    /// Says that a call is done, whose response was written. True: the guest wants an interrupt.
    pub fn complete<W: Words>(&mut self, words: &W, slot: u32) -> bool {
        words.store(header(slot, layout::request::STATE), layout::DONE);
        // Either this side sees that the caller sleeps, or the caller sees that the call is done.
        words.fence();
        words.load(header(slot, layout::request::WANT_EVENT)) != 0
            && self.queue(words, self.geometry.sockets + slot)
    }

    /// Says what a socket is ready for, without an event.
    pub fn ready<W: Words>(&mut self, words: &W, socket: u32, ready: u32) {
        words.store(layout::READY_AT + socket * 4, ready);
    }

    /// Puts a socket into the event queue. True: the guest wants an interrupt.
    pub fn event<W: Words>(&mut self, words: &W, socket: u32) -> bool {
        self.queue(words, socket)
    }

    /// Puts a socket or a slot into the event queue, unless it is there.
    fn queue<W: Words>(&mut self, words: &W, index: u32) -> bool {
        // Written before: what the event is about. Who takes the event sets the word to 0 and looks after.
        if words.swap(layout::QUEUED_AT + index * 4, 1) == 0 {
            words.store(layout::EVENTS_AT + self.event_head % self.geometry.events * 4, index);
            self.event_head = self.event_head.wrapping_add(1);
            words.store(layout::EVENT_HEAD_AT, self.event_head);
        }
        words.fence();
        words.load(layout::NEED_IRQ_AT) != 0
    }

    /// Says that the host is going to sleep. False: there are submissions, do not.
    pub fn sleep<W: Words>(&self, words: &W) -> bool {
        words.store(layout::HOST_SLEEPING_AT, 1);
        words.fence();
        if words.load(layout::SUBMISSION_HEAD_AT) == self.submission_tail {
            return true;
        }
        self.wake(words);
        false
    }

    /// Says that the host looks again.
    pub fn wake<W: Words>(&self, words: &W) {
        words.store(layout::HOST_SLEEPING_AT, 0);
    }
}

/// The guest's side of the queues: what `guest-module` does in C.
#[derive(Debug)]
pub struct GuestQueues {
    geometry: Geometry,
    event_tail: u32,
    submission_head: u32,
}

impl GuestQueues {
    /// Goes on where the guest before left the memory.
    pub fn new<W: Words>(words: &W, geometry: Geometry) -> Self {
        let event_tail = words.load(layout::EVENT_TAIL_AT);
        GuestQueues { geometry, event_tail, submission_head: words.load(layout::SUBMISSION_HEAD_AT) }
    }

    /// Submits a slot, whose request was written. True: the host wants the doorbell.
    pub fn submit<W: Words>(&mut self, words: &W, slot: u32) -> bool {
        words.store(header(slot, layout::request::STATE), layout::SUBMITTED);
        words.store(layout::SUBMISSIONS_AT + self.submission_head % self.geometry.slots * 4, slot);
        self.submission_head = self.submission_head.wrapping_add(1);
        words.store(layout::SUBMISSION_HEAD_AT, self.submission_head);
        words.fence();
        words.load(layout::HOST_SLEEPING_AT) != 0
    }

    /// Says that the caller of `slot` sleeps. True: it is done already.
    pub fn want_event<W: Words>(&self, words: &W, slot: u32) -> bool {
        words.store(header(slot, layout::request::WANT_EVENT), 1);
        words.fence();
        words.load(header(slot, layout::request::STATE)) == layout::DONE
    }

    /// The next socket, or slot from [`Geometry::sockets`] on, that something happened to.
    pub fn next_event<W: Words>(&mut self, words: &W) -> Option<u32> {
        if words.load(layout::EVENT_HEAD_AT) == self.event_tail {
            return None;
        }
        let index = words.load(layout::EVENTS_AT + self.event_tail % self.geometry.events * 4);
        self.event_tail = self.event_tail.wrapping_add(1);
        words.store(layout::EVENT_TAIL_AT, self.event_tail);
        words.swap(layout::QUEUED_AT + index * 4, 0);
        Some(index)
    }

    /// Wants an interrupt for the next event. True: there is one already, and none is wanted.
    pub fn arm<W: Words>(&self, words: &W) -> bool {
        words.store(layout::NEED_IRQ_AT, 1);
        words.fence();
        words.load(layout::EVENT_HEAD_AT) != self.event_tail
    }

    /// Wants no interrupt.
    pub fn disarm<W: Words>(&self, words: &W) {
        words.store(layout::NEED_IRQ_AT, 0);
    }
}
