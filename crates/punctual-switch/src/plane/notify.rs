//! Notification: publishes used indices and signals the drivers that ask for it.

use punctual_net::Discipline;

use super::Plane;
use crate::ring::publish_barrier;
use crate::session::{RX, TX};

impl<D: Discipline> Plane<D> {
    /// Notifies all drivers with pending entries.
    pub(super) fn notify(&mut self) {
        if self.pending.ports.iter().all(Vec::is_empty) {
            return;
        }
        if self.rx_rings.is_empty() {
            self.notify_shared()
        } else {
            self.notify_exclusive()
        }
        if self.pending.has_deliveries() {
            self.read_clock();
            for burst in self.pending.bursts() {
                let latency = self.now.since(burst.arrived);
                self.ports[burst.sender].stats.latency.record_n(latency, burst.frames);
            }
        }
        self.pending.clear();
    }

    /// [`Plane::notify`] of the only plane, which owns the RX rings.
    fn notify_exclusive(&mut self) {
        // Senders first: if the switch dies here, frames are lost rather than sent again by the next one.
        for &port in &self.pending.ports[TX] {
            self.ports[port].tx.iter_mut().for_each(|tx| tx.publish());
        }
        for &port in &self.pending.ports[RX] {
            self.rx_rings[port].iter_mut().for_each(|rx| rx.publish());
        }
        publish_barrier();
        for &port in &self.pending.ports[RX] {
            self.ports[port].is_pending[RX] = false;
            self.rx_rings[port].iter_mut().for_each(|rx| rx.signal_driver());
        }
        for &port in &self.pending.ports[TX] {
            self.ports[port].is_pending[TX] = false;
            self.ports[port].tx.iter_mut().for_each(|tx| tx.signal_driver());
        }
    }

    /// [`Plane::notify`] where planes share the RX rings.
    fn notify_shared(&mut self) {
        for &port in &self.pending.ports[RX] {
            self.ports[port].is_pending[RX] = false;
            // The senders' used indices were published at delivery.
            self.shared.ports[port].rx.with(|rx| rx.iter_mut().for_each(|rx| rx.publish_and_signal()));
        }
        for &port in &self.pending.ports[TX] {
            self.ports[port].is_pending[TX] = false;
            self.ports[port].tx.iter_mut().for_each(|tx| tx.publish_and_signal());
        }
    }

    /// Adds a port's queue to those that the next [`Plane::notify`] publishes.
    #[inline]
    pub(super) fn queue_notify(&mut self, port: usize, queue: usize) {
        if !std::mem::replace(&mut self.ports[port].is_pending[queue], true) {
            self.pending.ports[queue].push(port);
        }
    }
}
