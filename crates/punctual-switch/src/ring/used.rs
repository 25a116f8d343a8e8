//! The used ring.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_queue::QueueT;

use super::vring::Ring;
use crate::error::Broken;
use crate::sys::ring_bell;

/// The driver wants no interrupts (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;

impl Ring {
    /// Writes the used entry that is `after` entries behind the next one; nobody sees it yet.
    #[inline]
    pub(super) fn write_used(&self, after: u16, head: u16, bytes: u32) -> Result<(), Broken> {
        let at = self.at(self.used.0.wrapping_add(after));
        self.used_ring.set_word(4 + at * 8, u64::from(bytes) << 32 | u64::from(head))
    }

    /// Shows the driver what was used. Its processor has the line that this writes, so it is done once for
    /// several frames.
    #[inline]
    pub(super) fn show_used(&mut self) -> Result<(), Broken> {
        if self.used != self.shown {
            self.used_ring.index(2)?.store(self.used.0.to_le(), Ordering::Release);
            self.shown = self.used;
        }
        Ok(())
    }

    /// Does the driver want to hear of what was shown since the last time? What was shown is visible by a
    /// fence before.
    #[inline]
    pub(super) fn wants_call(&mut self) -> Result<bool, Broken> {
        let before = std::mem::replace(&mut self.told, self.shown);
        if self.event_idx {
            let event = self.available.index(4 + 2 * usize::from(self.queue.size()))?;
            let event = Wrapping(u16::from_le(event.load(Ordering::Relaxed)));
            return Ok(self.told - event - Wrapping(1) < self.told - before);
        }
        let flags = self.available.index(0)?.load(Ordering::Relaxed);
        Ok(u16::from_le(flags) & NO_INTERRUPT == 0)
    }

    /// Tells the driver of what was shown, behind a fence, if it wants to hear.
    #[inline]
    pub(super) fn call(&mut self) -> Result<(), Broken> {
        if self.shown != self.told
            && self.wants_call()?
            && let Some(call) = &self.call
        {
            ring_bell(call);
        }
        Ok(())
    }

    /// From now on the driver hears here. It is told once, whatever it wants: what was shown before may have
    /// been told where nobody listens any more.
    pub(super) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
        if let Some(call) = &self.call {
            ring_bell(call);
        }
    }

    /// Shows the driver what was used, and tells it if it wants to hear.
    pub(super) fn tell(&mut self) -> Result<(), Broken> {
        self.show_used()?;
        if self.shown != self.told {
            visible();
        }
        self.call()
    }
}

/// What was shown is visible before any driver's wish is read.
#[inline]
pub(crate) fn visible() {
    fence(Ordering::SeqCst);
}
