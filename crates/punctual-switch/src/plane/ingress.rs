//! Frames from the rings to the discipline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_net::{Discipline, FlowId, InterfaceId, Packet};
use punctual_sched::{Duration, Instant};

use super::Plane;
use crate::frame::{self, FirstBytes};
use crate::limits::{IN_FLIGHT_MAX, PORTS_MAX};
use crate::port_queue::{Route, Tag, id_of};
use crate::ring::Taken;
use crate::vlan::{Start, Vlan};

/// Frames that are taken in before a decision at most, beside the first of each port.
const TOGETHER_MAX: u32 = 3;

/// Less urgent ports that are looked at before a decision, in turns.
const ROTATION: usize = 4;

impl<D: Discipline> Plane<D> {
    /// Takes frames in from the ports that are looked at now.
    #[inline(always)]
    pub(super) fn look(&mut self) {
        let mut more = TOGETHER_MAX;
        for at in 0..self.always {
            let port = self.own[at];
            if self.ports[port].has_news() {
                self.take_in(port, &mut more);
            }
        }
        if self.always < self.own.len() {
            self.look_in_turn(&mut more);
        }
    }

    /// The same, from ports that are not looked at each time.
    pub(super) fn look_in_turn(&mut self, more: &mut u32) {
        let rest = self.own.len() - self.always;
        for _ in 0..rest.min(ROTATION) {
            self.turn = if self.turn + 1 < rest { self.turn + 1 } else { 0 };
            let port = self.own[self.always + self.turn];
            if self.ports[port].has_news() {
                self.take_in(port, more);
            }
        }
    }

    /// Takes frames in from a port that has room: one, and so many more.
    #[inline(never)]
    pub(super) fn take_in(&mut self, port: usize, more: &mut u32) {
        if self.shared.ports[port].broken.load(Ordering::Relaxed) {
            // Another plane found its receive ring broken.
            self.stop(port);
            return;
        }
        while self.take_one_in(port) && *more > 0 && self.ports[port].has_room() {
            *more -= 1;
        }
    }

    /// Takes a frame in from a port that has room for it. Was there one?
    #[inline(always)]
    pub(super) fn take_one_in(&mut self, port: usize) -> bool {
        let local = &mut self.ports[port];
        let Some(send) = &mut local.send else { return false };
        let number = local.next;
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        match send.take(&mut slot.chain) {
            Ok(Taken::Nothing) => return false,
            Ok(Taken::Frame { bytes }) => {
                (slot.copies, slot.reached, slot.came) = (0, false, self.now);
                local.next = number.wrapping_add(1);
                let first = slot.chain.first;
                if first.exceeds(self.shared.mtu, bytes) {
                    self.refuse(port, bytes, |drops| &mut drops.mtu);
                } else if self.vlans.is_some() {
                    self.forward_tagged(port, number, bytes);
                } else {
                    self.forward(port, number, bytes, &first, Vlan::default());
                }
            }
            Ok(Taken::Unfit) => {
                slot.copies = 0;
                local.next = number.wrapping_add(1);
                self.refuse(port, 0, |drops| &mut drops.malformed);
            }
            Err(broken) => {
                self.broke(port, broken);
                return false;
            }
        }
        let local = &mut self.ports[port];
        if local.slots[number as usize % IN_FLIGHT_MAX].copies == 0 {
            // It never became a packet.
            let given = local.give_back();
            self.note(port, given);
        }
        true
    }

    /// Gives a frame's packets to the discipline: one for each receiver.
    #[inline(always)]
    pub(super) fn forward(&mut self, port: usize, number: u32, bytes: u32, first: &FirstBytes, vlan: Vlan) {
        match self.route(port, first, vlan) {
            Some(receiver) if receiver == port => self.refuse(port, bytes, |drops| &mut drops.no_receiver),
            Some(receiver) if !self.is_in(receiver, vlan) => {
                self.refuse(port, bytes, |drops| &mut drops.vlan);
            }
            Some(receiver) => self.arrive(port, number, receiver, bytes),
            None => self.flood(port, number, bytes, vlan),
        }
    }

    /// The port of a frame's receiver, if that is known. The table learns its sender.
    #[inline(always)]
    pub(super) fn route(&mut self, port: usize, first: &FirstBytes, vlan: Vlan) -> Option<usize> {
        let Route { ends, vlan: of, changes, until, receiver } = self.ports[port].route;
        let is_same = ends == first.ends() && of == vlan;
        if is_same && changes == self.shared.table.changes() && self.now < until {
            return Some(receiver);
        }
        self.find_route(port, first, vlan)
    }

    #[inline(never)]
    pub(super) fn find_route(&mut self, port: usize, first: &FirstBytes, vlan: Vlan) -> Option<usize> {
        let (to, from) = frame::addresses(&first.start());
        let table = &self.shared.table;
        table.learn(from, vlan, port, self.now);
        if to.is_group() {
            return None;
        }
        let changes = table.changes();
        let receiver = table.find(to, vlan)?;
        let second = Duration::from_secs(1);
        let until = Instant::ZERO + second * (self.now.since(Instant::ZERO).div_floor(second) + 1);
        self.ports[port].route = Route { ends: first.ends(), vlan, changes, until, receiver };
        Some(receiver)
    }

    /// As [`Plane::forward`], where there are VLANs.
    pub(super) fn forward_tagged(&mut self, port: usize, number: u32, bytes: u32) {
        let local = &self.ports[port];
        let Some(send) = &local.send else { return };
        let at = number as usize % IN_FLIGHT_MAX;
        let first = local.slots[at].chain.first;
        let start = first.start();
        let tag = match start.ends_with(&frame::TAGGED) {
            true if (bytes as usize) < frame::ETHERNET_BYTES + frame::TAG_BYTES => {
                return self.refuse(port, bytes, |drops| &mut drops.malformed);
            }
            true => send.tag(&local.slots[at].chain).map(Some),
            false => Ok(None),
        };
        let tag = match tag {
            Ok(tag) => tag,
            Err(broken) => return self.broke(port, broken),
        };
        let vlan = self.vlans.as_ref().and_then(|filter| filter.of(port, tag));
        let Some(vlan) = vlan else { return self.refuse(port, bytes, |drops| &mut drops.vlan) };
        self.ports[port].tags[at] = Tag { vlan, start: Start { bytes: start, tag } };
        self.forward(port, number, bytes, &first, vlan);
    }

    /// A frame to all ports that have a VM.
    pub(super) fn flood(&mut self, port: usize, number: u32, bytes: u32, vlan: Vlan) {
        let local = &mut self.ports[port];
        if local.floods.check(self.now, 1).is_err() {
            return self.refuse(port, bytes, |drops| &mut drops.flood);
        }
        local.floods.consume(1);
        let shared = Arc::clone(&self.shared);
        let mut reached = false;
        for receiver in 0..shared.used.load(Ordering::Acquire).min(self.ports.len()) {
            let may = receiver != port && self.is_in(receiver, vlan);
            if may && self.receives(receiver) {
                reached = true;
                self.arrive(port, number, receiver, bytes);
            }
        }
        if !reached {
            self.refuse(port, bytes, |drops| &mut drops.no_receiver);
        }
    }

    /// Has a port a VM that receives?
    pub(super) fn receives(&self, port: usize) -> bool {
        match self.receivers.get(port) {
            Some(ring) => ring.is_some(),
            None => self.shared.ports[port].receive.with(|ring| ring.is_some()),
        }
    }

    /// A frame that never becomes a packet.
    pub(super) fn refuse(
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
                local.in_tx += 1;
                local.slots[number as usize % IN_FLIGHT_MAX].copies += 1;
                if let Some(checker) = &mut self.checker {
                    checker.came(&packet);
                }
            }
            Err(reason) => local.stats.drops.count(reason),
        }
    }
}
