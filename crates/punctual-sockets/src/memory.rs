//! The memory that a guest and its host share, as a mapped file.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::layout;
use crate::queue::Words;

/// Shared memory of [`layout::BYTES`].
#[derive(Debug)]
pub struct Shared {
    region: MmapRegion,
    file: OwnedFd,
}

impl Shared {
    /// New zeroed memory. Seals keep the guest's QEMU from changing its length, which would make accesses
    /// here fault.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate`, `fcntl` and `mmap`.
    pub fn new() -> std::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("punctual sockets", flags)?;
        rustix::fs::ftruncate(&file, layout::BYTES.into())?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Shared::map(file)
    }

    /// Maps memory that the other side made.
    ///
    /// # Errors
    /// The file is too short, or `mmap` fails.
    pub(crate) fn map(file: OwnedFd) -> std::io::Result<Self> {
        let mapped = File::from(file.try_clone()?);
        if mapped.metadata()?.len() < layout::BYTES.into() {
            return Err(std::io::Error::other("the shared memory is too short"));
        }
        let region = MmapRegion::from_file(FileOffset::new(mapped, 0), layout::BYTES as usize)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Shared { region, file })
    }

    /// The file to send to the other side.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The first `length` bytes of a slot's data; `None` beyond [`layout::DATA_BYTES`] or the last slot.
    pub(crate) fn data(&self, slot: u32, length: u32) -> Option<VolatileSlice<'_>> {
        let is_inside = slot < layout::SLOTS && length <= layout::DATA_BYTES;
        let start = layout::DATA_AT as usize + slot as usize * layout::DATA_BYTES as usize;
        is_inside.then(|| self.region.get_slice(start, length as usize).ok()).flatten()
    }

    /// Offsets come from `layout` and from numbers that were checked, never from the guest as they are.
    fn word(&self, at: u32) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4) && at < layout::BYTES, "offset {at} is not a word of the memory");
        self.region.get_atomic_ref(at as usize).expect("an aligned word inside the memory")
    }
}

impl Words for Shared {
    fn load(&self, at: u32) -> u32 {
        u32::from_le(self.word(at).load(Ordering::Acquire))
    }

    fn store(&self, at: u32, value: u32) {
        self.word(at).store(value.to_le(), Ordering::Release);
    }

    fn set(&self, at: u32, bits: u32) -> u32 {
        u32::from_le(self.word(at).fetch_or(bits.to_le(), Ordering::AcqRel))
    }

    fn clear(&self, at: u32, bits: u32) {
        self.word(at).fetch_and(!bits.to_le(), Ordering::AcqRel);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
