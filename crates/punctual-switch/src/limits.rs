//! Bounds that several files share.

use std::time::Duration;

/// Ports of a switch.
pub const PORTS_MAX: usize = 256;

/// How long another thread waits for a plane's reply. A plane reads its mailbox every few packets.
pub(crate) const PLANE_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames of a port in the switch, whatever the size of its ring. A power of two: slots are numbered modulo
/// it.
pub(crate) const IN_FLIGHT_MAX: usize = 256;
