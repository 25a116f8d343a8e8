//! A switch for virtual machines whose packets go in the order of a packet discipline.
//!
//! Each port is a vhost-user back end: a socket to which an unmodified QEMU (or another monitor that speaks
//! vhost-user) connects for a virtio-net device. The disciplines of `punctual-net` decide which packet is
//! next, the very objects that the simulator drives; the switch is the mechanism around them.
//!
//! - [`switch`]: a switch with its ports, sockets and threads.
//! - [`plane`]: the thread that carries packets, with its bounds.
//! - [`budget`]: how much processor time a plane may take.
//! - [`ring`]: virtio rings and the copy from guest to guest.
//! - [`protocol`], [`session`], [`connection`]: vhost-user, from bytes to rings.
//! - [`memory`]: a VM's memory.
//! - `uplink`, [`wire`]: ports with something else than a VM behind them: a TAP, an interface, programs.
//! - [`frame`], [`features`], [`table`]: what is read of a frame, and where it goes.
//! - [`vlan`]: which ports a frame may reach, and with which tag.
//! - [`check`]: invariants that ride along.
//! - [`costs`]: what its steps cost on a machine.
//! - `testing`, with the feature of that name: the driver's side of a port.
//!
//! # Trust
//! Nothing in a guest's memory is believed: it is bounded, checked and read once, and a broken ring costs its
//! own port only. A VM's monitor is trusted not to shrink the files of its memory; QEMU seals them.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
// Names of fields and variants say what they are; what they do not say is documented.
#![allow(missing_docs)]

mod assemble;
pub mod budget;
pub mod check;
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
mod limits;
mod lock;
mod mailbox;
pub mod memory;
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
pub mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod uplink;
mod uplink_thread;
pub mod vlan;
pub mod wire;

pub use config::{Config, End, Error, PlaneThread, Port};
pub use error::{DeliverError, RingError};
pub use event::{Event, Notice};
pub use limits::PORTS_MAX;
pub use switch::{Report, Switch};
