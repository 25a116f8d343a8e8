//! Copies between memories.

use vm_memory::VolatileSlice;

use super::chain::Element;
use crate::error::{DeliverError, RingError};
use crate::memory::Memory;

/// Pieces of a memory, from some byte on.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub(super) memory: &'a Memory,
    pub(super) elements: &'a [Element],
    pub(super) skip: usize,
}

/// The rest of a [`Elements`].
pub(super) struct Cursor<'a> {
    place: Elements<'a>,
    /// Bytes of the first element that are done.
    done: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn of(mut place: Elements<'a>) -> Option<Self> {
        let mut skip = place.skip as u32;
        while let [first, rest @ ..] = place.elements {
            if skip < first.bytes {
                return Some(Cursor { place, done: skip });
            }
            skip -= first.bytes;
            place.elements = rest;
        }
        None
    }

    /// The bytes in front, `most` at most.
    #[inline]
    fn front(&self, most: u32) -> Result<VolatileSlice<'a>, RingError> {
        let [first, ..] = self.place.elements else { return Err(RingError::BadChain) };
        let address = first.address.checked_add(self.done.into()).ok_or(RingError::OutOfBounds)?;
        self.place.memory.slice(address, (first.bytes - self.done).min(most) as usize)
    }

    #[inline]
    fn advance(&mut self, bytes: u32) {
        self.done += bytes;
        if let [first, rest @ ..] = self.place.elements
            && self.done >= first.bytes
        {
            self.place.elements = rest;
            self.done = 0;
        }
    }
}

/// `bytes` bytes of a element behind its first `skip` bytes, if it has them and they lie together in memory.
#[inline(always)]
pub(super) fn contiguous(
    memory: &Memory,
    element: Element,
    skip: usize,
    bytes: usize,
) -> Result<Option<VolatileSlice<'_>>, RingError> {
    if skip + bytes > element.bytes as usize {
        return Ok(None);
    }
    let address = element.address.checked_add(skip as u64).ok_or(RingError::OutOfBounds)?;
    let all = memory.slice(address, bytes)?;
    // A element may reach over the end of a region of memory.
    Ok((all.len() == bytes).then_some(all))
}

/// Fills `into` from the elements, without their first `skip` bytes.
pub(super) fn read(
    memory: &Memory,
    elements: &[Element],
    skip: usize,
    mut into: &mut [u8],
) -> Result<(), RingError> {
    let mut from = Cursor::of(Elements { memory, elements, skip }).ok_or(RingError::BadChain)?;
    while !into.is_empty() {
        let copied = from.front(into.len() as u32)?.copy_to(into);
        from.advance(copied as u32);
        into = &mut into[copied..];
    }
    Ok(())
}

/// Writes to the beginning of the rest.
#[inline]
pub(super) fn write(to: &mut Cursor<'_>, mut from: &[u8]) -> Result<(), RingError> {
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
pub(super) fn copy(from: Elements<'_>, mut to: Cursor<'_>, bytes: u32) -> Result<(), DeliverError> {
    let mut left = bytes;
    if left == 0 {
        // A frame that was all front.
        return Ok(());
    }
    let mut from = Cursor::of(from).ok_or(DeliverError::Sender(RingError::BadChain))?;
    while left > 0 {
        let source = from.front(left).map_err(DeliverError::Sender)?;
        let target = to.front(left).map_err(DeliverError::Receiver)?;
        // Neither is empty, and both lie in mapped memory.
        let copied = source.len().min(target.len()) as u32;
        source.copy_to_volatile_slice(target);
        from.advance(copied);
        to.advance(copied);
        left -= copied;
    }
    Ok(())
}
