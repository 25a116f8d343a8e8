//! The used ring: entries are written, published and signalled, in three steps.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_queue::QueueT;

use super::vring::Vring;
use crate::sys::signal_peer;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const AVAIL_F_NO_INTERRUPT: u16 = 1;

impl Vring {
    /// Writes the used entry `ahead` entries behind the next one, without publishing it.
    #[inline]
    pub(super) fn write_used_elem(&self, ahead: u16, head: u16, bytes: u32) {
        let [id, length] = self.used_ring.at(self.used_idx.0.wrapping_add(ahead).into());
        id.store(u32::from(head).to_le(), Ordering::Relaxed);
        length.store(bytes.to_le(), Ordering::Relaxed);
    }

    /// Publishes the used index. The store takes the cache line away from the driver's processor, so several
    /// frames share one.
    #[inline]
    pub(super) fn publish_used(&mut self) {
        debug_assert!((self.used_idx - self.published_idx).0 <= self.queue.size());
        if self.used_idx != self.published_idx {
            self.used_index.at(0).store(self.used_idx.0.to_le(), Ordering::Release);
            self.published_idx = self.used_idx;
        }
    }

    /// Does the driver want a call for what was published since the last one? A [`publish_barrier`] must
    /// precede.
    #[inline]
    fn needs_call(&mut self) -> bool {
        let before = std::mem::replace(&mut self.signalled_idx, self.published_idx);
        if self.event_idx {
            let event = Wrapping(u16::from_le(self.used_event.at(0).load(Ordering::Relaxed)));
            return self.signalled_idx - event - Wrapping(1) < self.signalled_idx - before;
        }
        let flags = self.avail_flags.at(0).load(Ordering::Relaxed);
        u16::from_le(flags) & AVAIL_F_NO_INTERRUPT == 0
    }

    /// Signals the driver, if it wants a call. A [`publish_barrier`] must precede.
    #[inline]
    pub(super) fn signal_driver(&mut self) {
        if self.published_idx != self.signalled_idx
            && self.needs_call()
            && let Some(call) = &self.call
        {
            signal_peer(call);
        }
    }

    /// Replaces the call event, and signals it once: the last call may have gone to the old event, which
    /// nobody reads any more. Returns the old one.
    pub(super) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) -> Option<Arc<OwnedFd>> {
        let former = std::mem::replace(&mut self.call, call);
        if let Some(call) = &self.call {
            signal_peer(call);
        }
        former
    }

    pub(super) fn publish_and_signal(&mut self) {
        self.publish_used();
        if self.published_idx != self.signalled_idx {
            publish_barrier();
        }
        self.signal_driver();
    }
}

/// Orders the store of a used index before the load of the driver's flags (virtio 1.2, section 2.7.7.2):
/// without it both sides can miss each other.
#[inline]
pub(crate) fn publish_barrier() {
    fence(Ordering::SeqCst);
}
