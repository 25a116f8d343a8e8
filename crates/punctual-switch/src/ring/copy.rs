//! Copies between memories.

use vm_memory::VolatileSlice;

use super::chain::Piece;
use crate::error::{Broken, Culprit};
use crate::memory::Memory;

/// Pieces of a memory, from some byte on.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) memory: &'a Memory,
    pub(super) pieces: &'a [Piece],
    pub(super) skip: usize,
}

/// The rest of a [`Place`].
pub(super) struct Rest<'a> {
    place: Place<'a>,
    /// Bytes of the first piece that are done.
    done: u32,
}

impl<'a> Rest<'a> {
    #[inline]
    pub(super) fn of(mut place: Place<'a>) -> Option<Self> {
        let mut skip = place.skip as u32;
        while let [first, rest @ ..] = place.pieces {
            if skip < first.bytes {
                return Some(Rest { place, done: skip });
            }
            skip -= first.bytes;
            place.pieces = rest;
        }
        None
    }

    /// The bytes in front, `most` at most.
    #[inline]
    fn front(&self, most: u32) -> Result<VolatileSlice<'a>, Broken> {
        let [first, ..] = self.place.pieces else { return Err(Broken::Chain) };
        let address = first.address.checked_add(self.done.into()).ok_or(Broken::Address)?;
        self.place.memory.slice(address, (first.bytes - self.done).min(most) as usize)
    }

    #[inline]
    fn advance(&mut self, bytes: u32) {
        self.done += bytes;
        if let [first, rest @ ..] = self.place.pieces
            && self.done >= first.bytes
        {
            self.place.pieces = rest;
            self.done = 0;
        }
    }
}

/// `bytes` bytes of a piece behind its first `skip` bytes, if it has them and they lie together in memory.
#[inline(always)]
pub(super) fn whole(
    memory: &Memory,
    piece: Piece,
    skip: usize,
    bytes: usize,
) -> Result<Option<VolatileSlice<'_>>, Broken> {
    if skip + bytes > piece.bytes as usize {
        return Ok(None);
    }
    let address = piece.address.checked_add(skip as u64).ok_or(Broken::Address)?;
    let all = memory.slice(address, bytes)?;
    // A piece may reach over the end of a region of memory.
    Ok((all.len() == bytes).then_some(all))
}

/// Fills `into` from the pieces, without their first `skip` bytes.
pub(super) fn read(
    memory: &Memory,
    pieces: &[Piece],
    skip: usize,
    mut into: &mut [u8],
) -> Result<(), Broken> {
    let mut from = Rest::of(Place { memory, pieces, skip }).ok_or(Broken::Chain)?;
    while !into.is_empty() {
        let copied = from.front(into.len() as u32)?.copy_to(into);
        from.advance(copied as u32);
        into = &mut into[copied..];
    }
    Ok(())
}

/// Writes to the beginning of the rest.
#[inline]
pub(super) fn write(to: &mut Rest<'_>, mut from: &[u8]) -> Result<(), Broken> {
    while !from.is_empty() {
        let target = to.front(from.len() as u32)?;
        let (now, later) = from.split_at(target.len());
        target.copy_from(now);
        to.advance(now.len() as u32);
        from = later;
    }
    Ok(())
}

/// Copies `bytes` bytes.
pub(super) fn copy(from: Place<'_>, mut to: Rest<'_>, bytes: u32) -> Result<(), Culprit> {
    let mut left = bytes;
    if left == 0 {
        // A frame that was all front.
        return Ok(());
    }
    let mut from = Rest::of(from).ok_or(Culprit::Sender(Broken::Chain))?;
    while left > 0 {
        let source = from.front(left).map_err(Culprit::Sender)?;
        let target = to.front(left).map_err(Culprit::Receiver)?;
        // Neither is empty, and both lie in mapped memory.
        let copied = source.len().min(target.len()) as u32;
        source.copy_to_volatile_slice(target);
        from.advance(copied);
        to.advance(copied);
        left -= copied;
    }
    Ok(())
}
