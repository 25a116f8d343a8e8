//! Programs in the kernel (BPF) that add up what threads of VMs wait for.
//!
//! [`Tally`] is the interface: user space names threads, the programs add up who ran, who waited and behind
//! whom, and tell only the waits that are worth a story. [`Loaded`] is the one of the running kernel.
//!
//! The loader uses `libbpf-rs` without skeletons, as `punctual-scx` does: system calls copy what both sides
//! change, so the crate needs no `unsafe`.

#![forbid(unsafe_code)]

mod interface;
#[cfg(any(has_object, test))]
mod layout;
#[cfg(has_object)]
mod loaded;
#[cfg(not(has_object))]
mod unloaded;

pub use interface::{BUCKETS, Mark, Off, Settings, State, Step, Story, Sum, THREADS_MAX, Tally, Thread};
#[cfg(has_object)]
pub use loaded::{Error, Loaded};
#[cfg(not(has_object))]
pub use unloaded::{Error, Loaded};

/// Does this program contain the programs for the kernel?
pub const HAS_OBJECT: bool = cfg!(has_object);
