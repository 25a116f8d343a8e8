//! What the drivers of a plane have not been notified of.

use punctual_sched::Instant;

use crate::limits::PORTS_MAX;

/// Deliveries that are notified together.
pub(super) const NOTIFY_BATCH_MAX: usize = 8;

/// What the drivers have not been notified of.
#[derive(Debug)]
pub(super) struct PendingNotify {
    /// By queue: ports with used entries that are not published.
    pub(super) ports: [Vec<usize>; 2],
    /// Deliveries: the sender, and when the frame arrived.
    pub(super) deliveries: Vec<(usize, Instant)>,
    /// Of the most urgent delivery.
    pub(super) urgency: u64,
}

impl PendingNotify {
    pub(super) fn new() -> Self {
        let none = || Vec::with_capacity(PORTS_MAX);
        PendingNotify {
            ports: [none(), none()],
            deliveries: Vec::with_capacity(NOTIFY_BATCH_MAX),
            urgency: u64::MAX,
        }
    }
}
