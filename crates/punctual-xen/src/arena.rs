//! The allocator: TLSF (two-level segregated fit: M. Masmano et al., "TLSF: a new dynamic memory allocator
//! for real-time systems", ECRTS 2004) on memory that the hypervisor gives. It allocates and frees in
//! constant time.
//!
//! The library never returns memory to the hypervisor; the next pool uses what a destroyed one had.

#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};

use rlsf::Tlsf;
use spin::Mutex;

/// Blocks of up to 16 MiB, in 16 classes for each power of two: at most a sixteenth of a block is lost.
type Blocks = Tlsf<'static, u32, u16, 20, 16>;

/// Memory behind a lock, which is held for a constant time. An interrupt handler that took the lock on the
/// processor that holds it would spin without end, so callers have interrupts off.
pub struct Arena {
    blocks: Mutex<Blocks>,
    given: AtomicUsize,
    used: AtomicUsize,
}

impl Arena {
    /// An arena without memory.
    pub const fn new() -> Arena {
        Arena { blocks: Mutex::new(Blocks::new()), given: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Adds memory, which stays here.
    pub fn give(&self, memory: &'static mut [MaybeUninit<u8>]) {
        self.given.fetch_add(memory.len(), Ordering::Relaxed);
        self.blocks.lock().insert_free_block(memory);
    }

    /// Bytes that were given, and how many of these are allocated.
    pub fn account(&self) -> (usize, usize) {
        (self.given.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed))
    }
}

impl Default for Arena {
    fn default() -> Self {
        Arena::new()
    }
}

// SAFETY: `Tlsf` allocates blocks of the requested layout that do not overlap until they are freed; the lock
// serializes its calls.
unsafe impl GlobalAlloc for Arena {
    // SAFETY: the only obligation of the caller is that the layout's size is not 0.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(block) = self.blocks.lock().allocate(layout) else { return ptr::null_mut() };
        self.used.fetch_add(layout.size(), Ordering::Relaxed);
        block.as_ptr()
    }

    // SAFETY: the caller passes a block that `alloc` returned for this layout.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            self.used.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: see above; the block was allocated with this alignment.
            unsafe { self.blocks.lock().deallocate(block, layout.align()) }
        }
    }
}
