//! Socket calls of a guest, made by its host: the host's side.
//!
//! A module in the guest's kernel puts each call into memory that it shares with this server; the server
//! makes it on a socket of the host and answers. Changes of sockets go through an event queue, and an
//! interrupt is raised only where the guest asked for one. From O. F. Garcia Alvarado, *Research on real-time
//! network stacks of commodity hosted virtual machine environments*, University of Tsukuba 2019, chapter 5;
//! `docs/vmrpc.md` is the memory's layout and its rules, `docs/sockets.md` how to use it.
//!
//! - [`layout`]: where everything stands.
//! - [`queue`]: submissions, events, doorbell and interrupt, for any memory.
//! - [`memory`]: shared memory.
//! - [`call`]: a call and its answer.
//! - [`table`]: a guest's sockets, and what it may do.
//! - [`rate`]: calls in a second.
//! - [`segments`]: where the time of requests goes.
//! - [`ivshmem`]: how QEMU learns of the memory.
//! - [`resume`]: VMs that outlive their server.
//! - [`server`]: the thread.
//! - `testing`, with the feature of that name: the guest's side.
//!
//! # Trust
//! A guest may write anything anywhere in the shared memory at any time. Each word is read once and checked;
//! no index, length or address of it is believed. Data is copied by the kernel between socket and shared
//! memory, once.

#![deny(unsafe_code)]

pub mod call;
pub mod ivshmem;
pub mod layout;
pub mod memory;
pub mod queue;
pub mod rate;
pub mod resume;
pub mod segments;
pub mod server;
pub mod stats;
mod sys;
pub mod table;
#[cfg(feature = "testing")]
pub mod testing;

pub use segments::Segments;
pub use server::{Config, Event, Server};
pub use stats::Counts;
