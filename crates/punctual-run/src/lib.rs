//! A host run on this machine, from its description to its results; switches and servers of sockets for VMs
//! that others run.
//!
//! [`host::run_host`] is the one assembly of a run: [`config::RunConfig`] is what the user wants, and the run
//! reports [`events::Event`]s. [`run`] has the stages of a run. [`switch`] and [`sockets`] serve networks and
//! sockets without a run; [`status`] is what `punctual top` shows; [`calibrate`] measures;
//! [`hook`] is what libvirt's hook sends.
//!
//! The command line and the experiments of papers may depend on this crate. It reads no arguments and prints
//! nothing.

#![forbid(unsafe_code)]
// Not for others: a field is documented where its name does not say all.
#![allow(missing_docs)]

pub mod abandoned;
pub mod calibrate;
pub mod config;
pub mod error;
pub mod events;
pub mod hook;
pub mod host;
mod network;
pub mod planes;
pub mod run;
pub mod sockets;
pub mod status;
pub mod switch;
mod uplink;
