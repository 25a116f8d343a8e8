//! The control interface: varlink (<https://varlink.org>), JSON messages that end with a NUL over a Unix
//! socket.
//!
//! Written here rather than taken from a crate: the protocol is small, and the server must bound messages,
//! clients and what slow readers leave unread, know who asks, and run in the service's loop. The crates at
//! hand start a thread for each client or an asynchronous runtime.

mod message;
pub(crate) mod server;

pub use message::{Call, MESSAGE_BYTES_MAX, Reply, next_message};

/// The interface of the service.
pub const INTERFACE: &str = "io.punctual.Host";
/// The interface of every varlink service.
pub const SERVICE_INTERFACE: &str = "org.varlink.service";
/// The description of [`INTERFACE`].
pub const DESCRIPTION: &str = include_str!("io.punctual.Host.varlink");
/// The description of [`SERVICE_INTERFACE`], as the specification has it.
pub const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");

/// The socket below the runtime directory.
pub const SOCKET: &str = "io.punctual.Host";
