//! Memory of VMs, accessed by pointers whose bounds are checked once.
//!
//! `vm-memory` checks bounds and alignment at each access. The parts of a ring do not move, so theirs are
//! checked when the ring starts; afterwards each index is masked. A VM and its device processes write the
//! same memory, so its integers are accessed as atomics.

#![expect(unsafe_code, reason = "memory that a VM writes, too")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use vm_memory::{MmapRegion, VolatileSlice};

use crate::narrow::to_usize;

/// What guest memory may hold: atomic integers, for which every content is valid.
pub(crate) trait GuestCell: Sync {}

impl GuestCell for AtomicU16 {}
impl GuestCell for [AtomicU32; 2] {}
impl GuestCell for [AtomicU64; 2] {}

/// An array in a VM's memory.
#[derive(Debug)]
pub(crate) struct GuestArray<T> {
    first: NonNull<T>,
    /// The number of entries, a power of two, less one.
    mask: usize,
    /// The memory is mapped as long as this lives.
    _map: Arc<MmapRegion>,
}

impl<T: GuestCell> GuestArray<T> {
    /// `entries` entries, a power of two, from byte `at` of a mapping on; `None` if they are not within it,
    /// or not aligned.
    pub(crate) fn new(map: &Arc<MmapRegion>, at: usize, entries: usize) -> Option<GuestArray<T>> {
        let end = entries.checked_mul(size_of::<T>())?.checked_add(at)?;
        if !entries.is_power_of_two() || end > map.size() {
            return None;
        }
        let first = NonNull::new(map.as_ptr().wrapping_add(at).cast::<T>())?;
        first.is_aligned().then(|| GuestArray { first, mask: entries - 1, _map: Arc::clone(map) })
    }

    /// The entry of an index, modulo the number of entries.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &T {
        // SAFETY: `new` checked that all entries are aligned and within the mapping, which `_map` keeps.
        // Entries are atomics, so others may change them at any time.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }
}

// Not derived: the entries need not be `Clone`.
impl<T> Clone for GuestArray<T> {
    fn clone(&self) -> Self {
        GuestArray { first: self.first, mask: self.mask, _map: Arc::clone(&self._map) }
    }
}

// SAFETY: it is a shared reference to the entries, which are `Sync`, and an `Arc` of a mapping that any
// thread may unmap.
unsafe impl<T: GuestCell> Send for GuestArray<T> {}
// SAFETY: as above.
unsafe impl<T: GuestCell> Sync for GuestArray<T> {}

/// A region of a VM's memory.
#[derive(Debug)]
pub(crate) struct GuestRegion {
    /// The guest address.
    start: u64,
    bytes: u64,
    host: NonNull<u8>,
    pub(crate) map: Arc<MmapRegion>,
}

impl GuestRegion {
    /// A mapping, which begins at guest address `start`.
    pub(crate) fn new(start: u64, map: Arc<MmapRegion>) -> Option<GuestRegion> {
        Some(GuestRegion { start, bytes: map.size() as u64, host: NonNull::new(map.as_ptr())?, map })
    }

    /// The offset of a guest address; `None` if it is not in this region.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        (offset < self.bytes).then(|| to_usize(offset))
    }

    /// Up to `bytes` bytes from a guest address on, fewer if the region ends; `None` if the address is not in
    /// this region.
    #[inline(always)]
    pub(crate) fn slice(&self, address: u64, bytes: usize) -> Option<VolatileSlice<'_>> {
        let offset = self.offset(address)?;
        let bytes = bytes.min(to_usize(self.bytes) - offset);
        // SAFETY: the mapping has `self.bytes` bytes and lives as long as `self.map`, which the slice
        // borrows. The memory of VMs is accessed by volatile slices and atomics only.
        Some(unsafe { VolatileSlice::new(self.host.add(offset).as_ptr(), bytes) })
    }
}

// SAFETY: all accesses go through volatile slices, which any thread may use.
unsafe impl Send for GuestRegion {}
// SAFETY: as above.
unsafe impl Sync for GuestRegion {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const PAGE_BYTES: usize = 4096;

    fn map() -> Arc<MmapRegion> {
        Arc::new(MmapRegion::new(PAGE_BYTES).expect("mapped"))
    }

    #[test]
    fn an_array_is_aligned_within_its_mapping_and_as_long_as_a_power_of_two() {
        let map = map();
        for (at, entries, is_there) in [
            (0, 256, true),
            (PAGE_BYTES - 32, 2, true),
            (PAGE_BYTES - 16, 2, false),
            (PAGE_BYTES, 1, false),
            (8, 1, true),
            (4, 1, false),
            (0, 3, false),
            (0, 0, false),
            (usize::MAX - 7, 1, false),
            (0, 1 << 63, false),
        ] {
            let array = GuestArray::<[AtomicU64; 2]>::new(&map, at, entries);
            assert_eq!(array.is_some(), is_there, "{entries} at {at}");
        }
    }

    #[test]
    fn indices_wrap() {
        let map = map();
        let array = GuestArray::<AtomicU16>::new(&map, 2, 8).expect("within");
        for index in 0..24 {
            array.at(index).store(crate::narrow::to_u16(index), Ordering::Relaxed);
        }
        let all: Vec<u16> = (0..8).map(|index| array.at(index + 64).load(Ordering::Relaxed)).collect();
        assert_eq!(all, [16, 17, 18, 19, 20, 21, 22, 23]);
        drop(map);
        assert_eq!(array.at(usize::MAX).load(Ordering::Relaxed), 23, "the array keeps the mapping");
    }

    #[test]
    fn a_slice_ends_with_its_region() {
        let region = GuestRegion::new(0x1_0000, map()).expect("a region");
        let bytes = |address, bytes| region.slice(address, bytes).map(|slice| slice.len());
        assert_eq!(bytes(0x1_0000, 5), Some(5));
        assert_eq!(bytes(0x1_0ffe, 5), Some(2));
        assert_eq!(bytes(0x1_0000, usize::MAX), Some(PAGE_BYTES));
        assert_eq!(bytes(0x1_0ffe, 0), Some(0));
        for address in [0xffff, 0x1_1000, 0, u64::MAX] {
            assert_eq!(bytes(address, 1), None);
        }
    }
}
