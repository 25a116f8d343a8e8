//! A VM's memory, mapped from the files of `SET_MEM_TABLE`.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::SealFlags;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion, VolatileSlice};

use crate::error::RingError;
use crate::narrow::to_usize;
use crate::protocol::Region;
use crate::sys::{GuestArray, GuestCell, GuestRegion, Watched};

/// Why memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a memory region ends at byte {expected} of a file of {bytes} bytes")]
    Short { expected: u64, bytes: u64 },
    #[error("memory regions overlap or exceed the address space")]
    Layout,
    #[error("cannot read the length of a memory file")]
    Length(#[source] std::io::Error),
    #[error(
        "the VM's memory is in a file system that can keep its readers waiting (type {0:#x}): use a memfd \
         (QEMU: memory-backend-memfd with share=on; libvirt: <source type='memfd'/>), /dev/shm or hugetlbfs"
    )]
    FileSystem(u64),
    #[error("cannot map the VM's memory")]
    Map(#[source] std::io::Error),
}

/// The magic numbers of file systems in memory (Linux, include/uapi/linux/magic.h): tmpfs, hugetlbfs, ramfs.
const MEMORY_FILE_SYSTEMS: [u64; 3] = [0x0102_1994, 0x9584_58f6, 0x8584_58f6];

/// A page of any other file comes from a disk, a network or a program (FUSE), and a plane that touches it
/// would wait for them. A memfd is on tmpfs or hugetlbfs. Returns the bytes of its pages.
fn check_file_system(file: &File) -> Result<usize, Error> {
    let system = rustix::fs::fstatfs(file).map_err(|error| Error::Length(error.into()))?;
    // The types of these fields depend on the machine.
    let kind = system.f_type as u64 & 0xffff_ffff;
    let page_bytes = to_usize(system.f_bsize as u64);
    let is_known = MEMORY_FILE_SYSTEMS.contains(&kind) && page_bytes.is_power_of_two();
    if is_known { Ok(page_bytes) } else { Err(Error::FileSystem(kind)) }
}

#[derive(Debug)]
pub struct Memory {
    /// Dropped before the mappings.
    watched: Vec<Watched>,
    pub(crate) guest: GuestMemoryMmap,
    first: GuestRegion,
    others: Vec<GuestRegion>,
    /// For each region: the front-end's address, the bytes, the guest address.
    user_regions: Vec<(u64, u64, u64)>,
}

impl Memory {
    pub fn map(regions: Vec<Region<OwnedFd>>) -> Result<Memory, Error> {
        let mut user_regions = Vec::new();
        let (mut mapped, mut watched) = (Vec::new(), Vec::new());
        for region in regions {
            let file = File::from(region.file);
            let page_bytes = check_file_system(&file)?;
            // Before the length is read: the file may shrink until then. Not every file can be sealed.
            let _ = rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK);
            let length = file.metadata().map_err(Error::Length)?.len();
            let end = region.offset.checked_add(region.bytes).ok_or(Error::Layout)?;
            if end > length || region.bytes == 0 {
                return Err(Error::Short { expected: end, bytes: length });
            }
            region.user_address.checked_add(region.bytes).ok_or(Error::Layout)?;
            user_regions.push((region.user_address, region.bytes, region.guest_address));
            let bytes = usize::try_from(region.bytes).map_err(|_| Error::Layout)?;
            let map = MmapRegion::from_file(FileOffset::new(file, region.offset), bytes)
                .map_err(|error| Error::Map(std::io::Error::other(error.to_string())))?;
            watched.push(Watched::new(map.as_ptr().addr(), bytes, page_bytes).map_err(Error::Map)?);
            let map = GuestRegionMmap::new(map, GuestAddress(region.guest_address));
            mapped.push(map.ok_or(Error::Layout)?);
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        let region = |region: &GuestRegionMmap| {
            let start = vm_memory::GuestMemoryRegion::start_addr(region).0;
            GuestRegion::new(start, GuestRegionMmap::get_mmap(region)).ok_or(Error::Layout)
        };
        let mut regions = mapped.iter().map(region);
        let first = regions.next().ok_or(Error::Layout)??;
        let others = regions.collect::<Result<_, _>>()?;
        let guest = GuestMemoryMmap::from_regions(mapped).map_err(|_| Error::Layout)?;
        Ok(Memory { watched, guest, first, others, user_regions })
    }

    /// Was a page of it not there? Then it is not all shared with the VM.
    pub(crate) fn has_faulted(&self) -> bool {
        self.watched.iter().any(Watched::has_faulted)
    }

    /// The region of a guest address.
    #[inline(always)]
    fn find(&self, address: u64) -> Result<&GuestRegion, RingError> {
        // A VM has two or three regions, and almost all addresses are in the first.
        if self.first.offset(address).is_some() { Ok(&self.first) } else { self.find_in_others(address) }
    }

    #[inline(never)]
    fn find_in_others(&self, address: u64) -> Result<&GuestRegion, RingError> {
        self.others.iter().find(|region| region.offset(address).is_some()).ok_or(RingError::OutOfBounds)
    }

    /// `bytes` bytes from a guest address on, or fewer if the region ends; at least one unless `bytes` is 0.
    #[inline(always)]
    pub(crate) fn slice(&self, address: u64, bytes: usize) -> Result<VolatileSlice<'_>, RingError> {
        match self.first.slice(address, bytes) {
            Some(slice) => Ok(slice),
            None => self.find_in_others(address)?.slice(address, bytes).ok_or(RingError::OutOfBounds),
        }
    }

    /// An array in one region, for a part of a ring.
    pub(crate) fn array<T: GuestCell>(
        &self,
        address: u64,
        entries: usize,
    ) -> Result<GuestArray<T>, RingError> {
        let region = self.find(address)?;
        let at = region.offset(address).ok_or(RingError::OutOfBounds)?;
        GuestArray::new(&region.map, at, entries).ok_or(RingError::BadLayout)
    }

    /// The guest address of a front-end's address.
    pub(crate) fn guest_address(&self, user: u64) -> Option<u64> {
        self.user_regions.iter().find_map(|&(start, bytes, guest)| {
            let offset = user.checked_sub(start)?;
            (offset < bytes).then(|| guest + offset)
        })
    }
}
