//! Bounds that several files share.

use std::time::Duration;

/// Ports of a switch.
pub const PORTS_MAX: usize = 256;

/// How long another thread waits for a plane's reply. A plane reads its mailbox every few packets.
pub(crate) const PLANE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a reader of counters waits for a plane's reply.
pub(crate) const COUNT_TIMEOUT: Duration = Duration::from_millis(300);

/// A switch that stops waits this long for its threads, all together, and then leaves them behind.
pub(crate) const END_TIMEOUT: Duration = Duration::from_millis(900);

/// What of [`END_TIMEOUT`] the control thread may take.
pub(crate) const CONTROL_END_TIMEOUT: Duration = Duration::from_millis(450);

/// Frames of a port in the switch, whatever the size of its ring. A power of two: slots are numbered modulo
/// it.
pub(crate) const IN_FLIGHT_MAX: usize = 256;
