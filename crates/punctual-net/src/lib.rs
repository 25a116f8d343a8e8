#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! Packets between virtual machines pass three stages in the manager domain (Xen's Domain 0): netback's TX
//! queue, `softnet_data`, netback's RX queue. A discipline decides which packet is processed next in which
//! stage.
//!
//! - [`packet`]: what a discipline knows about a packet.
//! - [`discipline`]: the interface, [`Discipline`], and its contract.
//! - [`registry`]: the disciplines by name.
//! - [`netback`]: as shipped with Xen 4.1 and Linux 3.x.
//! - [`rtca`]: prioritized, with small batches.
//! - [`preemptive`]: prioritized across all three stages.
//! - [`token_bucket`]: rate limits.
//! - [`event_channel`]: which pending event the manager domain handles next.
//!
//! # Dependencies
//! The crate uses the leaf modules of `punctual-sched`, nothing that knows of processors or units: the time
//! types, the vocabulary of parameters (so that one parser reads the options of both) and the indexed heap.

#![no_std]
#![warn(missing_docs, clippy::cast_possible_truncation)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bitmap;
pub mod discipline;
pub mod event_channel;
mod levels;
pub mod netback;
pub mod packet;
mod path;
pub mod preemptive;
mod queue;
pub mod registry;
mod rounds;
pub mod rtca;
pub mod token_bucket;

pub use discipline::{Discipline, Fate, InterfaceKind, InterfaceParams, Next, Step};
pub use packet::{DropReason, Drops, FlowId, InterfaceId, Packet, Stage};
pub use rounds::{RX_ROUND, TX_ROUND};
pub use token_bucket::{Rate, TokenBucket};
