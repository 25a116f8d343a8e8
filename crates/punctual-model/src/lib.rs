//! Input and output of Punctual: the host file and its validated value, generators of task sets, results,
//! guarantees, and the events of traces.
//!
//! `host.toml` is parsed once into a [`host::Host`]; simulation, analysis and live runs all take that value.
//! A file with `[host_stack]` describes the other kind of host, see [`AnyHost`].

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod acceptance;
mod any_host;
pub mod export;
pub mod file;
pub mod fleet;
pub mod generate;
pub mod guarantees;
pub mod histogram;
pub mod host;
pub mod import;
pub mod index;
pub mod live;
mod lock_order;
pub mod locks;
pub mod modes;
pub mod network;
pub mod overheads;
pub mod placement;
pub mod results;
mod schema;
pub mod service;
pub mod smp;
pub mod sockets;
pub mod text;
pub mod topology;
pub mod trace;

pub use any_host::AnyHost;
pub use guarantees::Guarantees;
pub use histogram::Histogram;
pub use host::Host;
pub use results::Results;
