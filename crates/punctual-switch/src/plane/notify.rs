//! Telling VMs.

use punctual_net::Discipline;
use punctual_sched::Instant;

use super::Plane;
use crate::limits::PORTS_MAX;
use crate::ring::{ReceiveRing, visible};
use crate::session::{RECEIVE, SEND};

/// Deliveries of which VMs are told together, at most.
pub(super) const TOLD_MAX: usize = 8;

/// Of what VMs were not told yet.
#[derive(Debug)]
pub(super) struct Untold {
    /// Ports that sent, and ports that received.
    pub(super) ports: [Vec<usize>; 2],
    /// Deliveries: the sender, and when the frame came.
    pub(super) deliveries: Vec<(usize, Instant)>,
    /// The most urgent of them has this urgency.
    pub(super) urgency: u64,
}

impl Untold {
    pub(super) fn new() -> Self {
        let none = || Vec::with_capacity(PORTS_MAX);
        Untold { ports: [none(), none()], deliveries: Vec::with_capacity(TOLD_MAX), urgency: u64::MAX }
    }
}

impl<D: Discipline> Plane<D> {
    /// Shows VMs what they sent and received, and tells those that want to hear.
    pub(super) fn tell(&mut self) {
        if self.untold.ports.iter().all(Vec::is_empty) {
            return;
        }
        match self.receivers.is_empty() {
            true => self.tell_with_locks(),
            false => self.tell_alone(),
        }
        if !self.untold.deliveries.is_empty() {
            self.look_at_clock();
            for &(port, came) in &self.untold.deliveries {
                self.ports[port].stats.latency.record(self.now.since(came));
            }
        }
        self.untold.ports.iter_mut().for_each(Vec::clear);
        self.untold.deliveries.clear();
        self.untold.urgency = u64::MAX;
    }

    /// As [`Plane::tell`], where the receive rings are the plane's own.
    pub(super) fn tell_alone(&mut self) {
        // Senders first: if the switch dies here, frames are lost rather than sent again by the next one.
        // Rings that are broken are noticed below.
        for &port in &self.untold.ports[SEND] {
            let _ = self.ports[port].send.as_mut().map(|send| send.show());
        }
        for &port in &self.untold.ports[RECEIVE] {
            let _ = self.receivers[port].as_mut().map(|ring| ring.show());
        }
        visible();
        for at in 0..self.untold.ports[RECEIVE].len() {
            let port = self.untold.ports[RECEIVE][at];
            self.ports[port].untold[RECEIVE] = false;
            if let Some(Err(broken)) = self.receivers[port].as_mut().map(|ring| ring.call()) {
                self.broke(port, broken);
            }
        }
        for at in 0..self.untold.ports[SEND].len() {
            let port = self.untold.ports[SEND][at];
            self.ports[port].untold[SEND] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.call()) {
                self.broke(port, broken);
            }
        }
    }

    /// As [`Plane::tell`], where planes share the receive rings.
    pub(super) fn tell_with_locks(&mut self) {
        for at in 0..self.untold.ports[RECEIVE].len() {
            let port = self.untold.ports[RECEIVE][at];
            self.ports[port].untold[RECEIVE] = false;
            // Senders were shown theirs when it was put there.
            let tell = |ring: &mut Option<Box<ReceiveRing>>| ring.as_mut().map_or(Ok(()), |ring| ring.tell());
            let told = self.shared.ports[port].receive.with(tell);
            if let Err(broken) = told {
                self.broke(port, broken);
            }
        }
        for at in 0..self.untold.ports[SEND].len() {
            let port = self.untold.ports[SEND][at];
            self.ports[port].untold[SEND] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.tell()) {
                self.broke(port, broken);
            }
        }
    }

    /// A port's VM has to hear of frames that it sent, or received.
    #[inline]
    pub(super) fn tell_later(&mut self, port: usize, queue: usize) {
        if !std::mem::replace(&mut self.ports[port].untold[queue], true) {
            self.untold.ports[queue].push(port);
        }
    }
}
