//! Telling VMs.

use punctual_net::Discipline;
use punctual_sched::Instant;

use super::Plane;
use crate::limits::PORTS_MAX;
use crate::ring::{RxRing, publish_barrier};
use crate::session::{RX, TX};

/// Deliveries of which VMs are told together, at most.
pub(super) const NOTIFY_BATCH_MAX: usize = 8;

/// Of what VMs were not told yet.
#[derive(Debug)]
pub(super) struct PendingNotify {
    /// Ports that sent, and ports that received.
    pub(super) ports: [Vec<usize>; 2],
    /// Deliveries: the sender, and when the frame came.
    pub(super) deliveries: Vec<(usize, Instant)>,
    /// The most urgent of them has this urgency.
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

impl<D: Discipline> Plane<D> {
    /// Shows VMs what they sent and received, and tells those that want to hear.
    pub(super) fn notify(&mut self) {
        if self.pending.ports.iter().all(Vec::is_empty) {
            return;
        }
        match self.rx_rings.is_empty() {
            true => self.notify_shared(),
            false => self.notify_exclusive(),
        }
        if !self.pending.deliveries.is_empty() {
            self.read_clock();
            for &(port, came) in &self.pending.deliveries {
                self.ports[port].stats.latency.record(self.now.since(came));
            }
        }
        self.pending.ports.iter_mut().for_each(Vec::clear);
        self.pending.deliveries.clear();
        self.pending.urgency = u64::MAX;
    }

    /// As [`Plane::tell`], where the receive rings are the plane's own.
    pub(super) fn notify_exclusive(&mut self) {
        // Senders first: if the switch dies here, frames are lost rather than sent again by the next one.
        // Rings that are broken are noticed below.
        for &port in &self.pending.ports[TX] {
            let _ = self.ports[port].send.as_mut().map(|send| send.publish());
        }
        for &port in &self.pending.ports[RX] {
            let _ = self.rx_rings[port].as_mut().map(|ring| ring.publish());
        }
        publish_barrier();
        for at in 0..self.pending.ports[RX].len() {
            let port = self.pending.ports[RX][at];
            self.ports[port].pending[RX] = false;
            if let Some(Err(broken)) = self.rx_rings[port].as_mut().map(|ring| ring.signal_driver()) {
                self.break_port(port, broken);
            }
        }
        for at in 0..self.pending.ports[TX].len() {
            let port = self.pending.ports[TX][at];
            self.ports[port].pending[TX] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.signal_driver()) {
                self.break_port(port, broken);
            }
        }
    }

    /// As [`Plane::tell`], where planes share the receive rings.
    pub(super) fn notify_shared(&mut self) {
        for at in 0..self.pending.ports[RX].len() {
            let port = self.pending.ports[RX][at];
            self.ports[port].pending[RX] = false;
            // Senders were shown theirs when it was put there.
            let tell = |ring: &mut Option<Box<RxRing>>| {
                ring.as_mut().map_or(Ok(()), |ring| ring.publish_and_signal())
            };
            let told = self.shared.ports[port].rx.with(tell);
            if let Err(broken) = told {
                self.break_port(port, broken);
            }
        }
        for at in 0..self.pending.ports[TX].len() {
            let port = self.pending.ports[TX][at];
            self.ports[port].pending[TX] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.publish_and_signal()) {
                self.break_port(port, broken);
            }
        }
    }

    /// A port's VM has to hear of frames that it sent, or received.
    #[inline]
    pub(super) fn queue_notify(&mut self, port: usize, queue: usize) {
        if !std::mem::replace(&mut self.ports[port].pending[queue], true) {
            self.pending.ports[queue].push(port);
        }
    }
}
