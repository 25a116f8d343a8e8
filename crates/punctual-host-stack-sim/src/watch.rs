//! What happens in the machine, for observers.

use punctual_host_stack::Who;
use punctual_model::results::HostPart;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The card's queue interrupts the processor.
    Interrupt {
        /// The card's number.
        card: usize,
        /// The processor.
        cpu: usize,
    },
    /// The processor runs the thread; `None`: nothing.
    Runs {
        /// The processor.
        cpu: usize,
        /// The thread.
        thread: Option<Who>,
    },
    /// The thread becomes ready.
    Wakes {
        /// The thread.
        thread: Who,
    },
    /// The thread waits for the softirq lock.
    WaitsForLock {
        /// The thread.
        thread: Who,
        /// The holder, which has at least the waiting thread's priority from now on.
        holder: Who,
    },
    /// The thread holds the softirq lock.
    Locks {
        /// The thread.
        thread: Who,
    },
    /// The thread releases the softirq lock.
    Unlocks {
        /// The thread.
        thread: Who,
    },
    /// A queue of the card was polled.
    Polled {
        /// The card's number.
        card: usize,
        /// Frames taken.
        frames: u32,
    },
    /// A request has spent this time on a part of its way.
    Spent {
        /// The server's number, counts included.
        server: usize,
        /// The request's number among those of this server, from 1.
        request: u64,
        /// The part.
        part: HostPart,
        /// When it began, in ns after the start.
        began_ns: u64,
        /// When it ended.
        ended_ns: u64,
    },
    /// An answer leaves the host.
    Answered {
        /// The server's number, counts included.
        server: usize,
    },
}

/// Observes what happens in a host's network stack, in order.
pub trait Watch {
    /// `event` happens at `now_ns` after the start.
    fn event(&mut self, now_ns: u64, event: Event);
}

impl Watch for () {
    fn event(&mut self, _: u64, _: Event) {}
}

impl<F: FnMut(u64, Event)> Watch for F {
    fn event(&mut self, now_ns: u64, event: Event) {
        self(now_ns, event);
    }
}
