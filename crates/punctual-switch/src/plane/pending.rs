//! What the drivers of a plane have not been notified of.

use punctual_sched::Instant;

use crate::limits::PORTS_MAX;

/// Deliveries that are notified together.
const NOTIFY_BATCH_MAX: usize = 8;

/// Frames of one sender that arrived at one reading of the clock and were delivered one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) sender: usize,
    pub(super) arrived: Instant,
    pub(super) frames: u32,
}

/// What the drivers have not been notified of.
#[derive(Debug)]
pub(super) struct PendingNotify {
    /// By queue: ports with used entries that are not published.
    pub(super) ports: [Vec<usize>; 2],
    /// Deliveries, in order.
    bursts: Vec<Burst>,
    deliveries: usize,
    /// Of the most urgent delivery.
    pub(super) urgency: u64,
}

impl PendingNotify {
    pub(super) fn new() -> Self {
        let none = || Vec::with_capacity(PORTS_MAX);
        PendingNotify {
            ports: [none(), none()],
            bursts: Vec::with_capacity(NOTIFY_BATCH_MAX + 1),
            deliveries: 0,
            urgency: u64::MAX,
        }
    }

    pub(super) fn has_deliveries(&self) -> bool {
        self.deliveries > 0
    }

    /// Are as many deliveries pending as are notified together?
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.deliveries >= NOTIFY_BATCH_MAX
    }

    /// A frame of `sender` that arrived then was delivered.
    #[inline(always)]
    pub(super) fn delivered(&mut self, sender: usize, arrived: Instant, urgency: u64) {
        self.urgency = self.urgency.min(urgency);
        self.deliveries += 1;
        match self.bursts.last_mut() {
            Some(burst) if burst.sender == sender && burst.arrived == arrived => burst.frames += 1,
            _ => self.bursts.push(Burst { sender, arrived, frames: 1 }),
        }
    }

    pub(super) fn bursts(&self) -> &[Burst] {
        &self.bursts
    }

    pub(super) fn clear(&mut self) {
        self.ports.iter_mut().for_each(Vec::clear);
        self.bursts.clear();
        self.deliveries = 0;
        self.urgency = u64::MAX;
    }
}
