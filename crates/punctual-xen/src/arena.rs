//! Memory: what the hypervisor has given, divided by TLSF (two-level segregated fit: M. Masmano et al.,
//! "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004), which takes and gives back in
//! constant time.
//!
//! Memory that was given stays here: a pool that ends leaves its memory to the next one.

use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use rlsf::Tlsf;
use spin::Mutex;

/// Blocks of up to 16 MiB, in 16 classes for each power of two: at most a sixteenth of a block is lost.
type Blocks = Tlsf<'static, u32, u16, 20, 16>;

/// Memory behind a lock. The lock is held for a constant time; on the processor that holds it nothing else
/// may run that takes it, so interrupts are off.
pub struct Arena {
    blocks: Mutex<Blocks>,
    given: AtomicUsize,
    used: AtomicUsize,
}

impl Arena {
    /// Without memory.
    pub const fn new() -> Arena {
        Arena { blocks: Mutex::new(Blocks::new()), given: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Takes memory for good.
    pub fn give(&self, memory: &'static mut [MaybeUninit<u8>]) {
        self.given.fetch_add(memory.len(), Ordering::Relaxed);
        self.blocks.lock().insert_free_block(memory);
    }

    /// Bytes that were given, and bytes of those that somebody has now.
    pub fn account(&self) -> (usize, usize) {
        (self.given.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed))
    }
}

impl Default for Arena {
    fn default() -> Self {
        Arena::new()
    }
}

// SAFETY: `Tlsf` gives out memory of the layout that it is asked for, each block to one owner until it is
// given back; the lock keeps calls apart.
unsafe impl GlobalAlloc for Arena {
    // SAFETY: the caller's layout is not of size 0, which is all that `alloc` asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(block) = self.blocks.lock().allocate(layout) else { return ptr::null_mut() };
        self.used.fetch_add(layout.size(), Ordering::Relaxed);
        block.as_ptr()
    }

    // SAFETY: as the caller says, the block is one that `alloc` gave out with this layout.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            self.used.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: see above; the alignment is that of its allocation.
            unsafe { self.blocks.lock().deallocate(block, layout.align()) }
        }
    }
}
