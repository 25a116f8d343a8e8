//! Actions (`net_rx_action`) in all their contexts: a softirq on return from an interrupt, or a thread.

use punctual_host_stack::softnet::{After, DeviceId, List, Round, Softirq, WEIGHT};
use punctual_host_stack::{Load, Path, Priority};
use punctual_model::results::HostPart;
use punctual_sched::{Duration, Instant};

use crate::action::{Device, Stage, list_of};
use crate::machine::{Machine, Use};
use crate::packet::{Packet, Payload, Sent};
use crate::processor::Soft;
use crate::request::Stamp;
use crate::watch::{Event, Watch};

impl<W: Watch> Machine<'_, W> {
    /// Devices are the queues, then the backlogs.
    pub(crate) fn backlog_device(&self, backlog: usize) -> DeviceId {
        DeviceId((self.queues.len() + backlog) as u32)
    }

    fn device(&self, id: DeviceId) -> Device {
        match (id.0 as usize).checked_sub(self.queues.len()) {
            None => Device::Queue(id.0 as usize),
            Some(backlog) => Device::Backlog(backlog),
        }
    }

    pub(crate) fn schedule_device(&mut self, queue: usize, cpu: usize, list: List) {
        self.lists[list_of(cpu, list)].schedule(DeviceId(queue as u32));
    }

    /// On return from an interrupt: starts the softirq if there is something to do. Only without IRQ threads.
    pub(crate) fn start_softirq(&mut self, cpu: usize) -> bool {
        let list = list_of(cpu, List::Common);
        if self.stack.method.has_irq_threads()
            || !self.lists[list].is_pending()
            || !std::mem::take(&mut self.cpus[cpu].irq_returns)
        {
            return false;
        }
        let current = self.cpus[cpu].current;
        if current.is_some_and(|thread| self.threads[thread.index()].softirq.is_some()) {
            return false;
        }
        let run = Softirq::begin(Instant::from_ns(self.now));
        let left = self.action_step(list).unwrap_or(0);
        self.cpus[cpu].soft = Some(Soft { run, left });
        true
    }

    /// A step of the softirq on return from an interrupt has ended.
    pub(crate) fn softirq_step_done(&mut self, cpu: usize) {
        let list = list_of(cpu, List::Common);
        let next = self.action_step(list).or_else(|| {
            let state = &mut self.cpus[cpu];
            let thread_waits =
                state.must_schedule || (state.current.is_none() && state.ready.first().is_some());
            let pending = self.lists[list].is_pending();
            let now = Instant::from_ns(self.now);
            let run = &mut state.soft.as_mut()?.run;
            match run.after(now, pending, thread_waits) {
                After::Again => self.action_step(list),
                After::Done => None,
                After::Ksoftirqd => {
                    self.wake(self.ksoftirqd[cpu]);
                    None
                }
            }
        });
        match (next, &mut self.cpus[cpu].soft) {
            (Some(left), Some(soft)) => soft.left = left,
            _ => self.cpus[cpu].soft = None,
        }
    }

    /// Is no action on the list under way, and nothing on it?
    pub(crate) fn is_done(&self, at: usize) -> bool {
        self.actions[at].stage == Stage::Idle && !self.lists[at].is_pending()
    }

    /// Ends the action's step, if one is under way, and begins the next: its cost. `None`: the action is
    /// over.
    pub(crate) fn action_step(&mut self, at: usize) -> Option<u64> {
        let now = Instant::from_ns(self.now);
        match self.actions[at].stage {
            Stage::Idle => {
                self.lists[at].begin(now);
                self.actions[at].stage = Stage::Begins;
                let cost = self.varied(self.costs.softirq);
                (self.actions[at].cost, self.actions[at].refill) = (cost, 0);
                return Some(cost);
            }
            Stage::Begins => {}
            Stage::Driver => {
                self.driver_done(at);
                return self.packet_begins(at, 0).or_else(|| self.poll_ends(at));
            }
            Stage::Packet(done) => {
                self.packet_done(at, done);
                return self.packet_begins(at, done + 1).or_else(|| self.poll_ends(at));
            }
        }
        self.poll_begins(at)
    }

    /// Begins the next poll of the action, or ends the action.
    fn poll_begins(&mut self, at: usize) -> Option<u64> {
        let Some(device) = self.lists[at].next_device() else {
            self.lists[at].finish();
            self.actions[at].stage = Stage::Idle;
            return None;
        };
        let mut packets = std::mem::take(&mut self.actions[at].packets);
        let mut sent = std::mem::take(&mut self.actions[at].sent);
        let (count, cost) = match self.device(device) {
            Device::Queue(queue) => {
                let count = self.take_frames(queue, &mut packets);
                let frames = Duration::from_ns(self.costs.frame.as_ns() * u64::from(count.max(1)));
                for packet in &packets {
                    if let Payload::Request(request) = packet.load {
                        self.stamp(request, HostPart::SoftirqWait);
                    }
                }
                let card = self.queues[queue].card;
                let cost = self.varied(frames);
                self.observe(Event::Polled { card, frames: count });
                (count, cost)
            }
            Device::Backlog(backlog) => {
                packets.clear();
                sent.clear();
                let many = self.backlogs[backlog].len().min(WEIGHT as usize);
                sent.extend(self.backlogs[backlog].drain(..many));
                for one in &sent {
                    if let Sent::Answer { request, .. } = one {
                        self.stamp(*request, HostPart::SendSoftirqWait);
                    }
                }
                (many as u32, 0)
            }
        };
        let action = &mut self.actions[at];
        (action.packets, action.sent, action.count, action.device) = (packets, sent, count, device);
        (action.stage, action.cost, action.refill) = (Stage::Driver, cost, 0);
        if cost > 0 { Some(cost) } else { self.packet_begins(at, 0).or_else(|| self.poll_ends(at)) }
    }

    fn driver_done(&mut self, at: usize) {
        let (cost, refill) = (self.actions[at].cost, self.actions[at].refill);
        let stamp = Stamp { cost, refill, part: HostPart::Softirq, wait: HostPart::SoftirqWait };
        for i in 0..self.actions[at].packets.len() {
            if let Payload::Request(request) = self.actions[at].packets[i].load {
                self.stamp_step(request, stamp);
            }
        }
    }

    /// What the host's stack does for a packet that was received.
    fn packet_cost(&self, packet: &Packet) -> Duration {
        let costs = &self.costs;
        let instance = &self.instances[packet.server];
        match (instance.path, packet.load) {
            (Path::Virtio, _) => costs.bridge,
            (_, Payload::Request(_)) => costs.protocol,
            // Its acknowledgement goes out at once.
            (_, Payload::Stream { .. }) => costs.protocol + costs.send + costs.transmit,
        }
    }

    /// Begins the step of the poll's packet `index`, if there is one.
    fn packet_begins(&mut self, at: usize, index: usize) -> Option<u64> {
        let action = &self.actions[at];
        let (cost, refill) = if let Some(&packet) = action.packets.get(index) {
            let cost = self.varied(self.packet_cost(&packet));
            let socket = self.instances[packet.server].path != Path::Virtio;
            let own = socket && matches!(packet.load, Payload::Request(_));
            let lines = if own { self.lines().host_protocol } else { 0 };
            (cost, self.refill(packet.server, Use::Softirq, lines))
        } else if action.sent.get(index).is_some() {
            (self.varied(self.costs.bridge + self.costs.transmit), 0)
        } else {
            return None;
        };
        let action = &mut self.actions[at];
        (action.stage, action.cost, action.refill) = (Stage::Packet(index), cost, refill);
        Some(cost + refill)
    }

    fn packet_done(&mut self, at: usize, index: usize) {
        let action = &self.actions[at];
        let (cost, refill) = (action.cost, action.refill);
        if let Some(&packet) = action.packets.get(index) {
            if let Payload::Request(request) = packet.load {
                let stamp = Stamp { cost, refill, part: HostPart::Softirq, wait: HostPart::SoftirqWait };
                self.stamp_step(request, stamp);
            } else if self.instances[packet.server].path != Path::Virtio {
                self.transmitted(packet.server, self.cpu_of(at));
            }
            self.received(packet, self.cpu_of(at));
            return;
        }
        let Some(&sent) = action.sent.get(index) else { return };
        match sent {
            Sent::Ack { server } => self.transmitted(server, self.cpu_of(at)),
            Sent::Answer { request, server } => {
                let (part, wait) = (HostPart::SendSoftirq, HostPart::SendSoftirqWait);
                self.stamp_step(request, Stamp { cost, refill, part, wait });
                self.transmitted(server, self.cpu_of(at));
                self.answered(request);
            }
        }
    }

    /// The processor on which an action on the list runs.
    fn cpu_of(&self, list: usize) -> usize {
        let processors = self.cpus.len();
        let thread = match list.checked_sub(2 * processors) {
            None => return list / 2,
            Some(own) => match self.queues.get(own) {
                Some(queue) => queue.napi_thread,
                None => self.instances[own - self.queues.len()].vnic,
            },
        };
        thread.map_or(0, |thread| self.threads[thread.index()].cpu)
    }

    /// The poll under way has handled its packets.
    fn poll_ends(&mut self, at: usize) -> Option<u64> {
        let now = Instant::from_ns(self.now);
        let (count, device) = (self.actions[at].count, self.actions[at].device);
        self.actions[at].sent.clear();
        self.actions[at].packets.clear();
        let round = self.lists[at].polled(now, count);
        if count < WEIGHT {
            match self.device(device) {
                Device::Queue(queue) => self.completes(queue),
                Device::Backlog(backlog) if !self.backlogs[backlog].is_empty() => {
                    self.lists[at].schedule(device);
                }
                Device::Backlog(_) => {}
            }
        }
        match round {
            Round::Continues => self.poll_begins(at),
            Round::Ends => {
                self.lists[at].finish();
                self.actions[at].stage = Stage::Idle;
                None
            }
        }
    }

    /// A packet has gone up the host's stack: to the VM's interface, or to a socket.
    fn received(&mut self, packet: Packet, cpu: usize) {
        let instance = &mut self.instances[packet.server];
        match instance.path {
            Path::Virtio => {
                instance.tap.push_back(packet);
                if let Some(vnic) = instance.vnic {
                    self.wake(vnic);
                }
            }
            Path::Container | Path::Process => {
                instance.socket.push_back(packet);
                let main = instance.main;
                self.wake(main);
            }
            Path::Outsourcing | Path::RtOutsourcing => {
                let first = instance.socket.is_empty();
                instance.socket.push_back(packet);
                match (instance.path, first) {
                    (Path::Outsourcing, true) => self.signal_guest(packet.server, cpu),
                    (Path::Outsourcing, false) => {}
                    _ => self.notify_guest(packet.server),
                }
            }
        }
    }

    /// What the process does for a packet beside taking and copying it.
    pub(crate) fn service(&self, packet: &Packet) -> Duration {
        match self.stack.servers[self.instances[packet.server].server].load {
            Load::Requests { service, .. } => service,
            Load::Stream { .. } => Duration::ZERO,
        }
    }

    /// The priority with which a queue's handler runs.
    pub(crate) fn handler_list(&self, priority: Priority) -> List {
        self.stack.method.list_of(priority, self.stack.rtnet_prio)
    }
}
