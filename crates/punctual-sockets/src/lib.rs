//! Socket outsourcing, the host's side: a server that makes the socket calls of a guest on sockets of the
//! host.
//!
//! A module in the guest's kernel writes each call into memory that it shares with this server. The server
//! makes the call and writes the response. Changes of sockets go through an event queue, with an interrupt
//! only where the guest needs one. From O. F. Garcia Alvarado, *Research on real-time network stacks of
//! commodity hosted virtual machine environments*, University of Tsukuba 2019, chapter 5. `docs/vmrpc.md`
//! defines the shared memory and its rules, `docs/sockets.md` is the manual.
//!
//! - [`layout`]: offsets in shared memory.
//! - [`queue`]: submissions, events, doorbell and interrupts, for any memory.
//! - [`memory`]: shared memory.
//! - [`call`]: a call and its response.
//! - [`table`]: a guest's sockets and its rights.
//! - `rate`: the limit on calls per second.
//! - `segments`: where the time of requests goes.
//! - `ivshmem`: QEMU's protocol for shared memory.
//! - `resume`: VMs that outlive their server.
//! - `server`: the thread.
//! - `testing`, with the feature of that name: the guest's side.
//!
//! # What belongs here
//! The path of a call from shared memory to a socket and back, for one VM and one thread. Callers give a
//! [`Config`] with the VM's rules and receive [`Event`]s and [`Counts`]; they own host files, threads'
//! priorities and QEMU. The thread waits in `epoll` only: no call of a guest blocks it.
//!
//! # Trust
//! A guest may write anything anywhere in the shared memory at any time. The server reads each word once and
//! checks it before use. The kernel copies data directly between socket and shared memory.

#![warn(clippy::cast_possible_truncation)]

pub mod call;
mod claims;
mod ivshmem;
pub mod layout;
pub mod memory;
pub mod queue;
mod rate;
mod resume;
mod segments;
mod server;
mod stats;
mod sys;
pub mod table;
#[cfg(feature = "testing")]
pub mod testing;

pub use segments::Segments;
pub use server::{Config, Error, Event, Server};
pub use stats::Counts;
