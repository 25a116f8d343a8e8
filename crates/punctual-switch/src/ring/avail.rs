//! The avail ring, and the descriptor chains that it offers.

use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::Address as _;

use super::chain::Element;
use super::vring::Vring;
use crate::driver::{DESC_F_NEXT, DESC_F_WRITE};
use crate::error::RingError;

/// `VIRTQ_DESC_F_INDIRECT`.
const DESC_F_INDIRECT: u16 = 4;

/// A chain that was popped.
pub(super) struct ChainInfo {
    pub(super) head: u16,
    pub(super) bytes: u32,
    pub(super) count: usize,
    /// It has more elements than fit, or an empty one.
    pub(super) is_cut: bool,
}

impl ChainInfo {
    pub(super) fn single(head: u16, element: Element, elements: &mut [Element]) -> ChainInfo {
        let Some(first) = elements.first_mut() else {
            return ChainInfo { head, bytes: element.bytes, count: 0, is_cut: true };
        };
        *first = element;
        ChainInfo { head, bytes: element.bytes, count: 1, is_cut: false }
    }
}

/// The next chain of a ring.
pub(super) enum NextChain {
    Empty,
    /// One descriptor, which was popped.
    Single {
        head: u16,
        element: Element,
    },
    /// Several descriptors, or an indirect table: not popped yet.
    Multi,
}

impl Vring {
    /// Reads the avail index. Returns the number of available chains.
    #[inline]
    pub(super) fn refresh_avail(&mut self) -> Result<u16, RingError> {
        let index = u16::from_le(self.avail_index.at(0).load(Ordering::Acquire));
        let count = index.wrapping_sub(self.queue.next_avail());
        if count > self.queue.size() {
            return Err(RingError::AvailIndex);
        }
        self.avail_idx = index;
        Ok(count)
    }

    /// Pops the next chain if it is a single descriptor, as almost all are.
    #[inline(always)]
    pub(super) fn pop_single(&mut self, writable: bool) -> Result<NextChain, RingError> {
        let next = self.queue.next_avail();
        if next == self.avail_idx && self.refresh_avail()? == 0 {
            return Ok(NextChain::Empty);
        }
        let head = u16::from_le(self.avail_ring.at(next.into()).load(Ordering::Relaxed));
        if head >= self.queue.size() {
            return Err(RingError::BadChain);
        }
        let [address, rest] = self.desc_table.at(head.into());
        let address = u64::from_le(address.load(Ordering::Relaxed));
        let rest = u64::from_le(rest.load(Ordering::Relaxed));
        let (bytes, flags) = ((rest & 0xffff_ffff) as u32, (rest >> 32 & 0xffff) as u16);
        if flags & (DESC_F_NEXT | DESC_F_INDIRECT) != 0 || bytes == 0 {
            return Ok(NextChain::Multi);
        }
        if (flags & DESC_F_WRITE != 0) != writable {
            return Err(RingError::BadChain);
        }
        self.queue.set_next_avail(next.wrapping_add(1));
        Ok(NextChain::Single { head, element: Element { address, bytes } })
    }

    /// Pops the next chain, which is not a single descriptor, into `elements`.
    #[cold]
    pub(super) fn pop_multi(
        &mut self,
        writable: bool,
        elements: &mut [Element],
    ) -> Result<ChainInfo, RingError> {
        let mut available = self.queue.iter(&self.memory.guest)?;
        // The driver moved the avail index back.
        let descriptors = available.next().ok_or(RingError::AvailIndex)?;
        let head = descriptors.head_index();
        if head >= self.queue.size() {
            return Err(RingError::BadChain);
        }
        let (bytes, count, is_cut) = collect_elements(descriptors, writable, elements)?;
        Ok(ChainInfo { head, bytes, count, is_cut })
    }

    /// Pops the next chain into `elements`.
    pub(super) fn pop(
        &mut self,
        writable: bool,
        elements: &mut [Element],
    ) -> Result<Option<ChainInfo>, RingError> {
        match self.pop_single(writable)? {
            NextChain::Empty => Ok(None),
            NextChain::Multi => self.pop_multi(writable, elements).map(Some),
            NextChain::Single { head, element } => Ok(Some(ChainInfo::single(head, element, elements))),
        }
    }
}

/// Reads a chain into `elements`. Returns its bytes, its elements, and whether it is cut: it has more than
/// fit, or an empty descriptor, at which the reader stops. No driver needs one, and a chain may have 65,535.
#[inline]
fn collect_elements(
    mut descriptors: impl Iterator<Item = Descriptor>,
    writable: bool,
    elements: &mut [Element],
) -> Result<(u32, usize, bool), RingError> {
    let (mut bytes, mut count, mut goes_on) = (0u32, 0, true);
    // At most one descriptor more than fits.
    for _ in 0..=elements.len() {
        let Some(descriptor) = descriptors.next() else {
            // A chain ends with a descriptor without VIRTQ_DESC_F_NEXT.
            return if goes_on { Err(RingError::BadChain) } else { Ok((bytes, count, false)) };
        };
        if descriptor.is_write_only() != writable {
            return Err(RingError::BadChain);
        }
        goes_on = descriptor.has_next();
        if descriptor.len() == 0 {
            return Ok((bytes, count, true));
        }
        bytes = bytes.saturating_add(descriptor.len());
        let Some(element) = elements.get_mut(count) else {
            return Ok((bytes, count, true));
        };
        *element = Element { address: descriptor.addr().raw_value(), bytes: descriptor.len() };
        count += 1;
    }
    Ok((bytes, count, goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors of these lengths, in one chain. Counts in `read` how many were taken.
    fn chain<'a>(
        lengths: impl Iterator<Item = u32> + 'a,
        read: &'a mut usize,
    ) -> impl Iterator<Item = Descriptor> + 'a {
        lengths.map(move |length| {
            *read += 1;
            Descriptor::new(0x1000, length, DESC_F_NEXT, 0)
        })
    }

    #[test]
    fn a_reader_stops_at_the_first_empty_descriptor_and_behind_the_last_element() {
        for (lengths, most, wanted) in
            [(vec![0; 65_535], 1, 0), (vec![1, 1, 0, 1], 3, 2), (vec![1; 99], 25, 24)]
        {
            let (mut read, mut elements) = (0, [Element::default(); 24]);
            let chain = chain(lengths.into_iter(), &mut read);
            let (_, count, is_cut) = collect_elements(chain, false, &mut elements).expect("no loop");
            assert_eq!((count, is_cut, read), (wanted, true, most));
        }
    }
}
