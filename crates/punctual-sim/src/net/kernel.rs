//! Kernels in motion: when their vCPU executes, and what they do next.

use punctual_model::network::RESUME_MIN;
use punctual_model::results::Segment;
use punctual_model::trace::{NetworkStep, PacketRef};
use punctual_net::{Next, Stage, Step};
use punctual_sched::{Duration, Instant};

use super::clock::Timed;
use super::{EventHandling, State, Work};
use crate::index::{KernelIx, Occupant, ProcessorIx};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// Packets carried after one event before the next is handled, with [`EventHandling::OneByOne`]: the softirq
/// gives up after ten rounds of 300 packets (Linux 2.6.18 `MAX_SOFTIRQ_RESTART`, `netdev_budget`).
const SOFTIRQ_PACKETS_MAX: u32 = 3000;

impl<O: Observer> Machine<'_, O> {
    /// The vCPU of the kernel starts to execute at `at`. True: the kernel does, its guest does not.
    #[inline]
    pub(crate) fn kernel_on(&mut self, kernel: KernelIx, at: Instant, root: ProcessorIx) -> bool {
        let k = &mut self.net.kernels[kernel];
        k.powered = true;
        k.root = root;
        k.from = at;
        k.resumes |= k.off_since.take().is_some_and(|since| at.since(since) >= RESUME_MIN);
        let busy = k.state != State::Idle;
        for turn in 0..k.interfaces.len() {
            let interface = self.net.kernels[kernel].interfaces[turn];
            let interface = &mut self.net.interfaces[interface as usize];
            while interface.seen < interface.received.len() {
                self.net.packets.stamp(interface.received[interface.seen], Segment::VcpuWait, at);
                interface.seen += 1;
            }
        }
        busy
    }

    /// The vCPU stops executing now. True: it was the kernel that executed.
    #[inline]
    pub(crate) fn kernel_off(&mut self, kernel: KernelIx) -> bool {
        self.kernel_pause(kernel, self.now);
        let k = &mut self.net.kernels[kernel];
        k.powered = false;
        let busy = k.state != State::Idle;
        k.off_since = busy.then_some(self.now);
        busy
    }

    /// The vCPU pauses until `start`. True: it is the kernel that executes.
    #[inline]
    pub(crate) fn kernel_pause(&mut self, kernel: KernelIx, start: Instant) -> bool {
        let now = self.now;
        let k = &mut self.net.kernels[kernel];
        if k.state == State::Idle {
            return false;
        }
        let ran = now.since(k.from).min(k.left);
        k.left = k.left.saturating_sub(ran);
        k.spent += ran;
        k.from = start.max(k.from);
        let unit = k.vcpu;
        self.notify(Event::KernelRan { unit, ran });
        true
    }

    /// When the kernel that executes on this vCPU is through with its step.
    #[inline]
    pub(crate) fn kernel_until(&self, kernel: KernelIx) -> Option<Instant> {
        let k = &self.net.kernels[kernel];
        (k.state != State::Idle).then_some(k.from + k.left)
    }

    /// The kernel's step is over, or it is to choose one.
    pub(crate) fn kernel_event(&mut self, kernel: KernelIx) {
        if self.net.kernels[kernel].state == State::Stepping {
            self.kernel_pause(kernel, self.now);
            let k = &mut self.net.kernels[kernel];
            k.state = State::Choosing;
            let work = std::mem::replace(&mut k.work, Work::None);
            self.events += 1;
            if O::STEPS {
                self.tell_step(kernel, work);
            }
            self.work_done(kernel, work);
        }
        self.net.choosers.push(kernel);
    }

    /// There is something to do for the kernel.
    pub(super) fn kick(&mut self, kernel: KernelIx) {
        let now = self.now;
        let k = &mut self.net.kernels[kernel];
        if k.state != State::Idle {
            return;
        }
        k.left = Duration::ZERO;
        let (powered, proc, vcpu, root) = (k.powered, k.proc, k.vcpu, k.root);
        if powered {
            // The guest's tasks stand still; a switch to the vCPU may be under way.
            let from = now.max(self.procs[proc].exec_from);
            self.power_off_guest(proc);
            self.net.kernels[kernel].from = from;
            self.touch_proc(root);
            if from <= now {
                self.net.choosers.push(kernel);
            }
        }
        // Where it executed last: it is woken there, or wherever the policy says.
        let last = root.some().map(|root| self.procs[root].occupant);
        let was_busy = powered || last.is_some_and(|occupant| occupant != Occupant::IDLE);
        let k = &mut self.net.kernels[kernel];
        (k.state, k.woke, k.was_busy) = (State::Choosing, true, was_busy);
        if !self.units[vcpu].awake {
            self.wake(vcpu);
        }
        self.notify(Event::KernelBusy { unit: vcpu });
    }

    /// Tells the observer that a step is over.
    fn tell_step(&mut self, kernel: KernelIx, work: Work) {
        let k = &self.net.kernels[kernel];
        let first = |interface: u32| self.net.interfaces[interface as usize].received.front().copied();
        let (step, packet) = match work {
            Work::None => return,
            Work::Event(_) => (NetworkStep::Event, None),
            Work::Carry(step) => {
                let stage = match step.stage {
                    Stage::Tx => NetworkStep::Tx,
                    Stage::Softnet => NetworkStep::Softnet,
                    Stage::Rx => NetworkStep::Rx,
                };
                (stage, Some(step.packet.id as u32))
            }
            Work::Receive { interface } => (NetworkStep::Receive, first(interface)),
            Work::Send { packet, .. } => (NetworkStep::Send, Some(packet)),
        };
        let packet = packet.map(|packet| {
            let p = &self.net.packets[packet];
            let owner = self.net.lanes[p.lane as usize].owner as usize;
            PacketRef { owner, id: (u64::from(p.lane) << 40) | p.number }
        });
        let domain = self.host.vcpus[k.vcpu.index()].domain;
        let began = k.began;
        self.notify(Event::Step { domain, step, packet, began });
    }

    /// Lets every kernel choose that is to.
    pub(crate) fn choose_steps(&mut self) {
        while let Some(kernel) = self.net.choosers.pop() {
            let k = &self.net.kernels[kernel];
            if !k.powered || k.state != State::Choosing || k.from > self.now {
                continue;
            }
            let root = k.root;
            match self.choose(kernel) {
                Some((work, cost, event_part)) => {
                    let k = &mut self.net.kernels[kernel];
                    k.work = work;
                    k.event_part = event_part;
                    k.left = cost;
                    k.from = self.now;
                    k.began = self.now;
                    k.state = State::Stepping;
                    self.touch_proc(root);
                }
                None => self.rest(kernel),
            }
        }
    }

    /// The kernel has nothing to do: its guest goes on, or the vCPU blocks.
    fn rest(&mut self, kernel: KernelIx) {
        let now = self.now;
        let k = &mut self.net.kernels[kernel];
        k.state = State::Idle;
        let (proc, vcpu, root) = (k.proc, k.vcpu, k.root);
        self.power_on_guest(proc, now, root);
        self.touch_proc(root);
        let occupant = self.procs[proc].occupant;
        self.notify(Event::KernelIdle { unit: vcpu, occupant });
        let p = &self.procs[proc];
        if p.occupant == Occupant::IDLE && !p.pending && !p.resched && self.units[vcpu].awake {
            self.sleep(vcpu);
        }
    }

    /// What the kernel does from now on, how long that takes, and how much of it is for sending an event.
    fn choose(&mut self, kernel: KernelIx) -> Option<(Work, Duration, Duration)> {
        let chosen = self.choose_driver(kernel).or_else(|| self.choose_guest(kernel));
        self.net.kernels[kernel].woke &= chosen.is_none();
        chosen
    }

    fn choose_driver(&mut self, kernel: KernelIx) -> Option<(Work, Duration, Duration)> {
        let now = self.now;
        let bridge_ix = self.net.kernels[kernel].bridge?;
        let bridge = &mut self.net.bridges[bridge_ix as usize];
        let packets_first = bridge.since_event.is_some_and(|packets| packets < SOFTIRQ_PACKETS_MAX);
        if !packets_first && let Some(port) = bridge.channels.take() {
            bridge.since_event = (bridge.events == EventHandling::OneByOne).then_some(0);
            let cost = bridge.costs.interrupt;
            return Some((Work::Event(port), bridge.vary(cost), Duration::ZERO));
        }
        match bridge.discipline.next(now) {
            Next::Process(step) => {
                if let Some(packets) = &mut bridge.since_event {
                    *packets += 1;
                }
                Some(self.carry_cost(bridge_ix, step))
            }
            wait => {
                if let Next::WaitUntil(at) = wait
                    && bridge.credit_at != at
                {
                    bridge.credit_at = at;
                    self.net.clock.set(at, Timed::Credit { bridge: bridge_ix });
                }
                let bridge = &mut self.net.bridges[bridge_ix as usize];
                if bridge.since_event.take().is_some() {
                    // The packets of the last event are done: the next event's turn.
                    return self.choose_driver(kernel);
                }
                None
            }
        }
    }

    fn carry_cost(&mut self, bridge: u32, step: Step) -> (Work, Duration, Duration) {
        let bridge = &mut self.net.bridges[bridge as usize];
        let costs = bridge.costs;
        let (mut cost, mut event) = (Duration::ZERO, Duration::ZERO);
        match step.stage {
            Stage::Tx => cost += costs.tx,
            Stage::Softnet => {
                cost += costs.softnet;
                if bridge.is_card(step.packet.source) {
                    cost += costs.nic_receive;
                }
                if bridge.is_card(step.packet.destination) {
                    cost += costs.nic_send;
                }
            }
            Stage::Rx => {
                let copy = u128::from(costs.copy_per_kib.as_ns()) * u128::from(step.packet.bytes) / 1024;
                cost += costs.rx + Duration::from_ns(copy as u64);
                let to = bridge.interface_of_id[step.packet.destination.index()];
                if to.is_some_and(|to| !self.net.interfaces[to as usize].polling) {
                    event = bridge.vary(costs.event);
                }
            }
        }
        if step.starts_round {
            cost += costs.round;
        }
        (Work::Carry(step), bridge.vary(cost) + event, event)
    }

    fn choose_guest(&mut self, kernel: KernelIx) -> Option<(Work, Duration, Duration)> {
        let k = &self.net.kernels[kernel];
        let (count, turn) = (k.interfaces.len(), k.turn);
        for round in 0..3 {
            for i in 0..count {
                let at = (turn + i) % count;
                let interface = self.net.kernels[kernel].interfaces[at];
                if let Some((work, cost, event)) = self.choose_interface(interface, round) {
                    let k = &mut self.net.kernels[kernel];
                    k.turn = (at + 1) % count;
                    let bridge = self.net.interfaces[interface as usize].bridge as usize;
                    let bridge = &mut self.net.bridges[bridge];
                    let wake = if k.woke { bridge.wake(k.was_busy) } else { Duration::ZERO };
                    let resume = bridge.costs.guest_resume;
                    let resumes = std::mem::take(&mut k.resumes) && resume > Duration::ZERO;
                    let resume = if resumes { bridge.vary(resume) } else { Duration::ZERO };
                    return Some((work, cost + wake + resume, event));
                }
            }
        }
        None
    }

    /// Answers first, then receiving, then everything else that is to be sent.
    fn choose_interface(&mut self, ix: u32, round: u32) -> Option<(Work, Duration, Duration)> {
        let interface = &mut self.net.interfaces[ix as usize];
        let bridge = &mut self.net.bridges[interface.bridge as usize];
        let costs = bridge.costs;
        if round == 1 {
            if interface.received.is_empty() {
                interface.polling = false;
                interface.interrupt = false;
                return None;
            }
            let interrupt = std::mem::replace(&mut interface.interrupt, false);
            let bytes = interface.received.front().map_or(0, |packet| self.net.packets[*packet].bytes);
            let cost = costs.guest_receives(bytes) + if interrupt { costs.interrupt } else { Duration::ZERO };
            return Some((Work::Receive { interface: ix }, bridge.vary(cost), Duration::ZERO));
        }
        let queue = if round == 0 { &interface.soft } else { &interface.sends };
        let &packet = queue.front()?;
        if !interface.blocked && interface.room(&*bridge.discipline) == 0 {
            interface.blocked = true;
        }
        if interface.blocked {
            return None;
        }
        if round == 0 {
            interface.soft.pop_front()
        } else {
            interface.sends.pop_front()
        };
        let tells = interface.in_tx == 0 && !bridge.channels.is_pending(interface.port);
        let event = if tells { bridge.vary(costs.event) } else { Duration::ZERO };
        let send = costs.guest_sends(self.net.packets[packet].bytes);
        Some((Work::Send { interface: ix, packet }, bridge.vary(send) + event, event))
    }
}
