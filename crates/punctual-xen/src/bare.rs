//! What a library without an operating system needs: an allocator and a panic handler.

#![expect(unsafe_code, reason = "a function of the hypervisor")]

use core::fmt::Write;
use core::panic::PanicInfo;

use crate::arena::Arena;
use crate::text::Text;

/// All memory of the library.
#[global_allocator]
pub(crate) static ARENA: Arena = Arena::new();

// SAFETY: the declaration is that of `include/punctual.h`; the text is readable during the call.
unsafe extern "C" {
    /// The hypervisor's function for panics, which include memory that is used up. It does not return: the
    /// hypervisor abandons the call that panicked, and never calls with its pool again.
    safe fn punctual_panicked(why: &Text) -> !;
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut why = Text::EMPTY;
    // An error says that the text was cut.
    let _ = write!(why, "{info}");
    punctual_panicked(&why)
}
