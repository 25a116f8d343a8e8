//! The receiveq of a port: the driver makes empty buffers available in it.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use virtio_queue::QueueT;
use vm_memory::VolatileMemory as _;

use super::avail::{ChainInfo, NextChain};
use super::chain::{Chain, Element};
use super::copy::{Cursor, Elements, contiguous, copy, write};
use super::tx::TxRing;
use super::vring::{Vring, VringConfig};
use crate::error::{DeliverError, RingError};
use crate::features;
use crate::frame::{self, HEADER_BYTES};
use crate::narrow::{to_u16, to_u32};
use crate::vlan::HeaderRewrite;

/// Buffers that a frame may fill: 64 KiB take 43 buffers of 1,536 bytes.
const RX_BUFFERS_MAX: usize = 64;

/// Elements of these buffers.
const RX_ELEMENTS_MAX: usize = 128;

/// Elements of any length at the beginning of a frame: drivers may put headers into buffers of their own.
const SHORT_ELEMENTS_MAX: usize = 4;

/// Bytes that the elements behind them have on average, at least: a receiver with shorter ones would take
/// much more of a plane's time for each byte than others do.
const ELEMENT_BYTES_MIN: u32 = 128;

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The frame is in this many buffers.
    Delivered { buffers: u16 },
    /// Not enough buffers are available.
    NoBuffers,
    /// The driver did not accept the feature for such a frame.
    Offload,
}

/// Are these elements too short for the bytes that they hold?
fn is_in_tiny_pieces(elements: usize, bytes: u32) -> bool {
    let long = to_u32(elements.saturating_sub(SHORT_ELEMENTS_MAX));
    bytes < long * ELEMENT_BYTES_MIN
}

#[derive(Debug)]
pub struct RxRing {
    ring: Vring,
    features: u64,
    header_bytes: usize,
    buffers: [(u16, u32); RX_BUFFERS_MAX],
    elements: [Element; RX_ELEMENTS_MAX],
    /// The most available buffers that a flooded frame has found.
    avail_max: u16,
}

impl RxRing {
    pub fn new(config: &VringConfig) -> Result<RxRing, RingError> {
        let mut ring = Vring::new(config)?;
        // The switch never waits for buffers: it drops a frame that has none.
        ring.queue.disable_notification(&ring.memory.guest)?;
        Ok(RxRing {
            ring,
            features: config.features,
            header_bytes: frame::header_bytes(config.features),
            buffers: [(0, 0); RX_BUFFERS_MAX],
            elements: [Element::default(); RX_ELEMENTS_MAX],
            avail_max: 0,
        })
    }

    /// May a flooded frame take a buffer? The last quarter of those that the driver makes available is for
    /// frames to its own address.
    ///
    /// # Errors
    /// If the ring is broken.
    pub(crate) fn has_room_for_flood(&mut self) -> Result<bool, RingError> {
        let avail = self.avail_len()?;
        self.avail_max = self.avail_max.max(avail);
        Ok(avail > self.avail_max / 4)
    }

    /// Reads the number of available buffers.
    #[inline]
    pub fn avail_len(&mut self) -> Result<u16, RingError> {
        self.ring.refresh_avail()
    }

    /// The available buffers as of the last read of the ring; there may be more.
    #[inline]
    pub(crate) fn avail_len_cached(&self) -> u16 {
        self.ring.avail_idx.wrapping_sub(self.ring.queue.next_avail())
    }

    /// Copies a frame from its sender's memory into buffers of this ring, with its header rewritten if
    /// `rewrite` is given. The driver sees it after [`RxRing::publish_and_signal`].
    ///
    /// # Errors
    /// Which of the two rings is broken.
    #[inline]
    pub fn deliver(
        &mut self,
        sender: &TxRing,
        chain: &Chain,
        rewrite: Option<&HeaderRewrite>,
    ) -> Result<Delivery, DeliverError> {
        let start = self.ring.queue.next_avail();
        let done = self.try_deliver(sender, chain, rewrite);
        if matches!(done, Ok(Delivery::NoBuffers) | Err(DeliverError::Sender(_))) {
            // The buffers that were popped for it stay available.
            self.ring.queue.set_next_avail(start);
        }
        let done = match done {
            Err(DeliverError::Receiver(_)) if self.has_faulted() => {
                Err(DeliverError::Receiver(RingError::MissingPages))
            }
            done => done,
        };
        // The ring restarts at its used index, so no buffer may be popped and not used.
        debug_assert!(
            self.ring.queue.next_avail() == self.ring.used_idx.0
                || matches!(done, Err(DeliverError::Receiver(_)))
        );
        done
    }

    /// As [`RxRing::deliver`], but a failure leaves buffers popped.
    #[inline(always)]
    fn try_deliver(
        &mut self,
        sender: &TxRing,
        chain: &Chain,
        rewrite: Option<&HeaderRewrite>,
    ) -> Result<Delivery, DeliverError> {
        let Some(header) = chain.frame_head.vnet_header_for(self.features) else {
            return Ok(Delivery::Offload);
        };
        let first = match self.ring.pop_single(true).map_err(DeliverError::Receiver)? {
            NextChain::Empty => return Ok(Delivery::NoBuffers),
            NextChain::Single { head, element } => {
                if rewrite.is_none()
                    && let Some(bytes) = self.copy_single(sender, chain, header, element)?
                {
                    self.ring.write_used_elem(0, head, bytes);
                    self.ring.used_idx += 1;
                    return Ok(Delivery::Delivered { buffers: 1 });
                }
                Some((head, element))
            }
            NextChain::Multi => None,
        };
        self.deliver_multi(sender, chain, rewrite, header, first)
    }

    /// Copies a frame with this virtio-net header into a buffer, if both are contiguous. Returns the bytes in
    /// the buffer.
    #[inline(always)]
    fn copy_single(
        &self,
        sender: &TxRing,
        chain: &Chain,
        header: (u64, u32),
        to: Element,
    ) -> Result<Option<u32>, DeliverError> {
        let is_virtio_1 = (sender.header_bytes, self.header_bytes) == (HEADER_BYTES, HEADER_BYTES);
        if !is_virtio_1 || chain.count != 1 || to.bytes < chain.bytes {
            return Ok(None);
        }
        let Some(bytes) = (chain.bytes as usize).checked_sub(HEADER_BYTES) else { return Ok(None) };
        let source = contiguous(&sender.ring.memory, chain.single, HEADER_BYTES, bytes)
            .map_err(DeliverError::Sender)?;
        let target =
            contiguous(&self.ring.memory, to, 0, HEADER_BYTES + bytes).map_err(DeliverError::Receiver)?;
        let (Some(source), Some(target)) = (source, target) else { return Ok(None) };
        let fits = |_| DeliverError::Receiver(RingError::OutOfBounds);
        target.get_ref(0).map_err(fits)?.store(header.0.to_le());
        target.get_ref(8).map_err(fits)?.store(header.1.to_le());
        let behind = target.offset(HEADER_BYTES).map_err(fits)?;
        source.copy_to_volatile_slice(behind);
        Ok(Some(chain.bytes))
    }

    /// As [`RxRing::try_deliver`], into any number of buffers. `first` is the first one, if it is popped
    /// already.
    #[cold]
    fn deliver_multi(
        &mut self,
        sender: &TxRing,
        chain: &Chain,
        rewrite: Option<&HeaderRewrite>,
        words: (u64, u32),
        first: Option<(u16, Element)>,
    ) -> Result<Delivery, DeliverError> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&words.0.to_le_bytes());
        header[8..].copy_from_slice(&words.1.to_le_bytes());
        let replaced = rewrite.map_or(0, |rewrite| rewrite.replaces);
        let skip = sender.header_bytes + replaced;
        // At most what was there at ingress: the header was read then.
        let frame_bytes = chain.bytes.saturating_sub(to_u32(skip));
        let mut front_bytes = &[][..];
        if let Some(rewrite) = rewrite {
            frame::shift_offsets(&mut header, rewrite.growth());
            front_bytes = rewrite.bytes();
        }
        let wanted = frame_bytes + to_u32(self.header_bytes + front_bytes.len());
        let Some((buffers, elements)) = self.pop_buffers(first, wanted).map_err(DeliverError::Receiver)?
        else {
            return Ok(Delivery::NoBuffers);
        };
        header[10..].copy_from_slice(&to_u16(buffers).to_le_bytes());
        let header = &header[..self.header_bytes];
        let from = Elements { memory: &sender.ring.memory, elements: chain.elements(), skip };
        let to = Elements { memory: &self.ring.memory, elements: &self.elements[..elements], skip: 0 };
        let mut to = Cursor::of(to).ok_or(DeliverError::Receiver(RingError::BadChain))?;
        write(&mut to, header).map_err(DeliverError::Receiver)?;
        write(&mut to, front_bytes).map_err(DeliverError::Receiver)?;
        copy(from, to, frame_bytes)?;
        self.push_used_buffers(buffers, wanted);
        Ok(Delivery::Delivered { buffers: to_u16(buffers) })
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

    /// Replaces the call event, and signals it once. Returns the former one.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) -> Option<Arc<OwnedFd>> {
        self.ring.set_call(call)
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

    /// Pops buffers for `wanted` bytes, of which the first may be popped already. Returns their number and
    /// that of their elements; `None` if there are not enough, or if the driver did not accept `MRG_RXBUF`
    /// and one is not enough. Buffers in tiny pieces are an error: a frame that they cannot take would cost
    /// the plane as much each time.
    fn pop_buffers(
        &mut self,
        mut first: Option<(u16, Element)>,
        wanted: u32,
    ) -> Result<Option<(usize, usize)>, RingError> {
        let most = if self.features & features::MRG_RXBUF == 0 { 1 } else { RX_BUFFERS_MAX };
        let (mut room, mut elements) = (0u32, 0);
        for (buffer, place) in self.buffers[..most].iter_mut().enumerate() {
            let free = &mut self.elements[elements..];
            let found = match first.take() {
                Some((head, element)) => ChainInfo::single(head, element, free),
                None => match self.ring.pop(true, free)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            let is_first = elements == 0;
            elements += found.count;
            room = room.saturating_add(found.bytes);
            // A chain with an empty element is cut, too, and leaves room behind the others.
            if found.is_cut && (is_first || elements < RX_ELEMENTS_MAX) || is_in_tiny_pieces(elements, room) {
                return Err(RingError::SmallBuffers);
            }
            if found.is_cut {
                return Ok(None);
            }
            if buffer == 0 && found.bytes < to_u32(HEADER_BYTES) {
                return Err(RingError::BadChain);
            }
            *place = (found.head, found.bytes);
            if room >= wanted {
                return Ok(Some((buffer + 1, elements)));
            }
        }
        Ok(None)
    }

    /// Returns the first `buffers` popped buffers to the driver, with `bytes` bytes in them.
    fn push_used_buffers(&mut self, buffers: usize, bytes: u32) {
        let mut left = bytes;
        for (ahead, &(head, room)) in self.buffers[..buffers].iter().enumerate() {
            let filled = room.min(left);
            left -= filled;
            self.ring.write_used_elem(to_u16(ahead), head, filled);
        }
        self.ring.used_idx += Wrapping(to_u16(buffers));
    }

    /// Where a ring that stops now continues.
    pub fn vring_base(&self) -> u16 {
        self.ring.queue.next_avail()
    }
}
