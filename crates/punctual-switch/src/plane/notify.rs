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
        if !self.pending.deliveries.is_empty() {
            self.read_clock();
            for &(port, arrived) in &self.pending.deliveries {
                self.ports[port].stats.latency.record(self.now.since(arrived));
            }
        }
        self.pending.ports.iter_mut().for_each(Vec::clear);
        self.pending.deliveries.clear();
        self.pending.urgency = u64::MAX;
    }

    /// [`Plane::notify`] of the only plane, which owns the RX rings.
    fn notify_exclusive(&mut self) {
        // Senders first: if the switch dies here, frames are lost rather than sent again by the next one.
        // The loops below see the errors of broken rings again.
        for &port in &self.pending.ports[TX] {
            let _ = self.ports[port].tx.as_mut().map(|tx| tx.publish());
        }
        for &port in &self.pending.ports[RX] {
            let _ = self.rx_rings[port].as_mut().map(|rx| rx.publish());
        }
        publish_barrier();
        for at in 0..self.pending.ports[RX].len() {
            let port = self.pending.ports[RX][at];
            self.ports[port].is_pending[RX] = false;
            if let Some(Err(error)) = self.rx_rings[port].as_mut().map(|rx| rx.signal_driver()) {
                self.break_port(port, error);
            }
        }
        for at in 0..self.pending.ports[TX].len() {
            let port = self.pending.ports[TX][at];
            self.ports[port].is_pending[TX] = false;
            if let Some(Err(error)) = self.ports[port].tx.as_mut().map(|tx| tx.signal_driver()) {
                self.break_port(port, error);
            }
        }
    }

    /// [`Plane::notify`] where planes share the RX rings.
    fn notify_shared(&mut self) {
        for at in 0..self.pending.ports[RX].len() {
            let port = self.pending.ports[RX][at];
            self.ports[port].is_pending[RX] = false;
            // The senders' used indices were published at delivery.
            let notified = self.shared.ports[port]
                .rx
                .with(|rx| rx.as_mut().map_or(Ok(()), |rx| rx.publish_and_signal()));
            if let Err(error) = notified {
                self.break_port(port, error);
            }
        }
        for at in 0..self.pending.ports[TX].len() {
            let port = self.pending.ports[TX][at];
            self.ports[port].is_pending[TX] = false;
            if let Some(Err(error)) = self.ports[port].tx.as_mut().map(|tx| tx.publish_and_signal()) {
                self.break_port(port, error);
            }
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
