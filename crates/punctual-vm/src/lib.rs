//! Guests of runs and tests.
//!
//! Images of guests are made here and kept in a cache, QEMU is started and asked for its threads, and the
//! guest program, which this crate holds, is talked to in VMs and in processes ([`workload`]). Runs, on Linux
//! and in Xen, and the command line may depend on this crate. Nothing here decides when a guest runs.

#![forbid(unsafe_code)]

pub mod cache;
pub mod image;
pub mod periods;
pub mod qemu;
pub mod workload;
