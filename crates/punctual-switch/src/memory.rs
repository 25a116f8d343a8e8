//! A VM's memory, mapped from the files that its monitor shares.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use rustix::fs::SealFlags;
use vm_memory::volatile_memory::{VolatileMemory, VolatileSlice};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::error::RingError;
use crate::protocol::Region;

/// Why memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is shorter than the region.
    #[error("a memory region of {expected} bytes in a file of {bytes} bytes")]
    Short {
        /// Where the region ends in the file.
        expected: u64,
        /// The file's length.
        bytes: u64,
    },
    /// Addresses beyond 64 bits, or regions that overlap.
    #[error("memory regions that overlap or exceed the address space")]
    Layout,
    /// The file's length cannot be read.
    #[error("cannot read the length of a memory file")]
    Length(#[source] std::io::Error),
    /// It cannot be mapped.
    #[error("cannot map the VM's memory")]
    Map(#[source] std::io::Error),
}

/// A VM's memory.
#[derive(Debug)]
pub struct Memory {
    pub(crate) guest: GuestMemoryMmap,
    maps: Vec<Mapped>,
    /// For each region: the monitor's address, bytes, the guest's address.
    user_regions: Vec<(u64, u64, u64)>,
}

/// A region that is mapped.
#[derive(Debug)]
struct Mapped {
    /// The guest's address.
    start: u64,
    bytes: u64,
    map: Arc<MmapRegion>,
}

impl Memory {
    /// Maps the regions.
    ///
    /// # Errors
    /// When a file is too short, the regions overlap, or the kernel refuses.
    pub fn map(regions: Vec<Region<OwnedFd>>) -> Result<Memory, Error> {
        let mut user_regions = Vec::new();
        let mut mapped = Vec::new();
        for region in regions {
            let file = File::from(region.file);
            let length = file.metadata().map_err(Error::Length)?.len();
            let end = region.offset.checked_add(region.bytes).ok_or(Error::Layout)?;
            if end > length || region.bytes == 0 {
                return Err(Error::Short { expected: end, bytes: length });
            }
            // A file that shrinks would end this process by SIGBUS. QEMU seals its files; others may refuse.
            let _ = rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK);
            region.user_address.checked_add(region.bytes).ok_or(Error::Layout)?;
            user_regions.push((region.user_address, region.bytes, region.guest_address));
            let bytes = usize::try_from(region.bytes).map_err(|_| Error::Layout)?;
            let map = MmapRegion::from_file(FileOffset::new(file, region.offset), bytes)
                .map_err(|error| Error::Map(std::io::Error::other(error.to_string())))?;
            let map = GuestRegionMmap::new(map, GuestAddress(region.guest_address));
            mapped.push(map.ok_or(Error::Layout)?);
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        let map = |region: &GuestRegionMmap| {
            let map = GuestRegionMmap::get_mmap(region);
            let start = vm_memory::GuestMemoryRegion::start_addr(region).0;
            Mapped { start, bytes: map.size() as u64, map }
        };
        let maps = mapped.iter().map(map).collect();
        let guest = GuestMemoryMmap::from_regions(mapped).map_err(|_| Error::Layout)?;
        Ok(Memory { guest, maps, user_regions })
    }

    /// The mapping with the guest's `address`, and where in it that is.
    #[inline(always)]
    fn find(&self, address: u64) -> Result<(&Arc<MmapRegion>, usize), RingError> {
        // A VM has two or three regions.
        let first = self.maps.first().ok_or(RingError::OutOfBounds)?;
        let in_first = address.wrapping_sub(first.start);
        if in_first < first.bytes {
            return Ok((&first.map, in_first as usize));
        }
        self.find_in_others(address)
    }

    /// The same, where it is not in the first region.
    #[inline(never)]
    fn find_in_others(&self, address: u64) -> Result<(&Arc<MmapRegion>, usize), RingError> {
        let holds = |region: &&Mapped| address.wrapping_sub(region.start) < region.bytes;
        let region = self.maps.iter().find(holds).ok_or(RingError::OutOfBounds)?;
        Ok((&region.map, address.wrapping_sub(region.start) as usize))
    }

    /// As much of `bytes` bytes from the guest's `address` on as one region holds, which is not nothing
    /// unless `bytes` is 0.
    ///
    /// # Errors
    /// When no region has the address.
    #[inline(always)]
    pub(crate) fn slice(&self, address: u64, bytes: usize) -> Result<VolatileSlice<'_>, RingError> {
        let (map, at) = self.find(address)?;
        map.get_slice(at, bytes.min(map.size() - at)).map_err(|_| RingError::OutOfBounds)
    }

    /// `bytes` bytes from the guest's `address` on, resolved once.
    ///
    /// # Errors
    /// When no region has all of them.
    pub(crate) fn map_range(&self, address: u64, bytes: usize) -> Result<MappedRange, RingError> {
        let (map, at) = self.find(address)?;
        if bytes > map.size() - at {
            return Err(RingError::BadLayout);
        }
        Ok(MappedRange { map: Arc::clone(map), at })
    }

    /// The guest's address of what the monitor sees at `user`.
    pub fn guest_address(&self, user: u64) -> Option<u64> {
        self.user_regions.iter().find_map(|&(start, bytes, guest)| {
            let offset = user.checked_sub(start)?;
            (offset < bytes).then(|| guest + offset)
        })
    }
}

/// A part of a VM's memory whose place is known, as a ring is.
#[derive(Clone, Debug)]
pub(crate) struct MappedRange {
    map: Arc<MmapRegion>,
    at: usize,
}

impl MappedRange {
    /// The number at `offset`, which both sides read and write.
    ///
    /// # Errors
    /// When it is not in memory, or not aligned there.
    #[inline]
    pub(crate) fn atomic_u16(&self, offset: usize) -> Result<&AtomicU16, RingError> {
        self.map.get_atomic_ref(self.at + offset).map_err(|_| RingError::OutOfBounds)
    }

    /// Reads 16 bytes at `offset`.
    ///
    /// # Errors
    /// When they are not in memory.
    #[inline]
    pub(crate) fn read_desc(&self, offset: usize) -> Result<(u64, u64), RingError> {
        let words = self.map.get_ref::<u128>(self.at + offset).map_err(|_| RingError::OutOfBounds)?;
        let words = u128::from_le(words.load());
        Ok((words as u64, (words >> 64) as u64))
    }

    /// Writes 8 bytes at `offset`.
    ///
    /// # Errors
    /// When they are not in memory.
    #[inline]
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result<(), RingError> {
        let word = self.map.get_ref::<u64>(self.at + offset).map_err(|_| RingError::OutOfBounds)?;
        word.store(value.to_le());
        Ok(())
    }
}
