//! From the TX rings of ports to the discipline: which frames are taken, and where they go.

use std::sync::Arc;

use punctual_net::{Discipline, FlowId, InterfaceId, Packet};
use punctual_sched::{Duration, Instant};

use super::Plane;
use super::polled::PolledRing;
use crate::frame::{self, Address, FrameHead};
use crate::limits::{IN_FLIGHT_MAX, PORTS_MAX};
use crate::narrow::to_u32;
use crate::port_queue::{PortQueue, Route, Tag, packet_id};
use crate::ring::{Popped, RxRing};
use crate::session::TX;
use crate::stats::Drops;
use crate::vlan::{EthernetHeader, Vlan};

/// Frames taken before a decision, beside the first of each polled port.
const EXTRA_FRAMES_MAX: u32 = 3;

/// Frames of a port with classes that are taken before a decision. So a look is not longer than one at eight
/// ports, and an urgent frame is seen after an eighth as many decisions as frames are before it in its ring.
const CLASS_FRAMES: u32 = 8;

/// Less urgent ports that are polled before a decision, in turns.
const ROTATION_PORTS: usize = 4;

/// Descriptors that a look reads; the port that goes beyond is the last one of the look.
const LOOK_DESCRIPTORS_MAX: u32 = 32;

/// Descriptors of a frame for which its port is not passed over, and bytes that permit one more.
const FRAME_DESCRIPTORS: u32 = 4;
const DESCRIPTOR_BYTES: u32 = 512;

/// A port is passed over for so many looks for each descriptor beyond those: a short frame in many pieces
/// takes a plane longer than one in a piece.
const LOOKS_PER_DESCRIPTOR: u32 = 8;

/// A port is passed over for so many looks after a frame that is dropped before the discipline. So a guest
/// whose frames reach nobody makes the plane work for them a small part of the time only, and a more urgent
/// frame usually finds it free.
const LOOKS_PER_DROP: u8 = 250;

/// For how many looks a port is passed over after a frame of so many descriptors and bytes.
fn looks_to_skip(descriptors: u8, bytes: u32) -> u8 {
    let permitted = FRAME_DESCRIPTORS + bytes / DESCRIPTOR_BYTES;
    let looks = u32::from(descriptors).saturating_sub(permitted) * LOOKS_PER_DESCRIPTOR;
    looks.try_into().unwrap_or(u8::MAX)
}

/// What is left to a look at the rings.
pub(super) struct Look {
    extra_frames: u32,
    descriptors: u32,
}

impl<D: Discipline> Plane<D> {
    /// Takes frames from the ports whose turn it is. If only one has any, and no packet waits, one frame is
    /// enough: it can cut through the stages.
    #[inline(always)]
    pub(super) fn poll(&mut self) {
        let mut look = Look { extra_frames: EXTRA_FRAMES_MAX, descriptors: LOOK_DESCRIPTORS_MAX };
        self.has_skipped = false;
        self.has_passed = false;
        debug_assert!(self.served.iter().all(|ring| ring.is_current(&self.ports[ring.port])));
        let mut found = self.next_pending(0);
        while let Some(at) = found {
            let next = self.next_pending(at + 1);
            self.is_sole = next.is_none() && self.inside == 0 && !self.has_passed;
            if self.is_sole {
                look.extra_frames = 0;
            }
            self.enqueue(at, &mut look);
            self.is_sole = false;
            if look.descriptors == 0 {
                self.has_skipped = true;
                return;
            }
            found = next;
        }
        if self.always_polled < self.served.len() {
            self.poll_rotation(&mut look);
        }
    }

    /// The first place from `start` on, among those that are always polled, whose port has a frame.
    #[inline(always)]
    fn next_pending(&self, start: usize) -> Option<usize> {
        let rings = self.served.get(start..self.always_polled)?;
        Some(start + rings.iter().position(PolledRing::has_pending)?)
    }

    /// Takes frames from the next [`ROTATION_PORTS`] of the ports that take turns. Looks on to the next frame
    /// if there was none, no packet waits, and no driver has to be notified.
    fn poll_rotation(&mut self, look: &mut Look) {
        let rest = self.served.len() - self.always_polled;
        let is_busy = self.inside > 0 || self.has_passed || self.pending.has_deliveries();
        let (mut polled, mut is_idle) = (0, !is_busy);
        loop {
            let most = if is_idle { rest } else { rest.min(ROTATION_PORTS) };
            if polled >= most {
                return;
            }
            let next = &self.served[self.always_polled + self.rotation..];
            let next = &next[..next.len().min(most - polled)];
            let found = next.iter().position(PolledRing::has_pending);
            let passed = found.map_or(next.len(), |found| found + 1);
            let last = self.always_polled + self.rotation + passed - 1;
            polled += passed;
            let rotation = self.rotation + passed;
            self.rotation = if rotation < rest { rotation } else { 0 };
            if found.is_some() {
                is_idle = false;
                self.enqueue(last, look);
                if look.descriptors == 0 {
                    self.has_skipped = true;
                    return;
                }
            }
        }
    }

    /// Takes one frame from a port that has room, and more within the look. A frame that is unfit for the
    /// discipline counts as the port's turn.
    #[inline(never)]
    fn enqueue(&mut self, at: usize, look: &mut Look) {
        let PolledRing { port, .. } = self.served[at];
        if self.shared.ports[port].life.is_broken() {
            // Another plane found the port's RX ring broken.
            self.stop_tx(port);
            return;
        }
        if self.ports[port].looks_to_skip > 0 {
            self.ports[port].looks_to_skip -= 1;
            self.has_skipped = true;
            return;
        }
        if !self.served[at].is_plain() && self.enqueue_classes(at, look) {
            return;
        }
        while self.enqueue_one(port, look)
            && look.extra_frames > 0
            && self.ports[port].looks_to_skip == 0
            && self.ports[port].has_room()
        {
            look.extra_frames -= 1;
        }
        self.update_polled(port);
    }

    /// Takes several frames from a port with classes: an urgent one may be behind others, which it overtakes
    /// in the discipline. None passes at once for the same reason. `false`: the port has no classes.
    #[inline(never)]
    fn enqueue_classes(&mut self, at: usize, look: &mut Look) -> bool {
        let port = self.served[at].port;
        if self.served[at].kicks() {
            self.disable_kick(at);
        }
        if !self.served[at].has_classes() {
            return false;
        }
        self.is_sole = false;
        for _ in 0..CLASS_FRAMES {
            let is_fit = self.enqueue_one(port, look);
            let queue = &self.ports[port];
            if !is_fit || queue.looks_to_skip > 0 || !queue.has_room() || look.descriptors == 0 {
                break;
            }
        }
        self.update_polled(port);
        true
    }

    /// Lets a driver skip kicks. A driver with `VIRTIO_F_EVENT_IDX` kicks once by itself.
    #[cold]
    fn disable_kick(&mut self, at: usize) {
        let port = self.served[at].port;
        self.served[at].set_kicks(false);
        if let Some(Err(error)) = self.ports[port].tx.as_mut().map(|tx| tx.disable_kick()) {
            self.break_port(port, error);
        }
    }

    /// Takes a frame from a port that has room for it. Returns whether there was one that is fit.
    #[inline(always)]
    fn enqueue_one(&mut self, port: usize, look: &mut Look) -> bool {
        let queue = &mut self.ports[port];
        debug_assert!(queue.has_room());
        let Some(tx) = &mut queue.tx else { return false };
        let number = queue.next;
        let slot = &mut queue.slots[number as usize % IN_FLIGHT_MAX];
        let popped = tx.pop(&mut slot.chain);
        if popped == Ok(Popped::Empty) {
            return false;
        }
        let descriptors = slot.chain.descriptors();
        look.descriptors = look.descriptors.saturating_sub(descriptors.into());
        queue.looks_to_skip = match popped {
            Ok(Popped::Frame { bytes }) => looks_to_skip(descriptors, bytes),
            _ => 0,
        };
        match popped {
            Ok(Popped::Empty) => {}
            Ok(Popped::Frame { bytes }) => {
                (slot.copies, slot.is_partly_delivered, slot.arrived) = (0, false, self.now);
                queue.next = number.wrapping_add(1);
                let head = slot.chain.frame_head;
                if head.exceeds_mtu(self.shared.mtu, bytes) {
                    self.drop_frame(port, bytes, |drops| &mut drops.mtu);
                } else if queue.reads_tag {
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
            if queue.return_finished() {
                self.queue_notify(port, TX);
            }
        }
        popped != Ok(Popped::Malformed)
    }

    /// Gives a frame's packets to the discipline, one for each receiver. `class`: its VLAN, and whether it
    /// has a second tag.
    #[inline(always)]
    fn forward(&mut self, port: usize, number: u32, bytes: u32, head: &FrameHead, class: (Vlan, bool)) {
        let (vlan, is_stacked) = class;
        match self.route(port, head, vlan) {
            Some(receiver) if receiver == self.ports[port].home => {
                self.drop_frame(port, bytes, |drops| &mut drops.no_receiver);
            }
            Some(receiver) if !self.admits(receiver, vlan, is_stacked) => {
                self.drop_frame(port, bytes, |drops| &mut drops.vlan);
            }
            Some(receiver) if self.passes(port, number, receiver, bytes) => {}
            Some(receiver) => self.arrive(port, number, receiver, bytes),
            None => self.flood(port, number, bytes, frame::addresses(&head.ethernet_header()).0, class),
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
        table.learn(from, vlan, self.ports[port].home, self.now);
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

    /// As [`Plane::forward`], in a network with VLANs and from a port with classes.
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
        if self.ports[port].has_classes {
            self.ports[port].classify(tag);
        }
        let Some(filter) = &self.vlans else {
            return self.forward(port, number, bytes, &head, (Vlan::default(), false));
        };
        let Some(vlan) = filter.classify(port, tag) else {
            return self.drop_frame(port, bytes, |drops| &mut drops.vlan);
        };
        let ethernet = EthernetHeader { bytes: header, tag };
        self.ports[port].tags[at] = Tag { vlan, ethernet };
        self.forward(port, number, bytes, &head, (vlan, ethernet.is_stacked()));
    }

    /// Does the frame go to the members of a group only? An uplink sends to the groups of all.
    fn is_for_members(&self, port: usize, to: Address) -> bool {
        let sender = &self.ports[port].membership;
        let has = |queue: &PortQueue| queue.membership.has(to);
        to.is_group() && (sender.has(to) || sender.is_uplink && self.ports.iter().any(has))
    }

    /// Sends a frame to all ports with an RX ring, within the port's rate for floods, or to the members of
    /// its group.
    fn flood(&mut self, port: usize, number: u32, bytes: u32, to: Address, (vlan, is_stacked): (Vlan, bool)) {
        let is_for_members = self.is_for_members(port, to);
        let queue = &mut self.ports[port];
        if !is_for_members {
            if queue.flood_bucket.check(self.now, 1).is_err() {
                return self.drop_frame(port, bytes, |drops| &mut drops.flood);
            }
            queue.flood_bucket.consume(1);
        }
        let shared = Arc::clone(&self.shared);
        let mut has_receivers = false;
        for receiver in 0..shared.ports_used().min(self.ports.len()) {
            // A class of an uplink receives nothing.
            let is_other = receiver != self.ports[port].home && self.ports[receiver].home == receiver;
            let membership = &self.ports[receiver].membership;
            let is_member = membership.is_uplink || membership.has(to);
            let may_receive =
                is_other && (is_member || !is_for_members) && self.admits(receiver, vlan, is_stacked);
            let Some(has_room) = may_receive.then(|| self.has_room_for_flood(receiver)).flatten() else {
                continue;
            };
            has_receivers = true;
            if has_room || is_for_members {
                self.arrive(port, number, receiver, bytes);
            } else {
                self.drop_frame(port, bytes, |drops| &mut drops.destination_ring);
            }
        }
        if !has_receivers {
            self.drop_frame(port, bytes, |drops| &mut drops.no_receiver);
        }
    }

    /// May a flooded frame go to this port? `None`: it has no RX ring.
    fn has_room_for_flood(&mut self, port: usize) -> Option<bool> {
        // The delivery of a frame finds a broken ring again, and reports it.
        let has_room = |ring: &mut RxRing| ring.has_room_for_flood().unwrap_or(true);
        match self.rx_rings.get_mut(port) {
            Some(ring) => ring.as_deref_mut().map(has_room),
            None => self.shared.ports[port].rx.with(|ring| ring.as_deref_mut().map(has_room)),
        }
    }

    /// Counts a frame that never becomes a packet. Its port is passed over for a while.
    fn drop_frame(&mut self, port: usize, bytes: u32, reason: impl FnOnce(&mut Drops) -> &mut u64) {
        let queue = &mut self.ports[port];
        queue.stats.sent.add(bytes);
        *reason(&mut queue.stats.drops) += 1;
        queue.looks_to_skip = queue.looks_to_skip.max(LOOKS_PER_DROP);
    }

    #[inline(always)]
    fn packet(&self, port: usize, number: u32, receiver: usize, bytes: u32) -> Packet {
        let source = self.ports[port].source;
        Packet {
            id: packet_id(port, number, receiver, self.ports[receiver].incarnation),
            flow: FlowId(source.0 * to_u32(PORTS_MAX) + to_u32(receiver)),
            source,
            destination: InterfaceId(to_u32(receiver)),
            bytes,
        }
    }

    /// Lets a frame for one receiver pass all stages, if no packet and no other port's frame waits; `false`:
    /// it arrives as usual, as in networks with VLANs and in planes that share RX rings.
    #[inline(always)]
    fn passes(&mut self, port: usize, number: u32, receiver: usize, bytes: u32) -> bool {
        if !self.is_sole || !self.cuts_through || self.vlans.is_some() || self.rx_rings.is_empty() {
            return false;
        }
        let packet = self.packet(port, number, receiver, bytes);
        self.report_buffers(packet.destination);
        let Some(fate) = self.discipline.pass(self.now, &packet) else { return false };
        self.ports[port].stats.sent.add(bytes);
        self.has_passed = true;
        self.carry(&packet, fate);
        true
    }

    /// Gives the discipline a packet for one receiver.
    #[inline(always)]
    fn arrive(&mut self, port: usize, number: u32, receiver: usize, bytes: u32) {
        let packet = self.packet(port, number, receiver, bytes);
        let queue = &mut self.ports[port];
        if queue.has_classes {
            return self.arrive_of_class(port, number, &packet);
        }
        queue.stats.sent.add(bytes);
        match self.discipline.arrive(self.now, packet) {
            Ok(()) => self.has_arrived(port, number, &packet),
            Err(reason) => queue.stats.drops.count(reason),
        }
    }

    /// As [`Plane::arrive`], from a port with classes: the counters are those of the packet's.
    #[inline(never)]
    fn arrive_of_class(&mut self, port: usize, number: u32, packet: &Packet) {
        let stats = &mut self.ports[packet.source.index()].stats;
        stats.sent.add(packet.bytes);
        match self.discipline.arrive(self.now, *packet) {
            Ok(()) => self.has_arrived(port, number, packet),
            Err(reason) => stats.drops.count(reason),
        }
    }

    /// The discipline has taken a packet.
    #[inline(always)]
    fn has_arrived(&mut self, port: usize, number: u32, packet: &Packet) {
        let queue = &mut self.ports[port];
        queue.tx_backlog += 1;
        queue.slots[number as usize % IN_FLIGHT_MAX].copies += 1;
        self.inside += 1;
        if let Some(checker) = &mut self.checker {
            checker.arrived(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use punctual_net::{InterfaceParams, registry};
    use punctual_sched::registry::Options;
    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::driver::{self, DESC_BYTES, DESC_F_NEXT, Queue};
    use crate::features;
    use crate::lock::PiMutex;
    use crate::mailbox::Mailbox;
    use crate::memory::Memory;
    use crate::plane::PlaneHandles;
    use crate::protocol::Region;
    use crate::ring::{TxRing, VringConfig};
    use crate::shared::{Shared, SharedPort};
    use crate::table::{PortKind, Table};

    const ENTRIES: u16 = 256;

    /// A TX ring in which every entry is available and begins a chain of this many descriptors of this
    /// length, without an end.
    fn full_ring(descriptors: u16, bytes: u32) -> TxRing {
        ring(ENTRIES, descriptors, bytes)
    }

    /// The same with this many available entries.
    fn ring(available: u16, descriptors: u16, bytes: u32) -> TxRing {
        let (mut queue, end) = Queue::new(0, ENTRIES, 2048, 4096).expect("a queue");
        let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        File::from(file.try_clone().expect("a file")).set_len(end).expect("long enough");
        let region = Region { guest_address: 0, bytes: end, user_address: 0, offset: 0, file };
        let memory = Arc::new(Memory::map(vec![region]).expect("mapped"));
        for head in 0..available {
            let place = queue.descriptors + u64::from(head) * DESC_BYTES;
            let flags = if descriptors > 1 { DESC_F_NEXT } else { 0 };
            let next = (head + 1) % ENTRIES;
            driver::write_descriptor(&memory.guest, place, queue.buffer(head), bytes, flags, next)
                .expect("written");
            let index = queue.push_avail(&memory.guest, head).expect("written");
            queue.publish_avail(&memory.guest, index, false).expect("written");
        }
        // A frame to a group address, which no port receives.
        memory.guest.write_slice(&[0xff; 64], GuestAddress(queue.buffer(0))).expect("written");
        let config = VringConfig {
            memory,
            size: ENTRIES,
            desc_table: queue.descriptors,
            avail_ring: queue.avail,
            used_ring: queue.used,
            features: features::OFFERED,
            features_assumed: false,
            kick: Arc::new(queue.kick),
            call: None,
            err: None,
        };
        TxRing::new(&config).expect("a ring")
    }

    /// A plane that serves ports with these rings.
    fn plane(rings: Vec<TxRing>) -> Plane<Box<dyn Discipline>> {
        let mailbox = Arc::new(Mailbox::new().expect("a mailbox"));
        let shared = Shared {
            ports: (0..PORTS_MAX).map(|_| SharedPort::default()).collect(),
            ports_used: rings.len().into(),
            table: Table::new(&vec![PortKind::Vm; rings.len()]),
            mtu: u32::MAX,
            start: std::time::Instant::now(),
            notices: std::sync::Mutex::default(),
            broken_event: crate::sys::eventfd().expect("an event"),
            spent: PiMutex::default(),
            sole_plane: Some(Arc::clone(&mailbox)),
        };
        let handles = PlaneHandles { shared: Arc::new(shared), mailbox, plane_budget: None, vlans: None };
        let rtca = registry::find("rtca").expect("a discipline");
        let mut discipline = (rtca.build)(&Options::new()).expect("built");
        let params = vec![InterfaceParams { priority: Some(1), ..InterfaceParams::default() }; rings.len()];
        for params in &params {
            discipline.attach(Instant::ZERO, params).expect("attached");
        }
        let mut plane = Plane::new(handles, discipline, |_| true, &params).expect("a plane");
        for (port, ring) in rings.into_iter().enumerate() {
            plane.command(crate::mailbox::Command::StartTx { port, ring: Box::new(ring) });
        }
        plane
    }

    fn unfit(plane: &Plane<Box<dyn Discipline>>) -> Vec<u64> {
        plane.ports.iter().map(|port| port.stats.drops.malformed).collect()
    }

    /// Looks from one unfit frame of a port to the next.
    const LOOKS_PER_TURN: u64 = LOOKS_PER_DROP as u64 + 1;

    #[test]
    fn an_unfit_frame_is_the_turn_of_its_port_which_is_passed_over_then() {
        let mut plane = plane(vec![full_ring(1, 9)]);
        for looks in 1..=10 * LOOKS_PER_TURN {
            plane.poll();
            assert_eq!(unfit(&plane), [looks.div_ceil(LOOKS_PER_TURN)]);
            assert_eq!(plane.has_skipped, looks % LOOKS_PER_TURN != 1, "there is more to do");
        }
    }

    #[test]
    fn a_frame_in_more_pieces_than_its_length_needs_costs_looks() {
        // One buffer, a header and data, and a segment of 64 KiB in pages.
        for (descriptors, bytes) in [(1, 64), (2, 64), (4, 60), (18, 65_536), (24, 65_536)] {
            assert_eq!(looks_to_skip(descriptors, bytes), 0, "{bytes} bytes");
        }
        assert_eq!([looks_to_skip(5, 64), looks_to_skip(19, 64), looks_to_skip(24, 1_514)], [8, 120, 144]);
        assert_eq!(looks_to_skip(u8::MAX, 0), u8::MAX);
    }

    #[test]
    fn a_look_is_bounded_in_descriptors_and_every_port_has_its_turn() {
        let mut plane = plane((0..8).map(|_| full_ring(ENTRIES, 1)).collect());
        let mut before = 0;
        for _ in 0..10 * LOOKS_PER_TURN {
            plane.poll();
            let sum: u64 = unfit(&plane).iter().sum();
            assert!(sum - before <= 2, "{} long chains in one look", sum - before);
            before = sum;
        }
        assert!(unfit(&plane).iter().all(|unfit| *unfit >= 9), "{:?}", unfit(&plane));
    }

    #[test]
    fn a_look_finds_the_only_frame_of_many_ports() {
        for port in [0, 7, 8, 11, 12, 199] {
            let rings = (0..200).map(|at| ring(u16::from(at == port), 1, 64));
            let mut plane = plane(rings.collect());
            assert!(plane.has_pending());
            plane.poll();
            let sent: Vec<_> = plane.ports.iter().map(|port| port.stats.sent.packets).collect();
            assert_eq!((sent[port], sent.iter().sum::<u64>()), (1, 1), "port {port}");
            assert!(!plane.has_pending());
        }
    }

    #[test]
    fn a_driver_is_asked_once_to_kick_until_its_next_frame() {
        let mut plane = plane((0..20).map(|_| ring(1, 1, 64)).collect());
        let asked = |plane: &Plane<_>| plane.served.iter().filter(|ring| ring.kicks()).count();
        assert!(plane.enable_kicks(), "frames are there");
        assert_eq!(asked(&plane), 20);
        assert!(plane.enable_kicks(), "they still are");
        plane.poll();
        assert_eq!(asked(&plane), 20 - 12, "eight ports are polled always, and four in turn");
        while plane.has_pending() {
            plane.poll();
        }
        assert_eq!(asked(&plane), 0);
        assert!(!plane.enable_kicks());
        assert_eq!(asked(&plane), 20);
    }

    #[test]
    fn empty_descriptors_end_a_frame() {
        let mut plane = plane(vec![full_ring(ENTRIES, 0)]);
        (0..10 * LOOKS_PER_TURN).for_each(|_| plane.poll());
        assert_eq!(unfit(&plane), [10]);
    }
}
