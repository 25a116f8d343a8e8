//! Counters of a server.

use serde::Serialize;

/// Totals of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Guests that connected.
    pub guests: u64,
    pub calls: u64,
    /// Calls that the guest's rules refused.
    pub refused: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Events of sockets sent to the guest.
    pub events: u64,
    pub interrupts: u64,
    /// Times that the server slept.
    pub sleeps: u64,
    /// Most sockets at once.
    pub sockets_most: u64,
    /// Times that the limit on calls delayed the guest.
    pub held_up: u64,
}
