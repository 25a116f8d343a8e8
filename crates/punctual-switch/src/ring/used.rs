//! The used ring.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_queue::QueueT;

use super::vring::Vring;
use crate::error::RingError;
use crate::sys::signal;

/// The driver wants no interrupts (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const AVAIL_F_NO_INTERRUPT: u16 = 1;

impl Vring {
    /// Writes the used entry that is `after` entries behind the next one; nobody sees it yet.
    #[inline]
    pub(super) fn write_used_elem(&self, after: u16, head: u16, bytes: u32) -> Result<(), RingError> {
        let at = self.slot(self.used_idx.0.wrapping_add(after));
        self.used_ring.write_u64(4 + at * 8, u64::from(bytes) << 32 | u64::from(head))
    }

    /// Shows the driver what was used. Its processor has the line that this writes, so it is done once for
    /// several frames.
    #[inline]
    pub(super) fn publish_used(&mut self) -> Result<(), RingError> {
        if self.used_idx != self.published_idx {
            self.used_ring.atomic_u16(2)?.store(self.used_idx.0.to_le(), Ordering::Release);
            self.published_idx = self.used_idx;
        }
        Ok(())
    }

    /// Does the driver want to hear of what was shown since the last time? What was shown is publish_barrier by a
    /// fence before.
    #[inline]
    pub(super) fn needs_call(&mut self) -> Result<bool, RingError> {
        let before = std::mem::replace(&mut self.signalled_idx, self.published_idx);
        if self.event_idx {
            let event = self.avail_ring.atomic_u16(4 + 2 * usize::from(self.queue.size()))?;
            let event = Wrapping(u16::from_le(event.load(Ordering::Relaxed)));
            return Ok(self.signalled_idx - event - Wrapping(1) < self.signalled_idx - before);
        }
        let flags = self.avail_ring.atomic_u16(0)?.load(Ordering::Relaxed);
        Ok(u16::from_le(flags) & AVAIL_F_NO_INTERRUPT == 0)
    }

    /// Tells the driver of what was shown, behind a fence, if it wants to hear.
    #[inline]
    pub(super) fn signal_driver(&mut self) -> Result<(), RingError> {
        if self.published_idx != self.signalled_idx
            && self.needs_call()?
            && let Some(call) = &self.call
        {
            signal(call);
        }
        Ok(())
    }

    /// From now on the driver hears here. It is told once, whatever it wants: what was shown before may have
    /// been told where nobody listens any more.
    pub(super) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
        if let Some(call) = &self.call {
            signal(call);
        }
    }

    /// Shows the driver what was used, and tells it if it wants to hear.
    pub(super) fn publish_and_signal(&mut self) -> Result<(), RingError> {
        self.publish_used()?;
        if self.published_idx != self.signalled_idx {
            publish_barrier();
        }
        self.signal_driver()
    }
}

/// What was shown is publish_barrier before any driver's wish is read.
#[inline]
pub(crate) fn publish_barrier() {
    fence(Ordering::SeqCst);
}
