//! What follows when a step of a kernel is over, and the way over links.

use punctual_jobs::flow::SEND_QUEUE_MAX;
use punctual_model::results::Segment;
use punctual_net::event_channel::Port;
use punctual_net::{DropReason, Fate, FlowId, Stage, Step};
use punctual_sched::{Duration, Instant};

use super::clock::Timed;
use super::{End, Lost, State, Work};
use crate::index::KernelIx;
use crate::machine::Machine;
use crate::observe::{Event, Observer, PacketEvent};

impl<O: Observer> Machine<'_, O> {
    pub(super) fn work_done(&mut self, kernel: KernelIx, work: Work) {
        match work {
            Work::None => {}
            Work::Event(port) => self.event_handled(kernel, port),
            Work::Carry(step) => self.carried(kernel, step),
            Work::Receive { interface } => self.guest_received(interface),
            Work::Send { interface, packet } => self.guest_sent(interface, packet),
        }
    }

    // ---- guests -------------------------------------------------------------------------------------

    /// A packet joins the queue in front of its interface's TX ring, at its end, or among the answers.
    pub(super) fn guest_sends(&mut self, ix: u32, packet: u32, soft: bool) {
        let interface = &mut self.net.interfaces[ix as usize];
        let queue = if soft { &mut interface.soft } else { &mut interface.sends };
        if queue.len() >= SEND_QUEUE_MAX {
            return self.lose(packet, Lost::SendQueue);
        }
        queue.push_back(packet);
        let kernel = interface.kernel;
        if !interface.blocked {
            self.kick(kernel);
        }
    }

    /// The packet is in the TX ring.
    fn guest_sent(&mut self, ix: u32, packet: u32) {
        let now = self.now;
        self.net.packets.stamp(packet, Segment::GuestSend, now);
        let interface = &mut self.net.interfaces[ix as usize];
        let bridge = &mut self.net.bridges[interface.bridge as usize];
        let driver = bridge.kernel;
        if !interface.classes.is_empty() {
            interface.in_order.push_back((packet, false));
        }
        if interface.in_tx > 0 && interface.posted.is_empty() {
            // Netback looks into the ring again before it rests.
            self.enter_tx(ix, packet);
            self.kick(driver);
        } else {
            interface.posted.push_back(packet);
            if bridge.channels.send(interface.port) {
                self.kick(driver);
            }
        }
        self.after_send(packet);
    }

    /// Netback sees the packet in the guest's TX ring.
    fn enter_tx(&mut self, ix: u32, packet: u32) {
        let now = self.now;
        self.net.packets.stamp(packet, Segment::DriverWait, now);
        let seen = self.packet_for_discipline(packet);
        let interface = &mut self.net.interfaces[ix as usize];
        let bridge = &mut self.net.bridges[interface.bridge as usize];
        interface.in_tx += 1;
        if let Err(reason) = bridge.discipline.arrive(now, seen) {
            // The ring had room when the packet was sent.
            debug_assert!(false, "a ring with room refused a packet: {reason:?}");
            interface.passed_tx(packet);
            self.lose(packet, Lost::SendQueue);
        }
    }

    /// The first packet of the RX ring has been received.
    fn guest_received(&mut self, ix: u32) {
        let now = self.now;
        let interface = &mut self.net.interfaces[ix as usize];
        let Some(packet) = interface.received.pop_front() else { return };
        interface.seen = interface.seen.saturating_sub(1);
        let unread = interface.received.len() as u32;
        let (bridge, id) = (interface.bridge as usize, interface.id);
        self.net.bridges[bridge].discipline.set_unread(id, unread);
        self.net.packets.stamp(packet, Segment::GuestReceive, now);
        self.delivered(packet);
    }

    // ---- the driver domain --------------------------------------------------------------------------

    fn event_handled(&mut self, kernel: KernelIx, port: Port) {
        let Some(bridge_ix) = self.net.kernels[kernel].bridge.map(|ix| ix as usize) else { return };
        let bridge = &mut self.net.bridges[bridge_ix];
        bridge.events_handled += 1;
        let owner = bridge.owner_of_port[port.0 as usize];
        match owner {
            None => {
                while let Some(packet) = self.net.bridges[bridge_ix].in_card.pop_front() {
                    self.enter_softnet(bridge_ix, packet);
                }
            }
            Some(owner) => {
                while let Some(packet) = self.net.interfaces[owner as usize].posted.pop_front() {
                    self.enter_tx(owner, packet);
                }
            }
        }
    }

    /// The driver domain takes the packet out of the card.
    fn enter_softnet(&mut self, bridge: usize, packet: u32) {
        let now = self.now;
        self.net.packets.stamp(packet, Segment::DriverWait, now);
        let seen = self.packet_for_discipline(packet);
        let bridge = &mut self.net.bridges[bridge];
        match bridge.discipline.arrive(now, seen) {
            Ok(()) => bridge.polled += 1,
            Err(DropReason::Softnet) => self.lose(packet, Lost::Softnet),
            Err(_) => self.lose(packet, Lost::Card),
        }
    }

    fn packet_for_discipline(&self, packet: u32) -> punctual_net::Packet {
        let p = &self.net.packets[packet];
        let lane = &self.net.lanes[p.lane as usize];
        punctual_net::Packet {
            id: packet.into(),
            flow: FlowId(p.lane),
            source: lane.source,
            destination: lane.destination,
            bytes: p.bytes,
        }
    }

    fn carried(&mut self, kernel: KernelIx, step: Step) {
        let now = self.now;
        let event_part = self.net.kernels[kernel].event_part;
        let Some(bridge_ix) = self.net.kernels[kernel].bridge.map(|ix| ix as usize) else { return };
        let packet = step.packet.id as u32;
        let bridge = &mut self.net.bridges[bridge_ix];
        let fate = bridge.discipline.complete(now);
        bridge.carried[step.stage as usize] += 1;
        match step.stage {
            Stage::Tx => {
                let ix = bridge.interface_of_id[step.packet.source.index()];
                self.net.packets.stamp(packet, Segment::Tx, now);
                if let Some(ix) = ix {
                    self.left_tx(ix, packet);
                }
            }
            Stage::Softnet => {
                bridge.polled -= u32::from(bridge.is_card(step.packet.source));
                self.net.packets.stamp(packet, Segment::Softnet, now);
            }
            Stage::Rx => {
                let done = Instant::from_ns(now.as_ns() - event_part.as_ns());
                self.net.packets.stamp(packet, Segment::Rx, done);
                self.net.packets.stamp(packet, Segment::EventDelivery, now);
            }
        }
        match fate {
            Fate::Queued(_) => {}
            Fate::Dropped(DropReason::Softnet) => self.lose(packet, Lost::Softnet),
            Fate::Dropped(_) => self.lose(packet, Lost::Destination),
            Fate::Delivered if step.stage == Stage::Rx => {
                let bridge = &self.net.bridges[bridge_ix];
                if let Some(to) = bridge.interface_of_id[step.packet.destination.index()] {
                    self.fill_rx_ring(to, packet);
                }
            }
            Fate::Delivered => self.onto_link(bridge_ix, packet),
        }
    }

    /// A slot of the guest's TX ring is free; a guest that waits for one hears of it when half of the ring
    /// is.
    fn left_tx(&mut self, ix: u32, packet: u32) {
        let interface = &mut self.net.interfaces[ix as usize];
        interface.passed_tx(packet);
        if !interface.blocked {
            return;
        }
        let bridge = &mut self.net.bridges[interface.bridge as usize];
        if 2 * interface.room(&*bridge.discipline) >= interface.ring_slots {
            interface.blocked = false;
            bridge.events_sent += 1;
            let kernel = interface.kernel;
            self.kick(kernel);
        }
    }

    /// The packet is in the guest's RX ring.
    fn fill_rx_ring(&mut self, ix: u32, packet: u32) {
        let interface = &mut self.net.interfaces[ix as usize];
        interface.received.push_back(packet);
        let unread = interface.received.len() as u32;
        let bridge = &mut self.net.bridges[interface.bridge as usize];
        bridge.discipline.set_unread(interface.id, unread);
        let kernel = &self.net.kernels[interface.kernel];
        if kernel.powered {
            let executes = match kernel.state {
                State::Idle => self.procs[kernel.proc].exec_from,
                _ => kernel.from,
            };
            self.net.packets.stamp(packet, Segment::VcpuWait, executes.max(self.now));
            interface.seen = interface.received.len();
        }
        if !interface.polling {
            interface.polling = true;
            interface.interrupt = true;
            bridge.events_sent += 1;
            let kernel = interface.kernel;
            self.kick(kernel);
        }
    }

    // ---- links --------------------------------------------------------------------------------------

    /// The packet leaves through the network card.
    fn onto_link(&mut self, bridge: usize, packet: u32) {
        let now = self.now;
        let (bytes, lane) = (self.net.packets[packet].bytes, self.net.packets[packet].lane);
        let End::Outside { host, .. } = self.net.lanes[lane as usize].to else { return };
        let bridge = &mut self.net.bridges[bridge];
        let time = bridge.wire_time(bytes);
        let starts = now.max(bridge.outward_free_at);
        // The card holds as many packets as its ring has slots, here of this length.
        if starts.since(now) > time * u64::from(bridge.nic.ring_slots) {
            return self.lose(packet, Lost::Card);
        }
        bridge.outward_free_at = starts + time;
        let delay = bridge.nic.delay + bridge.outside[host as usize].delay;
        let arrives = bridge.outward_free_at + delay;
        self.net.clock.set(arrives, Timed::Outside { packet });
    }

    /// A host outside sends the packet.
    pub(super) fn outside_sends(&mut self, packet: u32) {
        let now = self.now;
        let (bytes, lane) = (self.net.packets[packet].bytes, self.net.packets[packet].lane);
        let End::Outside { bridge, host } = self.net.lanes[lane as usize].from else { return };
        let bridge = &mut self.net.bridges[bridge as usize];
        let reaches = now + bridge.outside[host as usize].delay;
        bridge.inward_free_at = reaches.max(bridge.inward_free_at) + bridge.wire_time(bytes);
        let arrives = bridge.inward_free_at + bridge.nic.delay;
        self.net.clock.set(arrives, Timed::Card { packet });
    }

    /// The packet arrives at the network card.
    pub(super) fn reach_card(&mut self, packet: u32) {
        let now = self.now;
        self.net.packets.stamp(packet, Segment::Link, now);
        let lane = self.net.packets[packet].lane;
        let End::Outside { bridge: ix, .. } = self.net.lanes[lane as usize].from else { return };
        let bridge = &mut self.net.bridges[ix as usize];
        let driver = bridge.kernel;
        if bridge.in_card.len() as u32 + bridge.polled >= bridge.nic.ring_slots {
            return self.lose(packet, Lost::Card);
        }
        if bridge.polled > 0 && bridge.in_card.is_empty() {
            self.enter_softnet(ix as usize, packet);
            self.kick(driver);
        } else {
            bridge.in_card.push_back(packet);
            let port = bridge.card_port;
            if bridge.channels.send(port) {
                self.kick(driver);
            }
        }
    }

    /// The packet arrives at a host outside.
    pub(super) fn at_outside(&mut self, packet: u32) {
        let now = self.now;
        self.net.packets.stamp(packet, Segment::Link, now);
        self.delivered(packet);
    }

    /// What happens by itself at this instant.
    pub(crate) fn network_events(&mut self) {
        while let Some(timed) = self.net.clock.due(self.now) {
            if self.now >= self.end {
                // Nothing that begins at the end could show.
                continue;
            }
            self.events += 1;
            match timed {
                Timed::Next { flow } => self.flow_next(flow),
                Timed::Timeout { flow } => self.request_timeout(flow),
                Timed::Silence { flow } => self.stream_silence(flow),
                Timed::AckDelay { flow } => self.stream_ack_delay(flow),
                Timed::Leave { packet } => self.outside_sends(packet),
                Timed::Card { packet } => self.reach_card(packet),
                Timed::Outside { packet } => self.at_outside(packet),
                Timed::Credit { bridge } => {
                    let bridge = &mut self.net.bridges[bridge as usize];
                    if bridge.credit_at <= self.now {
                        bridge.credit_at = Instant::NEVER;
                    }
                    let kernel = bridge.kernel;
                    self.kick(kernel);
                }
            }
        }
    }

    pub(super) fn lose(&mut self, packet: u32, why: Lost) {
        let lane = self.net.packets[packet].lane;
        let owner = self.net.lanes[lane as usize].owner;
        let tally = self.net.tally(owner);
        let dropped = &mut tally.packets.dropped;
        *match why {
            Lost::SendQueue => &mut dropped.send_queue,
            Lost::Card => &mut dropped.nic,
            Lost::Softnet => &mut dropped.softnet,
            Lost::Destination => &mut dropped.destination_ring,
        } += 1;
        tally.alive -= 1;
        self.net.packets.remove(packet);
        self.notify(Event::Packet(PacketEvent::Lost { owner }));
        self.after_loss(owner, why);
    }

    /// What a host outside does with a packet that it sends after a while.
    pub(super) fn leave_outside(&mut self, packet: u32, after: Duration) {
        if after.is_zero() {
            self.outside_sends(packet);
        } else {
            self.net.clock.set(self.now + after, Timed::Leave { packet });
        }
    }
}
