//! The service of a host: which VMs run on it, to which class each belongs, what their threads run and wait;
//! and the same for systemd units and other cgroups that a class names.
//!
//! [`service::Service`] is the loop: one thread, one epoll. It owns the [`registry::Registry`] of actors,
//! [`discovery`] finds the processes of VMs, [`groups`] finds cgroups, [`sample`] reads their threads,
//! [`varlink`] answers other programs, and [`log`] and [`notify`] talk to systemd. [`client`] is the other
//! end of the socket. [`mod@topology`] reads the machine.
//!
//! It runs no policy and changes nothing on the host. Where the configuration asks for enforcement, it tells
//! another process (`punctual-hold`) what is to be held (`enforcement.rs`), which goes on when this one ends.
//! The command line depends on this crate; it reads no arguments.

#![forbid(unsafe_code)]
// Not for others: a field is documented where its name does not say all.
#![allow(missing_docs)]

pub mod actor;
pub mod admission;
pub mod classes;
pub mod client;
pub mod config;
mod core;
mod descriptors;
pub mod discovery;
mod enforcement;
pub mod exec;
pub mod exporter;
pub mod groups;
pub mod hints;
pub mod history;
pub mod hook;
pub mod http;
mod interrupts;
mod last_good;
pub mod libvirt;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod registry;
pub mod sample;
pub mod service;
pub mod topology;
pub mod varlink;
pub mod view;
pub mod waits;
pub mod web;
mod wishes;
