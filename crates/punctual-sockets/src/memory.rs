//! The memory that a guest and its host share.

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
    /// New memory, all zero, whose length nobody can change.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> std::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("punctual sockets", flags)?;
        rustix::fs::ftruncate(&file, layout::BYTES.into())?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Shared::map(file)
    }

    /// Maps what the other side made.
    ///
    /// # Errors
    /// When the file is too short, or the kernel refuses.
    pub fn map(file: OwnedFd) -> std::io::Result<Self> {
        let mapped = File::from(file.try_clone()?);
        if mapped.metadata()?.len() < layout::BYTES.into() {
            return Err(std::io::Error::other("the shared memory is too short"));
        }
        let region = MmapRegion::from_file(FileOffset::new(mapped, 0), layout::BYTES as usize)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Shared { region, file })
    }

    /// The file, for the other side.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A slot's data. Its length is [`layout::DATA_BYTES`] at most.
    pub fn data(&self, slot: u32, length: u32) -> Option<VolatileSlice<'_>> {
        let is_inside = slot < layout::SLOTS && length <= layout::DATA_BYTES;
        let start = layout::DATA_AT as usize + slot as usize * layout::DATA_BYTES as usize;
        is_inside.then(|| self.region.get_slice(start, length as usize).ok()).flatten()
    }

    fn word(&self, at: u32) -> &AtomicU32 {
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
