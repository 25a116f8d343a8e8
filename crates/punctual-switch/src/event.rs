//! What a switch reports of its ports.

use crate::error::RingError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A front-end connected.
    Connected,
    /// A connection could not be accepted, for this reason. The switch retries.
    Unaccepted(String),
    /// Both rings are started.
    Running,
    /// The front-end lost the driver's features: the switch assumes that the driver accepted all offered
    /// ones.
    Assumed,
    /// The connection or the uplink ended. `None`: the front-end closed the connection.
    Disconnected(Option<String>),
    /// A ring is broken: the port is out of service until its driver resets it.
    Broken(RingError),
}

/// An event of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub port: usize,
    pub event: Event,
}
