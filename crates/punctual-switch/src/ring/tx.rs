//! The transmitq of a port: the driver makes frames available in it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use virtio_queue::QueueT;
use vm_memory::{VolatileMemory as _, VolatileSlice};

use super::avail::NextChain;
use super::chain::Chain;
use super::copy::{contiguous, read};
use super::vring::{Vring, VringConfig};
use crate::error::RingError;
use crate::frame::{self, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead, HEADER_BYTES};
use crate::narrow::{to_u8, to_u32};
use crate::sys::GuestArray;
use crate::vlan::VlanTag;

#[derive(Debug)]
pub struct TxRing {
    pub(super) ring: Vring,
    pub(super) header_bytes: usize,
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) err: Option<Arc<OwnedFd>>,
}

/// What [`TxRing::pop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    Empty,
    /// A frame of this length, without its virtio-net header.
    Frame {
        bytes: u32,
    },
    /// A chain that is too short or too long for a frame, or has too many elements.
    Malformed,
}

impl TxRing {
    pub fn new(config: &VringConfig) -> Result<TxRing, RingError> {
        Ok(TxRing {
            ring: Vring::new(config)?,
            header_bytes: frame::header_bytes(config.features),
            kick: Arc::clone(&config.kick),
            err: config.err.clone(),
        })
    }

    /// Pops the next frame into `chain`.
    #[inline(always)]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<Popped, RingError> {
        let is_complete = match self.ring.pop_single(false)? {
            NextChain::Empty => return Ok(Popped::Empty),
            NextChain::Single { head, element } => {
                (chain.head, chain.bytes, chain.count, chain.single) = (head, element.bytes, 1, element);
                true
            }
            NextChain::Multi => {
                let found = self.ring.pop_multi(false, &mut chain.multi[..])?;
                (chain.head, chain.bytes, chain.count) = (found.head, found.bytes, to_u8(found.count));
                chain.single = chain.multi[0];
                !found.is_cut
            }
        };
        let bytes = chain.bytes;
        let shortest = to_u32(self.header_bytes + frame::ETHERNET_BYTES);
        if !is_complete || bytes < shortest || bytes > FRAME_BYTES_MAX + to_u32(HEADER_BYTES) {
            return Ok(Popped::Malformed);
        }
        if self.header_bytes == HEADER_BYTES
            && let Some(head) = contiguous(&self.ring.memory, chain.single, 0, FRAME_HEAD_BYTES)?
        {
            chain.frame_head = read_contiguous_head(&head)?;
        } else {
            chain.frame_head = self.read_head(chain)?;
        }
        let bytes = bytes - to_u32(self.header_bytes);
        Ok(if chain.frame_head.is_consistent(bytes) { Popped::Frame { bytes } } else { Popped::Malformed })
    }

    /// Reads virtio-net header, addresses and type, however they are laid out.
    #[cold]
    fn read_head(&self, chain: &Chain) -> Result<FrameHead, RingError> {
        let mut first = [0; FRAME_HEAD_BYTES];
        let missing = HEADER_BYTES - self.header_bytes;
        read(&self.ring.memory, chain.elements(), 0, &mut first[missing..])?;
        // The legacy header has no `num_buffers`.
        first[..HEADER_BYTES].rotate_left(missing);
        Ok(first.into())
    }

    /// The VLAN tag of a popped frame, whose type says that it has one and which is long enough.
    pub fn vlan_tag(&self, chain: &Chain) -> Result<VlanTag, RingError> {
        let skip = self.header_bytes + frame::ETHERNET_BYTES;
        let mut bytes = [0; frame::TAG_BYTES];
        read(&self.ring.memory, chain.elements(), skip, &mut bytes)?;
        let [high, low, kind @ ..] = bytes;
        Ok(VlanTag { control: u16::from_be_bytes([high, low]), kind })
    }

    /// Returns the buffers of a frame to the driver, which sees them after `TxRing::publish`.
    #[inline]
    pub fn push_used(&mut self, chain: &Chain) {
        debug_assert!(self.ring.used_idx.0 != self.ring.queue.next_avail(), "a chain is returned once");
        self.ring.write_used_elem(0, chain.head, 0);
        self.ring.used_idx += 1;
    }

    /// Is a part of its VM's memory missing?
    pub(crate) fn has_faulted(&self) -> bool {
        self.ring.memory.has_faulted()
    }

    /// Publishes the used index.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.publish_used();
    }

    /// Signals the driver, if it wants a call. [`super::publish_barrier`] must precede.
    #[inline]
    pub(crate) fn signal_driver(&mut self) {
        self.ring.signal_driver();
    }

    /// Publishes the used index, and signals the driver if it wants a call.
    #[inline]
    pub fn publish_and_signal(&mut self) {
        self.ring.publish_and_signal();
    }

    /// The number of available chains.
    pub(crate) fn avail_len(&mut self) -> Result<u16, RingError> {
        self.ring.refresh_avail()
    }

    /// The driver's avail index when the ring last read it.
    #[inline]
    pub(crate) fn seen_avail(&self) -> u16 {
        self.ring.avail_idx
    }

    /// The driver's avail index, to be polled.
    pub(crate) fn avail_index(&self) -> GuestArray<AtomicU16> {
        self.ring.avail_index.clone()
    }

    /// The index of the next chain.
    #[inline]
    pub(crate) fn next_avail(&self) -> u16 {
        self.ring.queue.next_avail()
    }

    /// Replaces the call event, and signals it once. Returns the former one.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) -> Option<Arc<OwnedFd>> {
        self.ring.set_call(call)
    }

    /// Asks the driver to kick. Returns whether a chain is available already.
    pub fn enable_kick(&mut self) -> Result<bool, RingError> {
        Ok(self.ring.queue.enable_notification(&self.ring.memory.guest)?)
    }

    /// Lets the driver skip kicks.
    pub(crate) fn disable_kick(&mut self) -> Result<(), RingError> {
        Ok(self.ring.queue.disable_notification(&self.ring.memory.guest)?)
    }

    /// Where a ring that stops now continues: chains that were not returned are popped again.
    pub fn vring_base(&self) -> u16 {
        self.ring.used_idx.0
    }
}

/// Reads virtio-net header, addresses and type where they are contiguous.
#[inline]
fn read_contiguous_head(first: &VolatileSlice<'_>) -> Result<FrameHead, RingError> {
    let fits = |_| RingError::OutOfBounds;
    let word = |at| first.get_ref::<u64>(at).map(|word| u64::from_le(word.load())).map_err(fits);
    let last = u16::from_le(first.get_ref::<u16>(24).map_err(fits)?.load());
    Ok(FrameHead { words: [word(0)?, word(8)?, word(16)?], last })
}
