//! Bounds that several files share.

/// Ports of a switch at most.
pub const PORTS_MAX: usize = 256;

/// How long a plane may take to stop a ring. It looks at its mailbox every few packets.
pub(crate) const PLANE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Frames of a port that are in the switch at most, whatever the size of its ring.
pub const IN_FLIGHT_MAX: usize = 256;
