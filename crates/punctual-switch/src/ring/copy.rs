//! Copies between the elements of two memories.

use vm_memory::VolatileSlice;

use super::chain::Element;
use crate::error::{DeliverError, RingError};
use crate::memory::Memory;
use crate::narrow::to_u32;

/// Elements of a memory without their first `skip` bytes.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub(super) memory: &'a Memory,
    pub(super) elements: &'a [Element],
    pub(super) skip: usize,
}

/// A position in [`Elements`].
pub(super) struct Cursor<'a> {
    rest: Elements<'a>,
    /// Bytes of the first element behind which the position is.
    done: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn of(mut at: Elements<'a>) -> Option<Self> {
        let mut skip = to_u32(at.skip);
        while let [first, rest @ ..] = at.elements {
            if skip < first.bytes {
                return Some(Cursor { rest: at, done: skip });
            }
            skip -= first.bytes;
            at.elements = rest;
        }
        None
    }

    /// The contiguous bytes at the position, `most` at most.
    #[inline]
    fn front(&self, most: u32) -> Result<VolatileSlice<'a>, RingError> {
        let [first, ..] = self.rest.elements else { return Err(RingError::BadChain) };
        let address = first.address.checked_add(self.done.into()).ok_or(RingError::OutOfBounds)?;
        self.rest.memory.slice(address, (first.bytes - self.done).min(most) as usize)
    }

    #[inline]
    fn advance(&mut self, bytes: u32) {
        self.done += bytes;
        if let [first, rest @ ..] = self.rest.elements
            && self.done >= first.bytes
        {
            self.rest.elements = rest;
            self.done = 0;
        }
    }
}

/// `bytes` bytes of an element behind its first `skip` bytes; `None` if it has fewer, or if they are not
/// contiguous in our mapping.
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
    // An element may cross the end of a memory region.
    Ok((all.len() == bytes).then_some(all))
}

/// Fills `into` from the elements behind their first `skip` bytes.
pub(super) fn read(
    memory: &Memory,
    elements: &[Element],
    skip: usize,
    mut into: &mut [u8],
) -> Result<(), RingError> {
    let mut from = Cursor::of(Elements { memory, elements, skip }).ok_or(RingError::BadChain)?;
    while !into.is_empty() {
        let copied = from.front(to_u32(into.len()))?.copy_to(into);
        from.advance(to_u32(copied));
        into = &mut into[copied..];
    }
    Ok(())
}

/// Writes at a position and advances it.
#[inline]
pub(super) fn write(to: &mut Cursor<'_>, mut from: &[u8]) -> Result<(), RingError> {
    while !from.is_empty() {
        let target = to.front(to_u32(from.len()))?;
        let (now, later) = from.split_at(target.len());
        target.copy_from(now);
        to.advance(to_u32(now.len()));
        from = later;
    }
    Ok(())
}

/// Copies between two memories.
pub(super) fn copy(from: Elements<'_>, mut to: Cursor<'_>, bytes: u32) -> Result<(), DeliverError> {
    let mut left = bytes;
    if left == 0 {
        // The rewritten header was the whole frame.
        return Ok(());
    }
    let mut from = Cursor::of(from).ok_or(DeliverError::Sender(RingError::BadChain))?;
    while left > 0 {
        let source = from.front(left).map_err(DeliverError::Sender)?;
        let target = to.front(left).map_err(DeliverError::Receiver)?;
        // Neither is empty: `Memory::slice` returns at least one byte.
        let copied = to_u32(source.len().min(target.len()));
        source.copy_to_volatile_slice(target);
        from.advance(copied);
        to.advance(copied);
        left -= copied;
    }
    Ok(())
}
