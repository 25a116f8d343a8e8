//! What a library without an operating system brings along: its memory, and what a panic does.

use core::fmt::Write;
use core::panic::PanicInfo;

use crate::abi::Text;
use crate::arena::Arena;

/// All memory of the library.
#[global_allocator]
pub static ARENA: Arena = Arena::new();

// SAFETY: the declaration is that of `include/punctual.h`; the text is readable during the call.
unsafe extern "C" {
    /// Told of a panic, or of memory that is used up. It does not return: the hypervisor leaves the call that
    /// panicked behind, and never calls again with its pool.
    safe fn punctual_panicked(why: &Text) -> !;
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut why = Text::EMPTY;
    // What does not fit is cut.
    let _ = write!(why, "{info}");
    punctual_panicked(&why)
}
