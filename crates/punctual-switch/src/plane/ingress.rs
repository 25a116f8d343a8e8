//! Frames from the rings to the discipline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_net::{Discipline, FlowId, InterfaceId, Packet};
use punctual_sched::{Duration, Instant};

use super::Plane;
use crate::frame::{self, FrameHead};
use crate::limits::{IN_FLIGHT_MAX, PORTS_MAX};
use crate::port_queue::{Route, Tag, id_of};
use crate::ring::Popped;
use crate::vlan::{EthernetHeader, Vlan};

/// Frames that are taken in before a decision at most, beside the head of each port.
const EXTRA_FRAMES_MAX: u32 = 3;

/// Less urgent ports that are looked at before a decision, in turns.
const ROTATION_PORTS: usize = 4;

impl<D: Discipline> Plane<D> {
    /// Takes frames in from the ports that are looked at now.
    #[inline(always)]
    pub(super) fn poll(&mut self) {
        let mut more = EXTRA_FRAMES_MAX;
        for at in 0..self.always_polled {
            let port = self.served[at];
            if self.ports[port].has_pending() {
                self.enqueue(port, &mut more);
            }
        }
        if self.always_polled < self.served.len() {
            self.poll_rotation(&mut more);
        }
    }

    /// The same, from ports that are not looked at each time.
    pub(super) fn poll_rotation(&mut self, more: &mut u32) {
        let rest = self.served.len() - self.always_polled;
        for _ in 0..rest.min(ROTATION_PORTS) {
            self.rotation = if self.rotation + 1 < rest { self.rotation + 1 } else { 0 };
            let port = self.served[self.always_polled + self.rotation];
            if self.ports[port].has_pending() {
                self.enqueue(port, more);
            }
        }
    }

    /// Takes frames in from a port that has room: one, and so many more.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, port: usize, more: &mut u32) {
        if self.shared.ports[port].broken.load(Ordering::Relaxed) {
            // Another plane found its receive ring broken.
            self.stop_tx(port);
            return;
        }
        while self.enqueue_one(port) && *more > 0 && self.ports[port].has_room() {
            *more -= 1;
        }
    }

    /// Takes a frame in from a port that has room for it. Was there one?
    #[inline(always)]
    pub(super) fn enqueue_one(&mut self, port: usize) -> bool {
        let local = &mut self.ports[port];
        let Some(send) = &mut local.send else { return false };
        let number = local.next;
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        match send.pop(&mut slot.chain) {
            Ok(Popped::Empty) => return false,
            Ok(Popped::Frame { bytes }) => {
                (slot.copies, slot.partly_delivered, slot.arrived) = (0, false, self.now);
                local.next = number.wrapping_add(1);
                let head = slot.chain.frame_head;
                if head.exceeds_mtu(self.shared.mtu, bytes) {
                    self.drop_frame(port, bytes, |drops| &mut drops.mtu);
                } else if self.vlans.is_some() {
                    self.forward_tagged(port, number, bytes);
                } else {
                    self.forward(port, number, bytes, &head, Vlan::default());
                }
            }
            Ok(Popped::Malformed) => {
                slot.copies = 0;
                local.next = number.wrapping_add(1);
                self.drop_frame(port, 0, |drops| &mut drops.malformed);
            }
            Err(broken) => {
                self.break_port(port, broken);
                return false;
            }
        }
        let local = &mut self.ports[port];
        if local.slots[number as usize % IN_FLIGHT_MAX].copies == 0 {
            // It never became a packet.
            let given = local.return_finished();
            self.after_return(port, given);
        }
        true
    }

    /// Gives a frame's packets to the discipline: one for each receiver.
    #[inline(always)]
    pub(super) fn forward(&mut self, port: usize, number: u32, bytes: u32, head: &FrameHead, vlan: Vlan) {
        match self.route(port, head, vlan) {
            Some(receiver) if receiver == port => {
                self.drop_frame(port, bytes, |drops| &mut drops.no_receiver)
            }
            Some(receiver) if !self.is_in(receiver, vlan) => {
                self.drop_frame(port, bytes, |drops| &mut drops.vlan);
            }
            Some(receiver) => self.arrive(port, number, receiver, bytes),
            None => self.flood(port, number, bytes, vlan),
        }
    }

    /// The port of a frame's receiver, if that is known. The table learns its sender.
    #[inline(always)]
    pub(super) fn route(&mut self, port: usize, head: &FrameHead, vlan: Vlan) -> Option<usize> {
        let Route { addresses, vlan: of, changes, until, receiver } = self.ports[port].route;
        let is_same = addresses == head.address_key() && of == vlan;
        if is_same && changes == self.shared.table.changes() && self.now < until {
            return Some(receiver);
        }
        self.learn_and_find(port, head, vlan)
    }

    #[inline(never)]
    pub(super) fn learn_and_find(&mut self, port: usize, head: &FrameHead, vlan: Vlan) -> Option<usize> {
        let (to, from) = frame::addresses(&head.ethernet_header());
        let table = &self.shared.table;
        table.learn(from, vlan, port, self.now);
        if to.is_group() {
            return None;
        }
        let changes = table.changes();
        let receiver = table.find(to, vlan)?;
        let second = Duration::from_secs(1);
        let until = Instant::ZERO + second * (self.now.since(Instant::ZERO).div_floor(second) + 1);
        self.ports[port].route = Route { addresses: head.address_key(), vlan, changes, until, receiver };
        Some(receiver)
    }

    /// As [`Plane::forward`], where there are VLANs.
    pub(super) fn forward_tagged(&mut self, port: usize, number: u32, bytes: u32) {
        let local = &self.ports[port];
        let Some(send) = &local.send else { return };
        let at = number as usize % IN_FLIGHT_MAX;
        let head = local.slots[at].chain.frame_head;
        let ethernet = head.ethernet_header();
        let tag = match ethernet.ends_with(&frame::TAGGED) {
            true if (bytes as usize) < frame::ETHERNET_BYTES + frame::TAG_BYTES => {
                return self.drop_frame(port, bytes, |drops| &mut drops.malformed);
            }
            true => send.vlan_tag(&local.slots[at].chain).map(Some),
            false => Ok(None),
        };
        let tag = match tag {
            Ok(tag) => tag,
            Err(broken) => return self.break_port(port, broken),
        };
        let vlan = self.vlans.as_ref().and_then(|filter| filter.classify(port, tag));
        let Some(vlan) = vlan else { return self.drop_frame(port, bytes, |drops| &mut drops.vlan) };
        self.ports[port].tags[at] = Tag { vlan, ethernet: EthernetHeader { bytes: ethernet, tag } };
        self.forward(port, number, bytes, &head, vlan);
    }

    /// A frame to all ports that have a VM.
    pub(super) fn flood(&mut self, port: usize, number: u32, bytes: u32, vlan: Vlan) {
        let local = &mut self.ports[port];
        if local.flood_bucket.check(self.now, 1).is_err() {
            return self.drop_frame(port, bytes, |drops| &mut drops.flood);
        }
        local.flood_bucket.consume(1);
        let shared = Arc::clone(&self.shared);
        let mut partly_delivered = false;
        for receiver in 0..shared.ports_used.load(Ordering::Acquire).min(self.ports.len()) {
            let may = receiver != port && self.is_in(receiver, vlan);
            if may && self.has_receiver(receiver) {
                partly_delivered = true;
                self.arrive(port, number, receiver, bytes);
            }
        }
        if !partly_delivered {
            self.drop_frame(port, bytes, |drops| &mut drops.no_receiver);
        }
    }

    /// Has a port a VM that receives?
    pub(super) fn has_receiver(&self, port: usize) -> bool {
        match self.rx_rings.get(port) {
            Some(ring) => ring.is_some(),
            None => self.shared.ports[port].rx.with(|ring| ring.is_some()),
        }
    }

    /// A frame that never becomes a packet.
    pub(super) fn drop_frame(
        &mut self,
        port: usize,
        bytes: u32,
        reason: impl FnOnce(&mut crate::stats::Drops) -> &mut u64,
    ) {
        let stats = &mut self.ports[port].stats;
        stats.sent.add(bytes);
        *reason(&mut stats.drops) += 1;
    }

    /// A packet arrives at the discipline.
    #[inline(always)]
    pub(super) fn arrive(&mut self, port: usize, number: u32, receiver: usize, bytes: u32) {
        let packet = Packet {
            id: id_of(port, number, receiver, self.ports[receiver].incarnation),
            flow: FlowId((port * PORTS_MAX + receiver) as u32),
            source: InterfaceId(port as u32),
            destination: InterfaceId(receiver as u32),
            bytes,
        };
        let local = &mut self.ports[port];
        local.stats.sent.add(bytes);
        match self.discipline.arrive(self.now, packet) {
            Ok(()) => {
                local.tx_backlog += 1;
                local.slots[number as usize % IN_FLIGHT_MAX].copies += 1;
                if let Some(checker) = &mut self.checker {
                    checker.arrived(&packet);
                }
            }
            Err(reason) => local.stats.drops.count(reason),
        }
    }
}
