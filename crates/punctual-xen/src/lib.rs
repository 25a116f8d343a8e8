//! The policies behind a C interface, for a hypervisor.
//!
//! `include/punctual.h` is the contract for C; `xen/sched_punctual.c` is a scheduler of Xen that uses it. The
//! library allocates only from memory that it is given, calls nothing but `punctual_panicked`, has no state
//! but its pools and that memory, and uses no floating point.
//!
//! - [`pool`]: a pool of processors under a policy, in safe Rust: what runs where since when, and what is
//!   charged.
//! - [`config`]: a policy by its name, with options as text.
//! - [`abi`]: the functions that C calls.
//! - [`arena`]: the allocator.
//! - [`xentrace`], [`record`], [`replay`]: a trace of Xen, the calls of a pool in it, and the same calls made
//!   on a pool here, to compare the answers.
//! - [`op`]: the sysctl of the scheduler in Xen.
//!
//! For targets without an operating system this is a static library (`scripts/check-xen-lib.sh`); elsewhere
//! it is a Rust library, for its tests and for tools of domain 0.

#![no_std]
#![warn(missing_docs, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod abi;
pub mod arena;
#[cfg(target_os = "none")]
mod bare;
pub mod config;
#[cfg(not(target_os = "none"))]
pub mod op;
pub mod pool;
#[cfg(not(target_os = "none"))]
pub mod record;
#[cfg(not(target_os = "none"))]
pub mod replay;
mod text;
#[cfg(not(target_os = "none"))]
pub mod xentrace;

pub use config::Config;
pub use pool::{Error, Pool};
