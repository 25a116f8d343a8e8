//! What was counted.

use serde::Serialize;

/// What a server did for a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Guests that connected.
    pub guests: u64,
    /// Calls made.
    pub calls: u64,
    /// Calls refused because the file does not allow the address.
    pub refused: u64,
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that the guest received.
    pub received_bytes: u64,
    /// Changes of sockets that the guest was told of.
    pub events: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Times that the server slept.
    pub sleeps: u64,
    /// Most sockets at once.
    pub sockets_most: u64,
    /// Times that the limit of calls held up the guest.
    pub held_up: u64,
}
