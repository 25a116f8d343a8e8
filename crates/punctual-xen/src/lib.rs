//! The policies behind a C interface, for a hypervisor.
//!
//! `include/punctual.h` is the contract as C reads it; `xen/sched_punctual.c` is a scheduler of Xen on top of
//! it. The library takes memory only from what it is given (`arena.rs`), calls nothing but
//! `punctual_panicked`, keeps no state beside pools and that memory, and uses no floating point.
//!
//! - [`pool`]: a pool of processors under a policy, safe: who runs where since when, and what is charged.
//! - [`config`]: a policy by its name, with options as text.
//! - [`abi`]: the functions that C calls.
//! - [`arena`]: the memory.
//! - [`xentrace`], [`record`], [`replay`]: a trace of Xen, the calls of a pool in it, and whether a pool here
//!   decides the same when it is called like that.
//! - [`op`]: what domain 0 asks of a cpupool's scheduler.
//!
//! On a machine without an operating system this is a static library (`scripts/check-xen-lib.sh`); elsewhere
//! it is a library of Rust, for its tests.

#![no_std]

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
#[cfg(not(target_os = "none"))]
pub mod xentrace;

pub use config::Config;
pub use pool::{Error, Pool};
