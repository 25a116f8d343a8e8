//! A vhost-user switch for virtual machines. Packets go in the order of a packet discipline.
//!
//! Each port is a vhost-user back-end: a socket to which an unmodified QEMU, or another front-end, connects a
//! virtio-net device. The disciplines of `punctual-net` decide which packet is next, and are the same objects
//! that the simulator drives. The switch is the mechanism around them.
//!
//! From the bottom up; a file uses only files above it in this list or beside it, never in a circle:
//!
//! - `limits`, `narrow`, `sys`, [`protocol`], [`features`], [`frame`], `lock`, `join`, `counters`: constants,
//!   system calls, formats.
//! - `error`, `event`: what can go wrong and what is reported.
//! - [`memory`], [`vlan`], `table`, [`stats`], [`budget`], `check`: guest memory, forwarding, counters,
//!   limits.
//! - [`ring`]: split virtqueues and the copy from guest to guest.
//! - [`session`], [`connection`]: vhost-user, from bytes to started rings.
//! - `port_state`: the life of a port as one state machine.
//! - `port_queue`, `mailbox`, `shared`: what threads know of a port, and how they ask each other.
//! - `plane`: the thread that carries packets, with its bounds.
//! - [`wire`], [`pcap`], `uplink`, `uplink_thread`: ports without a VM.
//! - `port_session`, `control`: the thread that serves the front-ends.
//! - `config`, `assemble`, `switch`: a switch with all its threads.
//! - [`costs`]: what the steps cost on a machine. `testing`, a feature: the other side of a port.
//!
//! # Trust
//! Guest memory is never trusted: everything in it is read once, bounded and checked, and a broken ring costs
//! only its own port. Files of a front-end are checked when they arrive, and a plane never waits for them
//! (`sys/peer_event.rs`, [`memory`]). Memory whose pages are not there costs its port
//! (`sys/fault.rs`).

#![warn(clippy::cast_possible_truncation)]
// Names of fields and variants say what they are; what they do not say is documented.

mod assemble;
pub mod budget;
mod check;
mod config;
pub mod connection;
mod control;
pub mod costs;
mod counters;
mod driver;
mod error;
mod event;
pub mod features;
pub mod frame;
mod join;
mod limits;
mod lock;
mod mailbox;
pub mod memory;
mod narrow;
pub mod pcap;
mod plane;
mod port_queue;
mod port_session;
mod port_state;
pub mod protocol;
pub mod ring;
pub mod session;
mod shared;
mod socket;
pub mod stats;
mod switch;
mod sys;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod uplink;
mod uplink_thread;
pub mod vlan;
pub mod wire;

pub use check::Violation;
pub use config::{Config, End, Error, PlaneThread, Port};
pub use error::{DeliverError, RingError};
pub use event::{Event, Notice};
pub use limits::PORTS_MAX;
pub use switch::{Report, Switch};
