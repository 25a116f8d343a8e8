//! What the server of a guest's sockets did in a live run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The thread that made a domain's socket calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketsResult {
    /// The domain's name.
    pub domain: String,
    /// Calls made.
    pub calls: u64,
    /// Calls refused because the file does not allow the address.
    pub refused: u64,
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that the guest received.
    pub received_bytes: u64,
    /// Changes of sockets that were reported to the guest.
    pub events: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Times that the thread slept.
    pub sleeps: u64,
    /// Most sockets at once.
    pub sockets_most: u64,
    /// Times that the limit of calls held up the guest.
    pub held_up: u64,
    /// Of each datagram to the guest: from the host's network stack, which stamps it when it comes in, until
    /// the guest has it.
    pub host_receive: Histogram,
    /// Of those that were answered: from then until the guest's call that answers is taken up.
    pub guest: Histogram,
    /// Of the answers: how long the call took, through the host's network stack.
    pub host_send: Histogram,
}

impl SocketsResult {
    /// The segments of a request in order, with their names.
    pub fn segments(&self) -> [(&'static str, &Histogram); 3] {
        [("host receive", &self.host_receive), ("guest", &self.guest), ("host send", &self.host_send)]
    }
}
