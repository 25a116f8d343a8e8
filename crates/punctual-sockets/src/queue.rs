//! Submissions and events: who tells whom, and when a doorbell or an interrupt is needed.
//!
//! The rules of `docs/vmrpc.md`, for any memory of words: shared memory in the server, loom's model of memory
//! in `tests/model.rs`.

use crate::layout::{self, in_queue as place};

/// Memory of 32-bit words that two sides share. A word's place is its offset in bytes.
pub trait Words {
    /// Reads a word, with acquire ordering.
    fn load(&self, at: u32) -> u32;
    /// Writes a word, with release ordering.
    fn store(&self, at: u32, value: u32);
    /// Sets bits of a word, with acquire and release ordering; what it was before.
    fn set(&self, at: u32, bits: u32) -> u32;
    /// Clears bits of a word, with acquire and release ordering.
    fn clear(&self, at: u32, bits: u32);
    /// A sequentially consistent fence.
    fn fence(&self);
}

/// How many and how large the queues are; [`Geometry::FULL`], or smaller in models.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Queues.
    pub queues: u32,
    /// Slots of a queue, and words of its ring of submissions.
    pub slots: u32,
    /// Sockets.
    pub sockets: u32,
    /// Words of an event queue, a power of two.
    pub events: u32,
}

impl Geometry {
    /// What `docs/vmrpc.md` says.
    pub const FULL: Geometry = Geometry {
        queues: layout::QUEUES,
        slots: layout::QUEUE_SLOTS,
        sockets: layout::SOCKETS,
        events: layout::EVENTS,
    };
}

/// Something that a guest cannot do by mistake; it is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// More submissions than a queue has slots.
    #[error("{0} calls are submitted, and there are {slots} slots", slots = layout::QUEUE_SLOTS)]
    Submissions(u32),
    /// A submission of a slot that is not one of the queue's.
    #[error("slot {0} is submitted, and its queue has no such")]
    Slot(u32),
}

/// The host's side of the queues.
#[derive(Debug)]
pub struct HostQueues {
    geometry: Geometry,
    ends: Vec<HostEnds>,
    /// Whose calls are taken next: each queue has its turn.
    turn: u32,
}

/// The host's ends of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct HostEnds {
    event_head: u32,
    submission_tail: u32,
}

/// The place of a word of a slot's header.
pub fn header(slot: u32, word: u32) -> u32 {
    layout::HEADERS_AT + slot * layout::HEADER_BYTES + word * 4
}

/// The place of a word of a queue.
pub fn in_queue(queue: u32, place: u32) -> u32 {
    layout::QUEUES_AT + queue * layout::QUEUE_BYTES + place
}

impl HostQueues {
    /// Empty queues.
    pub fn new(geometry: Geometry) -> Self {
        let ends = vec![HostEnds::default(); geometry.queues as usize];
        HostQueues { geometry, ends, turn: 0 }
    }

    /// Goes on in memory that a server before used: nothing that was submitted or queued counts.
    pub fn resume<W: Words>(words: &W, geometry: Geometry) -> Self {
        let ends = (0..geometry.queues).map(|queue| {
            let event_head = words.load(in_queue(queue, place::EVENT_TAIL));
            words.store(in_queue(queue, place::EVENT_HEAD), event_head);
            HostEnds { event_head, submission_tail: words.load(in_queue(queue, place::SUBMISSION_HEAD)) }
        });
        let ends = ends.collect();
        for index in 0..geometry.sockets + geometry.queues * geometry.slots {
            words.store(layout::QUEUED_AT + index * 4, 0);
        }
        HostQueues { geometry, ends, turn: 0 }
    }

    /// The next slot that the guest submitted. Each queue has its turn, one call at a time.
    ///
    /// # Errors
    /// When a ring says what cannot be.
    pub fn take<W: Words>(&mut self, words: &W) -> Result<Option<u32>, Broken> {
        for _ in 0..self.geometry.queues {
            let queue = self.turn;
            self.turn = (queue + 1) % self.geometry.queues;
            if let Some(slot) = self.take_from(words, queue)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn take_from<W: Words>(&mut self, words: &W, queue: u32) -> Result<Option<u32>, Broken> {
        let (slots, ends) = (self.geometry.slots, &mut self.ends[queue as usize]);
        let waiting = words.load(in_queue(queue, place::SUBMISSION_HEAD)).wrapping_sub(ends.submission_tail);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > slots {
            return Err(Broken::Submissions(waiting));
        }
        let slot = words.load(in_queue(queue, place::SUBMISSIONS + ends.submission_tail % slots * 4));
        ends.submission_tail = ends.submission_tail.wrapping_add(1);
        if slot / slots == queue { Ok(Some(slot)) } else { Err(Broken::Slot(slot)) }
    }

    /// Says that a call is done, whose response was written. The queue whose interrupt the guest wants.
    pub fn complete<W: Words>(&mut self, words: &W, slot: u32) -> Option<u32> {
        words.store(header(slot, layout::request::STATE), layout::DONE);
        // Either this side sees that the caller sleeps, or the caller sees that the call is done.
        words.fence();
        let queue = words.load(header(slot, layout::request::WANT_EVENT)).checked_sub(1)?;
        self.queue(words, self.geometry.sockets + slot, queue)
    }

    /// Says what a socket is ready for, without an event.
    pub fn ready<W: Words>(&mut self, words: &W, socket: u32, ready: u32) {
        words.store(layout::READY_AT + socket * 4, ready);
    }

    /// Puts a socket into the event queue of the processor that waits for it. The queue whose interrupt the
    /// guest wants.
    pub fn event<W: Words>(&mut self, words: &W, socket: u32) -> Option<u32> {
        // Either this side sees who waits, or who waits sees what the socket is ready for.
        words.fence();
        let queue = words.load(layout::HOME_AT + socket * 4);
        self.queue(words, socket, queue)
    }

    /// Puts a socket or a slot into an event queue, unless it is there.
    fn queue<W: Words>(&mut self, words: &W, index: u32, queue: u32) -> Option<u32> {
        let queue = queue % self.geometry.queues;
        let (bit, ends) = (1 << queue, &mut self.ends[queue as usize]);
        // Written before: what the event is about. Who takes the event clears the bit and looks after.
        if words.set(layout::QUEUED_AT + index * 4, bit) & bit == 0 {
            let at = place::EVENTS + ends.event_head % self.geometry.events * 4;
            words.store(in_queue(queue, at), index);
            ends.event_head = ends.event_head.wrapping_add(1);
            words.store(in_queue(queue, place::EVENT_HEAD), ends.event_head);
        }
        words.fence();
        (words.load(in_queue(queue, place::NEED_IRQ)) != 0).then_some(queue)
    }

    /// Says that the host is going to sleep. False: there are submissions, do not.
    pub fn sleep<W: Words>(&self, words: &W) -> bool {
        words.store(layout::HOST_SLEEPING_AT, 1);
        words.fence();
        let is_empty = |(queue, ends): (u32, &HostEnds)| {
            words.load(in_queue(queue, place::SUBMISSION_HEAD)) == ends.submission_tail
        };
        if (0..).zip(&self.ends).all(is_empty) {
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
    ends: Vec<GuestEnds>,
}

/// The guest's ends of a queue.
#[derive(Clone, Copy, Debug)]
struct GuestEnds {
    event_tail: u32,
    submission_head: u32,
}

impl GuestQueues {
    /// Goes on where the guest before left the memory.
    pub fn new<W: Words>(words: &W, geometry: Geometry) -> Self {
        let ends = (0..geometry.queues).map(|queue| GuestEnds {
            event_tail: words.load(in_queue(queue, place::EVENT_TAIL)),
            submission_head: words.load(in_queue(queue, place::SUBMISSION_HEAD)),
        });
        GuestQueues { geometry, ends: ends.collect() }
    }

    /// Submits a slot, whose request was written. True: the host wants the doorbell.
    pub fn submit<W: Words>(&mut self, words: &W, slot: u32) -> bool {
        let (slots, queue) = (self.geometry.slots, slot / self.geometry.slots);
        let ends = &mut self.ends[queue as usize];
        words.store(header(slot, layout::request::STATE), layout::SUBMITTED);
        words.store(in_queue(queue, place::SUBMISSIONS + ends.submission_head % slots * 4), slot);
        ends.submission_head = ends.submission_head.wrapping_add(1);
        words.store(in_queue(queue, place::SUBMISSION_HEAD), ends.submission_head);
        words.fence();
        words.load(layout::HOST_SLEEPING_AT) != 0
    }

    /// Says that the caller of `slot` sleeps on the processor of `queue`. True: it is done already.
    pub fn want_event<W: Words>(&self, words: &W, slot: u32, queue: u32) -> bool {
        words.store(header(slot, layout::request::WANT_EVENT), queue + 1);
        words.fence();
        words.load(header(slot, layout::request::STATE)) == layout::DONE
    }

    /// Says that somebody waits for a socket on the processor of `queue`; what the socket is ready for.
    pub fn wait_at<W: Words>(&self, words: &W, socket: u32, queue: u32) -> u32 {
        words.store(layout::HOME_AT + socket * 4, queue);
        words.fence();
        words.load(layout::READY_AT + socket * 4)
    }

    /// The next socket, or slot from [`Geometry::sockets`] on, that something happened to.
    pub fn next_event<W: Words>(&mut self, words: &W, queue: u32) -> Option<u32> {
        let tail = &mut self.ends[queue as usize].event_tail;
        if words.load(in_queue(queue, place::EVENT_HEAD)) == *tail {
            return None;
        }
        let index = words.load(in_queue(queue, place::EVENTS + *tail % self.geometry.events * 4));
        *tail = tail.wrapping_add(1);
        words.store(in_queue(queue, place::EVENT_TAIL), *tail);
        words.clear(layout::QUEUED_AT + index * 4, 1 << queue);
        Some(index)
    }

    /// Wants an interrupt for the next event. True: there is one already, and none is wanted.
    pub fn arm<W: Words>(&self, words: &W, queue: u32) -> bool {
        words.store(in_queue(queue, place::NEED_IRQ), 1);
        words.fence();
        words.load(in_queue(queue, place::EVENT_HEAD)) != self.ends[queue as usize].event_tail
    }

    /// Wants no interrupt.
    pub fn disarm<W: Words>(&self, words: &W, queue: u32) {
        words.store(in_queue(queue, place::NEED_IRQ), 0);
    }
}
