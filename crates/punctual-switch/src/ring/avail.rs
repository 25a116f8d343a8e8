//! The avail ring.

use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::Address as _;

use super::chain::Piece;
use super::vring::Ring;
use crate::driver::{NEXT, WRITE};
use crate::error::Broken;

/// The descriptor is a table of others (`VIRTQ_DESC_F_INDIRECT`).
const INDIRECT: u16 = 4;

/// A chain that was taken: its head, bytes and pieces, and whether there are more pieces than fit.
pub(super) struct Found {
    pub(super) head: u16,
    pub(super) bytes: u32,
    pub(super) count: usize,
    pub(super) more: bool,
}

impl Found {
    /// A single piece, put into `pieces`.
    pub(super) fn one(head: u16, piece: Piece, pieces: &mut [Piece]) -> Found {
        let Some(first) = pieces.first_mut() else {
            return Found { head, bytes: piece.bytes, count: 0, more: true };
        };
        *first = piece;
        Found { head, bytes: piece.bytes, count: 1, more: false }
    }
}

/// What comes next in a ring.
pub(super) enum Next {
    /// Nothing is available.
    Nothing,
    /// A chain of one piece, which was taken.
    One { head: u16, piece: Piece },
    /// Another chain, which was not.
    Long,
}

impl Ring {
    /// Reads the index of the available ring: how many chains are there?
    #[inline]
    pub(super) fn look(&mut self) -> Result<u16, Broken> {
        let index = u16::from_le(self.available.index(2)?.load(Ordering::Acquire));
        let count = index.wrapping_sub(self.queue.next_avail());
        if count > self.queue.size() {
            return Err(Broken::Index);
        }
        self.seen = index;
        Ok(count)
    }

    /// Is there a chain beyond those that were taken, or something wrong?
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        let next = self.queue.next_avail();
        next != self.seen
            || self.available.index(2).is_ok_and(|index| u16::from_le(index.load(Ordering::Acquire)) != next)
    }

    /// Takes the next chain if it is a single descriptor, as almost all are.
    #[inline(always)]
    pub(super) fn take_one(&mut self, writable: bool) -> Result<Next, Broken> {
        let next = self.queue.next_avail();
        if next == self.seen && self.look()? == 0 {
            return Ok(Next::Nothing);
        }
        let head = u16::from_le(self.available.index(4 + 2 * self.at(next))?.load(Ordering::Relaxed));
        if head >= self.queue.size() {
            return Err(Broken::Chain);
        }
        let (address, rest) = self.descriptors.words(usize::from(head) * 16)?;
        let (bytes, flags) = (rest as u32, (rest >> 32) as u16);
        if flags & (NEXT | INDIRECT) != 0 || bytes == 0 {
            return Ok(Next::Long);
        }
        if (flags & WRITE != 0) != writable {
            return Err(Broken::Chain);
        }
        self.queue.set_next_avail(next.wrapping_add(1));
        Ok(Next::One { head, piece: Piece { address, bytes } })
    }

    /// Takes the next chain, which is not a single descriptor, and puts its pieces into `pieces`.
    #[cold]
    pub(super) fn take_long(&mut self, writable: bool, pieces: &mut [Piece]) -> Result<Found, Broken> {
        let mut available = self.queue.iter(&self.memory.guest)?;
        // The index went back.
        let descriptors = available.next().ok_or(Broken::Index)?;
        let head = descriptors.head_index();
        if head >= self.queue.size() {
            return Err(Broken::Chain);
        }
        let (bytes, count, more) = read_chain(descriptors, writable, pieces)?;
        Ok(Found { head, bytes, count, more })
    }

    /// Takes the next chain, and puts its pieces into `pieces`.
    pub(super) fn take(&mut self, writable: bool, pieces: &mut [Piece]) -> Result<Option<Found>, Broken> {
        match self.take_one(writable)? {
            Next::Nothing => Ok(None),
            Next::Long => self.take_long(writable, pieces).map(Some),
            Next::One { head, piece } => Ok(Some(Found::one(head, piece, pieces))),
        }
    }
}

/// Puts the chain's pieces into `pieces`. Returns bytes and count, and whether there are more than fit.
#[inline]
fn read_chain(
    mut descriptors: impl Iterator<Item = Descriptor>,
    writable: bool,
    pieces: &mut [Piece],
) -> Result<(u32, usize, bool), Broken> {
    let (mut bytes, mut count, mut goes_on) = (0u32, 0, true);
    // One descriptor beyond what fits is looked at, no more: a table may have 65,535.
    for _ in 0..=pieces.len() {
        let Some(descriptor) = descriptors.next() else {
            // A chain ends with a descriptor that says so.
            return if goes_on { Err(Broken::Chain) } else { Ok((bytes, count, false)) };
        };
        if descriptor.is_write_only() != writable {
            return Err(Broken::Chain);
        }
        goes_on = descriptor.has_next();
        if descriptor.len() == 0 {
            continue;
        }
        bytes = bytes.saturating_add(descriptor.len());
        let Some(piece) = pieces.get_mut(count) else {
            return Ok((bytes, count, true));
        };
        *piece = Piece { address: descriptor.addr().raw_value(), bytes: descriptor.len() };
        count += 1;
    }
    Ok((bytes, count, goes_on))
}
