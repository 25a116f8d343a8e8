//! From the TX rings of ports to the discipline: which frames are taken, and where they go.

use std::sync::Arc;

use punctual_net::{Discipline, FlowId, InterfaceId, Packet};
use punctual_sched::{Duration, Instant};

use super::Plane;
use crate::frame::{self, FrameHead};
use crate::limits::{IN_FLIGHT_MAX, PORTS_MAX};
use crate::narrow::to_u32;
use crate::port_queue::{Route, Tag, packet_id};
use crate::ring::Popped;
use crate::stats::Drops;
use crate::vlan::{EthernetHeader, Vlan};

/// Frames taken before a decision, beside the first of each polled port.
const EXTRA_FRAMES_MAX: u32 = 3;

/// Less urgent ports that are polled before a decision, in turns.
const ROTATION_PORTS: usize = 4;

impl<D: Discipline> Plane<D> {
    /// Takes frames from the ports whose turn it is.
    #[inline(always)]
    pub(super) fn poll(&mut self) {
        let mut extra = EXTRA_FRAMES_MAX;
        for at in 0..self.always_polled {
            let port = self.served[at];
            if self.ports[port].has_pending() {
                self.enqueue(port, &mut extra);
            }
        }
        if self.always_polled < self.served.len() {
            self.poll_rotation(&mut extra);
        }
    }

    /// Takes frames from the next [`ROTATION_PORTS`] of the ports that take turns.
    fn poll_rotation(&mut self, extra: &mut u32) {
        let rest = self.served.len() - self.always_polled;
        for _ in 0..rest.min(ROTATION_PORTS) {
            self.rotation = if self.rotation + 1 < rest { self.rotation + 1 } else { 0 };
            let port = self.served[self.always_polled + self.rotation];
            if self.ports[port].has_pending() {
                self.enqueue(port, extra);
            }
        }
    }

    /// Takes one frame from a port that has room, and up to `extra` more.
    #[inline(never)]
    fn enqueue(&mut self, port: usize, extra: &mut u32) {
        if self.shared.ports[port].life.is_broken() {
            // Another plane found the port's RX ring broken.
            self.stop_tx(port);
            return;
        }
        while self.enqueue_one(port) && *extra > 0 && self.ports[port].has_room() {
            *extra -= 1;
        }
    }

    /// Takes a frame from a port that has room for it. Returns whether there was one.
    #[inline(always)]
    fn enqueue_one(&mut self, port: usize) -> bool {
        let queue = &mut self.ports[port];
        debug_assert!(queue.has_room());
        let Some(tx) = &mut queue.tx else { return false };
        let number = queue.next;
        let slot = &mut queue.slots[number as usize % IN_FLIGHT_MAX];
        match tx.pop(&mut slot.chain) {
            Ok(Popped::Empty) => return false,
            Ok(Popped::Frame { bytes }) => {
                (slot.copies, slot.is_partly_delivered, slot.arrived) = (0, false, self.now);
                queue.next = number.wrapping_add(1);
                let head = slot.chain.frame_head;
                if head.exceeds_mtu(self.shared.mtu, bytes) {
                    self.drop_frame(port, bytes, |drops| &mut drops.mtu);
                } else if self.vlans.is_some() {
                    self.forward_tagged(port, number, bytes);
                } else {
                    self.forward(port, number, bytes, &head, (Vlan::default(), false));
                }
            }
            Ok(Popped::Malformed) => {
                slot.copies = 0;
                queue.next = number.wrapping_add(1);
                self.drop_frame(port, 0, |drops| &mut drops.malformed);
            }
            Err(error) => {
                self.break_port(port, error);
                return false;
            }
        }
        let queue = &mut self.ports[port];
        if queue.slots[number as usize % IN_FLIGHT_MAX].copies == 0 {
            // It never became a packet.
            let returned = queue.return_finished();
            self.after_return(port, returned);
        }
        true
    }

    /// Gives a frame's packets to the discipline, one for each receiver. `class`: its VLAN, and whether it
    /// has a second tag.
    #[inline(always)]
    fn forward(&mut self, port: usize, number: u32, bytes: u32, head: &FrameHead, class: (Vlan, bool)) {
        let (vlan, is_stacked) = class;
        match self.route(port, head, vlan) {
            Some(receiver) if receiver == port => {
                self.drop_frame(port, bytes, |drops| &mut drops.no_receiver);
            }
            Some(receiver) if !self.admits(receiver, vlan, is_stacked) => {
                self.drop_frame(port, bytes, |drops| &mut drops.vlan);
            }
            Some(receiver) => self.arrive(port, number, receiver, bytes),
            None => self.flood(port, number, bytes, class),
        }
    }

    /// The receiver's port, if it is known.
    #[inline(always)]
    fn route(&mut self, port: usize, head: &FrameHead, vlan: Vlan) -> Option<usize> {
        let Route { addresses, vlan: of, changes, until, receiver } = self.ports[port].route;
        let is_same = addresses == head.address_key() && of == vlan;
        if is_same && changes == self.shared.table.changes() && self.now < until {
            return Some(receiver);
        }
        self.learn_and_find(port, head, vlan)
    }

    /// Learns the sender's address, finds the receiver, and caches the route until the next full second, when
    /// the table must see the sender again.
    #[inline(never)]
    fn learn_and_find(&mut self, port: usize, head: &FrameHead, vlan: Vlan) -> Option<usize> {
        let (to, from) = frame::addresses(&head.ethernet_header());
        let table = &self.shared.table;
        table.learn(from, vlan, port, self.now);
        if to.is_group() {
            return None;
        }
        // Read before the entry: a change between the two makes the cached route stale, not wrong.
        let changes = table.changes();
        let receiver = table.find(to, vlan)?;
        let second = Duration::from_secs(1);
        let until = Instant::ZERO + second * (self.now.since(Instant::ZERO).div_floor(second) + 1);
        self.ports[port].route = Route { addresses: head.address_key(), vlan, changes, until, receiver };
        Some(receiver)
    }

    /// As [`Plane::forward`], in a network with VLANs.
    fn forward_tagged(&mut self, port: usize, number: u32, bytes: u32) {
        let queue = &self.ports[port];
        let Some(tx) = &queue.tx else { return };
        let at = number as usize % IN_FLIGHT_MAX;
        let head = queue.slots[at].chain.frame_head;
        let header = head.ethernet_header();
        let is_tagged = header.ends_with(&frame::TAGGED);
        if is_tagged && (bytes as usize) < frame::ETHERNET_BYTES + frame::TAG_BYTES {
            return self.drop_frame(port, bytes, |drops| &mut drops.malformed);
        }
        let tag = match is_tagged.then(|| tx.vlan_tag(&queue.slots[at].chain)).transpose() {
            Ok(tag) => tag,
            Err(error) => return self.break_port(port, error),
        };
        let vlan = self.vlans.as_ref().and_then(|filter| filter.classify(port, tag));
        let Some(vlan) = vlan else { return self.drop_frame(port, bytes, |drops| &mut drops.vlan) };
        let ethernet = EthernetHeader { bytes: header, tag };
        self.ports[port].tags[at] = Tag { vlan, ethernet };
        self.forward(port, number, bytes, &head, (vlan, ethernet.is_stacked()));
    }

    /// Sends a frame to all ports with an RX ring, within the port's rate for floods.
    fn flood(&mut self, port: usize, number: u32, bytes: u32, (vlan, is_stacked): (Vlan, bool)) {
        let queue = &mut self.ports[port];
        if queue.flood_bucket.check(self.now, 1).is_err() {
            return self.drop_frame(port, bytes, |drops| &mut drops.flood);
        }
        queue.flood_bucket.consume(1);
        let shared = Arc::clone(&self.shared);
        let mut has_receivers = false;
        for receiver in 0..shared.ports_used().min(self.ports.len()) {
            let may_receive = receiver != port && self.admits(receiver, vlan, is_stacked);
            if may_receive && self.has_rx_ring(receiver) {
                has_receivers = true;
                self.arrive(port, number, receiver, bytes);
            }
        }
        if !has_receivers {
            self.drop_frame(port, bytes, |drops| &mut drops.no_receiver);
        }
    }

    fn has_rx_ring(&self, port: usize) -> bool {
        match self.rx_rings.get(port) {
            Some(ring) => ring.is_some(),
            None => self.shared.ports[port].rx.with(|ring| ring.is_some()),
        }
    }

    /// Counts a frame that never becomes a packet.
    fn drop_frame(&mut self, port: usize, bytes: u32, reason: impl FnOnce(&mut Drops) -> &mut u64) {
        let stats = &mut self.ports[port].stats;
        stats.sent.add(bytes);
        *reason(&mut stats.drops) += 1;
    }

    /// Gives the discipline a packet for one receiver.
    #[inline(always)]
    fn arrive(&mut self, port: usize, number: u32, receiver: usize, bytes: u32) {
        let packet = Packet {
            id: packet_id(port, number, receiver, self.ports[receiver].incarnation),
            flow: FlowId(to_u32(port * PORTS_MAX + receiver)),
            source: InterfaceId(to_u32(port)),
            destination: InterfaceId(to_u32(receiver)),
            bytes,
        };
        let queue = &mut self.ports[port];
        queue.stats.sent.add(bytes);
        match self.discipline.arrive(self.now, packet) {
            Ok(()) => {
                queue.tx_backlog += 1;
                queue.slots[number as usize % IN_FLIGHT_MAX].copies += 1;
                if let Some(checker) = &mut self.checker {
                    checker.arrived(&packet);
                }
            }
            Err(reason) => queue.stats.drops.count(reason),
        }
    }
}
