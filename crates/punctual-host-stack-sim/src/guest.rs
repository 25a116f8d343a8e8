//! What a vCPU thread does: the VM's interrupts, its softirq, its process.

use punctual_host_stack::softnet::WEIGHT;
use punctual_host_stack::{Load, Path, ThreadId};
use punctual_model::results::HostPart;
use punctual_sched::Duration;

use crate::machine::{Machine, Use};
use crate::packet::{Packet, Payload, Sent, further_buffers, read_packets};
use crate::thread::{State, Step};
use crate::watch::Watch;

impl<W: Watch> Machine<'_, W> {
    /// A context on `cpu` signals a virtual interrupt for the guest.
    pub(crate) fn signal_guest(&mut self, instance: usize, cpu: usize) {
        match self.kworkers.get_mut(cpu) {
            None => self.interrupt_guest(instance),
            Some((thread, waiting)) => {
                let thread = *thread;
                if !waiting.contains(&instance) {
                    waiting.push_back(instance);
                }
                self.wake(thread);
            }
        }
    }

    /// A virtual interrupt for the guest.
    pub(crate) fn interrupt_guest(&mut self, instance: usize) {
        let guest = &mut self.instances[instance].guest;
        if guest.polls {
            return;
        }
        guest.interrupt = true;
        let thread = self.instances[instance].main;
        let one = &self.threads[thread.index()];
        match (one.state, one.step) {
            (State::Sleeping, _) => self.wake(thread),
            // The process is preempted at once, by an exit if it runs.
            (_, step @ Step::Process(_)) => {
                let cpu = one.cpu;
                self.touch(cpu);
                let one = &mut self.threads[thread.index()];
                let preempted = (step, one.left, one.cost, one.refill);
                (one.step, one.left, one.cost, one.refill) = (Step::None, 0, 0, 0);
                self.instances[instance].guest.preempted = Some(preempted);
            }
            _ => {}
        }
    }

    /// An event for the guest's idle process, without an interrupt.
    pub(crate) fn notify_guest(&mut self, instance: usize) {
        let thread = self.instances[instance].main;
        self.wake(thread);
    }

    /// The vCPU's next step.
    pub(crate) fn vcpu_thread(&mut self, thread: ThreadId, instance: usize) {
        let costs = self.stack.costs;
        let guest = &mut self.instances[instance].guest;
        if !guest.entered {
            if !self.has_work(instance) {
                self.threads[thread.index()].state = State::Sleeping;
                return;
            }
            let mut cost = self.varied(costs.vcpu_wake + costs.vm_entry);
            if costs.late_ppm > 0 && self.random(1_000_000) < u64::from(costs.late_ppm) {
                cost += costs.late.as_ns();
            }
            return self.begin(thread, Step::Enter, cost, 0);
        }
        if let Some(sent) = guest.unnotified.take() {
            let cost = self.varied(costs.vm_exit);
            return self.begin(thread, Step::Kick(sent), cost, 0);
        }
        if std::mem::take(&mut guest.interrupt) {
            guest.polls = true;
            // An interrupt of a running guest makes it leave and enter the VM.
            let injected = guest.preempted.is_some();
            let exit = if injected { costs.vm_exit + costs.vm_entry } else { Duration::ZERO };
            let cost = self.varied(costs.guest_interrupt + exit);
            let refill = self.refill(instance, Use::GuestInterrupt, self.lines().guest_interrupt);
            return self.begin(thread, Step::GuestInterrupt, cost, refill);
        }
        if let Some((step, cost, refill)) = self.guest_poll(instance) {
            return self.begin(thread, step, cost, refill);
        }
        let guest = &mut self.instances[instance].guest;
        if let Some((step, left, cost, refill)) = guest.preempted.take() {
            let one = &mut self.threads[thread.index()];
            (one.step, one.left, one.cost, one.refill) = (step, left, cost, refill);
            return;
        }
        self.guest_process(thread, instance);
    }

    /// Does a halted vCPU have a reason to enter its VM? A packet in the guest's memory is none before its
    /// interrupt (`kvm_vcpu_check_block`).
    fn has_work(&self, instance: usize) -> bool {
        let one = &self.instances[instance];
        one.guest.interrupt || (one.path == Path::RtOutsourcing && !one.socket.is_empty())
    }

    /// The guest's softirq: its next packet. Its process gets a turn after each 64, if it has something to
    /// do.
    fn guest_poll(&mut self, instance: usize) -> Option<(Step, u64, u64)> {
        let costs = self.stack.costs;
        let guest = &mut self.instances[instance].guest;
        if !guest.polls {
            return None;
        }
        let waits = guest.preempted.is_some() || !guest.socket.is_empty();
        if guest.polled >= WEIGHT && waits {
            guest.polled = 0;
            return None;
        }
        let Some(packet) = guest.ring.pop_front() else {
            (guest.polls, guest.polled) = (false, 0);
            return None;
        };
        guest.polled += 1;
        let acknowledges = matches!(packet.load, Payload::Stream { .. });
        let buffers = further_buffers(costs.virtio_buffer, packet.bytes);
        let cost = costs.protocol + buffers + if acknowledges { costs.send } else { Duration::ZERO };
        let cost = self.varied(cost);
        let refill = self.refill(instance, Use::GuestStack, self.lines().guest_protocol);
        Some((Step::GuestStack(packet), cost, refill))
    }

    /// The guest's process takes a packet, or the vCPU halts.
    fn guest_process(&mut self, thread: ThreadId, instance: usize) {
        let costs = self.stack.costs;
        let one = &mut self.instances[instance];
        let outsourced = one.path != Path::Virtio;
        let from = if outsourced { &mut one.socket } else { &mut one.guest.socket };
        let Some(packet) = read_packets(from) else {
            one.guest.process_runs = false;
            let cost = self.varied(costs.vm_exit);
            return self.begin(thread, Step::Halt, cost, 0);
        };
        let switches = !std::mem::replace(&mut one.guest.process_runs, true);
        let mut cost = costs.receive + self.copy_cost(packet.bytes) + self.service(&packet);
        let uses = self.lines();
        let mut lines = if outsourced { uses.guest_calls } else { uses.guest_receive };
        if switches {
            cost += costs.guest_switch;
            lines += uses.guest_switch;
        }
        if outsourced {
            cost += costs.vm_exit + costs.socket_call + costs.vm_entry;
        }
        if let (Payload::Request(request), Load::Requests { lines: own, .. }) =
            (packet.load, self.stack.servers[self.instances[instance].server].load)
        {
            let reply_bytes = self.requests[request as usize].reply_bytes;
            // The answer: down the guest's stack, or in a call to the host.
            cost += if outsourced {
                costs.vm_exit + costs.socket_call
            } else {
                costs.send + self.copy_cost(reply_bytes)
            };
            lines += own + if outsourced { uses.host_receive } else { uses.guest_send };
        }
        let cost = self.varied(cost);
        let refill = self.refill(instance, Use::Process, lines);
        self.begin(thread, Step::Process(packet), cost, refill);
    }

    /// A step of a vCPU thread is over.
    pub(crate) fn guest_step_done(&mut self, thread: ThreadId, instance: usize, step: Step) {
        match step {
            Step::Enter => self.vcpu_entered(thread, instance),
            Step::GuestInterrupt => {
                let stamp = self.stamp_of(thread, HostPart::GuestInterrupt, HostPart::GuestWait);
                for request in self.waiting_in_vm(instance) {
                    self.stamp_step(request, stamp);
                }
                // An outsourced guest's interrupt only wakes its process.
                if self.instances[instance].path != Path::Virtio {
                    self.instances[instance].guest.polls = false;
                }
            }
            Step::GuestStack(packet) => self.guest_received(thread, instance, packet),
            Step::Process(packet) => self.guest_processed(thread, instance, packet),
            Step::Kick(sent) => self.kicked(thread, instance, sent),
            Step::Halt => self.instances[instance].guest.entered = false,
            _ => {}
        }
    }

    /// Requests that have reached the VM's memory, or the socket that its process reads.
    fn waiting_in_vm(&self, instance: usize) -> Vec<u32> {
        let one = &self.instances[instance];
        let packets = one.guest.ring.iter().chain(&one.socket);
        let request = |packet: &Packet| match packet.load {
            Payload::Request(request) => Some(request),
            Payload::Stream { .. } => None,
        };
        packets.filter_map(request).collect()
    }

    fn vcpu_entered(&mut self, thread: ThreadId, instance: usize) {
        self.instances[instance].guest.entered = true;
        let stamp = self.stamp_of(thread, HostPart::VmEntry, HostPart::VcpuWait);
        for request in self.waiting_in_vm(instance) {
            self.stamp_step(request, stamp);
        }
    }

    fn guest_received(&mut self, thread: ThreadId, instance: usize, packet: Packet) {
        match packet.load {
            Payload::Request(request) => {
                let stamp = self.stamp_of(thread, HostPart::GuestStack, HostPart::GuestWait);
                self.stamp_step(request, stamp);
            }
            Payload::Stream { .. } => self.guest_sends(instance, Sent::Ack { server: instance }),
        }
        self.instances[instance].guest.socket.push_back(packet);
    }

    fn guest_processed(&mut self, thread: ThreadId, instance: usize, packet: Packet) {
        self.copies(instance, packet.bytes);
        match packet.load {
            Payload::Stream { frames } => self.read(instance, frames, packet.bytes),
            Payload::Request(request) => {
                let stamp = self.stamp_of(thread, HostPart::GuestProcess, HostPart::GuestWait);
                self.stamp_step(request, stamp);
                if self.instances[instance].path == Path::Virtio {
                    self.guest_sends(instance, Sent::Answer { server: instance, request });
                } else {
                    self.begin_answer(thread, instance, request);
                }
            }
        }
    }

    /// The guest hands a packet to its card. It leaves the VM to notify the vNIC thread if that sleeps.
    fn guest_sends(&mut self, instance: usize, sent: Sent) {
        let vnic = self.instances[instance].vnic;
        let sleeps = vnic.is_some_and(|vnic| self.threads[vnic.index()].state == State::Sleeping);
        if sleeps {
            self.instances[instance].guest.unnotified = Some(sent);
        } else {
            self.instances[instance].outgoing.push_back(sent);
        }
    }

    fn kicked(&mut self, thread: ThreadId, instance: usize, sent: Sent) {
        if let Sent::Answer { request, .. } = sent {
            let stamp = self.stamp_of(thread, HostPart::GuestProcess, HostPart::GuestWait);
            self.stamp_step(request, stamp);
        }
        self.instances[instance].outgoing.push_back(sent);
        if let Some(vnic) = self.instances[instance].vnic {
            self.wake(vnic);
        }
        let cost = self.varied(self.stack.costs.vm_entry);
        self.begin(thread, Step::Reenter, cost, 0);
    }
}
