//! The ring of buffers with which a driver receives.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use virtio_queue::QueueT;
use vm_memory::VolatileMemory as _;

use super::avail::{Found, Next};
use super::chain::{Chain, Piece};
use super::copy::{Place, Rest, copy, whole, write};
use super::tx::SendRing;
use super::vring::{Ring, Setup};
use crate::error::{Broken, Culprit};
use crate::features;
use crate::frame::{self, HEADER_BYTES};
use crate::vlan::Front;

/// Buffers that a frame fills at most: 64 KiB in buffers of 1,536 bytes, and some.
const BUFFERS_MAX: usize = 64;

/// Descriptors of these buffers at most.
const BUFFER_PIECES_MAX: usize = 128;

/// What became of a frame for a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is in the driver's buffers, so many of them.
    Done {
        /// Buffers.
        buffers: u16,
    },
    /// There are not enough buffers.
    NoRoom,
    /// The driver did not agree to such a frame.
    Offload,
}

/// The ring of buffers with which a driver receives.
#[derive(Debug)]
pub struct ReceiveRing {
    ring: Ring,
    features: u64,
    header_bytes: usize,
    buffers: [(u16, u32); BUFFERS_MAX],
    pieces: [Piece; BUFFER_PIECES_MAX],
}

impl ReceiveRing {
    /// A ring at its place.
    ///
    /// # Errors
    /// When the place is impossible.
    pub fn new(setup: &Setup) -> Result<ReceiveRing, Broken> {
        let mut ring = Ring::new(setup)?;
        // Nobody waits for buffers: a frame without one is dropped.
        ring.queue.disable_notification(&ring.memory.guest)?;
        Ok(ReceiveRing {
            ring,
            features: setup.features,
            header_bytes: frame::header_bytes(setup.features),
            buffers: [(0, 0); BUFFERS_MAX],
            pieces: [Piece::default(); BUFFER_PIECES_MAX],
        })
    }

    /// Buffers that wait for frames, as the ring says now.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn free(&mut self) -> Result<u16, Broken> {
        self.ring.look()
    }

    /// Buffers that wait for frames, and maybe more: the ring is not read for it.
    #[inline]
    pub fn free_at_least(&self) -> u16 {
        self.ring.seen.wrapping_sub(self.ring.queue.next_avail())
    }

    /// Copies a frame from its sender's memory into buffers of this ring, with another front if one is given.
    /// The driver sees it after [`ReceiveRing::tell`].
    ///
    /// # Errors
    /// Whose ring is broken.
    #[inline]
    pub fn deliver(
        &mut self,
        sender: &SendRing,
        chain: &Chain,
        front: Option<&Front>,
    ) -> Result<Delivery, Culprit> {
        let start = self.ring.queue.next_avail();
        let done = self.put(sender, chain, front);
        if matches!(done, Ok(Delivery::NoRoom) | Err(Culprit::Sender(_))) {
            // The buffers that were taken for it are still free.
            self.ring.queue.set_next_avail(start);
        }
        // A ring goes on at its used index, so no buffer is taken and not used.
        debug_assert!(
            self.ring.queue.next_avail() == self.ring.used.0 || matches!(done, Err(Culprit::Receiver(_)))
        );
        done
    }

    /// As [`ReceiveRing::deliver`], but the buffers that are taken stay so if that fails.
    #[inline(always)]
    fn put(&mut self, sender: &SendRing, chain: &Chain, front: Option<&Front>) -> Result<Delivery, Culprit> {
        let Some(header) = chain.first.header_for(self.features) else {
            return Ok(Delivery::Offload);
        };
        let first = match self.ring.take_one(true).map_err(Culprit::Receiver)? {
            Next::Nothing => return Ok(Delivery::NoRoom),
            Next::One { head, piece } => {
                if front.is_none()
                    && let Some(bytes) = self.copy_whole(sender, chain, header, piece)?
                {
                    self.ring.write_used(0, head, bytes).map_err(Culprit::Receiver)?;
                    self.ring.used += 1;
                    return Ok(Delivery::Done { buffers: 1 });
                }
                Some((head, piece))
            }
            Next::Long => None,
        };
        self.put_long(sender, chain, front, header, first)
    }

    /// Copies a frame with this header into a buffer, if it lies together there and in its sender's memory.
    /// Returns the bytes that it has in the buffer.
    #[inline(always)]
    fn copy_whole(
        &self,
        sender: &SendRing,
        chain: &Chain,
        header: (u64, u32),
        to: Piece,
    ) -> Result<Option<u32>, Culprit> {
        let is_new = (sender.header_bytes, self.header_bytes) == (HEADER_BYTES, HEADER_BYTES);
        if !is_new || chain.count != 1 || to.bytes < chain.bytes {
            return Ok(None);
        }
        let Some(bytes) = (chain.bytes as usize).checked_sub(HEADER_BYTES) else { return Ok(None) };
        let source = whole(&sender.ring.memory, chain.one, HEADER_BYTES, bytes).map_err(Culprit::Sender)?;
        let target = whole(&self.ring.memory, to, 0, HEADER_BYTES + bytes).map_err(Culprit::Receiver)?;
        let (Some(source), Some(target)) = (source, target) else { return Ok(None) };
        let fits = |_| Culprit::Receiver(Broken::Address);
        target.get_ref(0).map_err(fits)?.store(header.0.to_le());
        target.get_ref(8).map_err(fits)?.store(header.1.to_le());
        let behind = target.offset(HEADER_BYTES).map_err(fits)?;
        source.copy_to_volatile_slice(behind);
        Ok(Some(chain.bytes))
    }

    /// As [`ReceiveRing::put`], into any number of buffers; the first one may be taken already.
    #[cold]
    fn put_long(
        &mut self,
        sender: &SendRing,
        chain: &Chain,
        front: Option<&Front>,
        words: (u64, u32),
        first: Option<(u16, Piece)>,
    ) -> Result<Delivery, Culprit> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&words.0.to_le_bytes());
        header[8..].copy_from_slice(&words.1.to_le_bytes());
        let replaced = front.map_or(0, |front| front.replaces);
        let skip = sender.header_bytes + replaced;
        // A front replaces bytes that were read when the frame was taken in.
        let frame_bytes = chain.bytes.saturating_sub(skip as u32);
        let mut front_bytes = &[][..];
        if let Some(front) = front {
            frame::move_places(&mut header, front.growth());
            front_bytes = front.bytes();
        }
        let wanted = frame_bytes + (self.header_bytes + front_bytes.len()) as u32;
        let Some((buffers, pieces)) = self.take_buffers(first, wanted).map_err(Culprit::Receiver)? else {
            return Ok(Delivery::NoRoom);
        };
        header[10..].copy_from_slice(&(buffers as u16).to_le_bytes());
        let header = &header[..self.header_bytes];
        let from = Place { memory: &sender.ring.memory, pieces: chain.pieces(), skip };
        let to = Place { memory: &self.ring.memory, pieces: &self.pieces[..pieces], skip: 0 };
        let mut to = Rest::of(to).ok_or(Culprit::Receiver(Broken::Chain))?;
        write(&mut to, header).map_err(Culprit::Receiver)?;
        write(&mut to, front_bytes).map_err(Culprit::Receiver)?;
        copy(from, to, frame_bytes)?;
        self.use_buffers(buffers, wanted).map_err(Culprit::Receiver)?;
        Ok(Delivery::Done { buffers: buffers as u16 })
    }

    /// Shows the driver what it received.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn show(&mut self) -> Result<(), Broken> {
        self.ring.show_used()
    }

    /// The driver hears at another place from now on, and is told there once.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.ring.set_call(call);
    }

    /// Tells the driver of what it was shown if it wants to hear. [`visible`] stands between.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn call(&mut self) -> Result<(), Broken> {
        self.ring.call()
    }

    /// Shows the driver what it received, and tells it if it wants to hear.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn tell(&mut self) -> Result<(), Broken> {
        self.ring.tell()
    }

    /// Takes buffers for so many bytes, of which the first may be taken already: their number and that of
    /// their pieces; `None` when there are not enough, or when a single one must do and does not.
    fn take_buffers(
        &mut self,
        mut first: Option<(u16, Piece)>,
        wanted: u32,
    ) -> Result<Option<(usize, usize)>, Broken> {
        let most = if self.features & features::MRG_RXBUF == 0 { 1 } else { BUFFERS_MAX };
        let (mut room, mut pieces) = (0u32, 0);
        for (buffer, place) in self.buffers[..most].iter_mut().enumerate() {
            let free = &mut self.pieces[pieces..];
            let found = match first.take() {
                Some((head, piece)) => Found::one(head, piece, free),
                None => match self.ring.take(true, free)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            if found.more {
                return Ok(None);
            }
            if buffer == 0 && found.bytes < HEADER_BYTES as u32 {
                return Err(Broken::Chain);
            }
            *place = (found.head, found.bytes);
            pieces += found.count;
            room = room.saturating_add(found.bytes);
            if room >= wanted {
                return Ok(Some((buffer + 1, pieces)));
            }
        }
        Ok(None)
    }

    /// Uses the first `buffers` of those taken, with so many bytes in them.
    fn use_buffers(&mut self, buffers: usize, bytes: u32) -> Result<(), Broken> {
        let mut left = bytes;
        for (after, &(head, room)) in self.buffers[..buffers].iter().enumerate() {
            let filled = room.min(left);
            left -= filled;
            self.ring.write_used(after as u16, head, filled)?;
        }
        self.ring.used += Wrapping(buffers as u16);
        Ok(())
    }

    /// Where the ring goes on when it is stopped now.
    pub fn base(&self) -> u16 {
        self.ring.queue.next_avail()
    }
}
