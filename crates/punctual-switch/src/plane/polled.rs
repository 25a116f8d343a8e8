//! The TX rings that a plane polls, in one array. A look at a ring reads its entry and the driver's avail
//! index, and nothing else of the port, so idle ports cost little. While a ring has frames that an earlier
//! read of its index found, the index is not read: its cache line moves between the processors each time a
//! driver has written it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::port_queue::PortQueue;
use crate::sys::GuestArray;

#[derive(Debug)]
pub(super) struct PolledRing {
    pub(super) port: usize,
    /// The driver's avail index; `None`: the ring has stopped.
    avail_index: Option<GuestArray<AtomicU16>>,
    /// The index of the next frame.
    next_avail: u16,
    /// The driver's avail index, as far as it is known.
    seen_avail: Cell<u16>,
    /// Is there room for a frame that could change a decision? Set and cleared by `update`.
    wants_frame: bool,
    /// [`KICKS`] and [`CLASSES`].
    flags: u8,
}

/// The driver kicks. Set when the plane has asked for it, cleared by the next frame.
const KICKS: u8 = 1;
/// The port has classes.
const CLASSES: u8 = 2;

impl PolledRing {
    pub(super) fn new(port: usize) -> PolledRing {
        PolledRing {
            port,
            avail_index: None,
            next_avail: 0,
            seen_avail: Cell::new(0),
            wants_frame: false,
            flags: 0,
        }
    }

    /// The port's ring has started or stopped.
    pub(super) fn set_ring(&mut self, queue: &PortQueue) {
        self.avail_index = queue.tx.as_ref().map(|tx| tx.avail_index());
        self.flags = if queue.has_classes { CLASSES } else { 0 };
        self.update(queue);
    }

    /// The port has taken, passed on or returned frames.
    #[inline]
    pub(super) fn update(&mut self, queue: &PortQueue) {
        self.wants_frame = queue.wants_frame();
        if let Some(tx) = &queue.tx {
            self.next_avail = tx.next_avail();
            self.seen_avail.set(tx.seen_avail());
        }
    }

    /// Could a frame be taken now, or is the ring broken?
    #[inline(always)]
    pub(super) fn has_pending(&self) -> bool {
        self.wants_frame && self.avail_index.as_ref().is_some_and(|index| self.has_more(index))
    }

    #[inline(always)]
    fn has_more(&self, index: &GuestArray<AtomicU16>) -> bool {
        if self.seen_avail.get() == self.next_avail {
            self.seen_avail.set(u16::from_le(index.at(0).load(Ordering::Acquire)));
        }
        self.seen_avail.get() != self.next_avail
    }

    #[inline]
    pub(super) fn wants_frame(&self) -> bool {
        self.wants_frame
    }

    #[inline]
    pub(super) fn kicks(&self) -> bool {
        self.flags & KICKS != 0
    }

    pub(super) fn set_kicks(&mut self, kicks: bool) {
        self.flags = self.flags & !KICKS | if kicks { KICKS } else { 0 };
    }

    pub(super) fn has_classes(&self) -> bool {
        self.flags & CLASSES != 0
    }

    /// Does the driver not kick, and has the port no classes?
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.flags == 0
    }

    /// Is it what `update` would make of it?
    pub(super) fn is_current(&self, queue: &PortQueue) -> bool {
        let next_avail = queue.tx.as_ref().map_or(self.next_avail, |tx| tx.next_avail());
        self.wants_frame == queue.wants_frame()
            && self.next_avail == next_avail
            && self.avail_index.is_some() == queue.tx.is_some()
    }
}
