//! The process that keeps VMs under enforcement for the service: `punctual enforce`.
//!
//! The service (`punctual-service`) decides which VM belongs to which class, and talks to everybody. This
//! process has the rights, and does what the service wants: it holds VMs in their pools. They are two
//! processes for two reasons. What answers users and reads files of VMs has no rights that matter; and the
//! service may be restarted, upgraded or killed without any VM noticing: what it wanted last is held on for
//! [`GRACE`], until it is back.
//!
//! What never happens here: nothing is decided about classes, and no process is started, stopped or ended.
//! However this process ends, its guardian puts everything back.

mod held;
mod holder;
mod interrupts;
mod plan;
pub mod protocol;
mod server;

pub use server::{Error, GRACE, Options, SOCKET, Server, socket};
