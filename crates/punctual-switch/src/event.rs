//! What happens to ports.

use crate::error::RingError;

/// What happened to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM's monitor connected.
    Connected,
    /// A monitor that wants to connect cannot be accepted; the reason. The switch goes on trying.
    Unaccepted(String),
    /// Its driver uses both rings.
    Running,
    /// The monitor forgot what the driver chose: the driver is taken to have chosen all that it was offered.
    Assumed,
    /// The connection ended; the reason, unless the monitor closed it.
    Disconnected(Option<String>),
    /// A ring is broken: the port is out of use until its driver resets it.
    Broken(RingError),
}

/// Something happened to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The port.
    pub port: usize,
    /// What happened.
    pub event: Event,
}
