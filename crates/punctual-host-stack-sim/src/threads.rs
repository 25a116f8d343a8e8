//! What the host's threads do: IRQ and NAPI threads, ksoftirqd, vNIC threads, processes.

use std::collections::VecDeque;

use punctual_host_stack::description::{Lines, Load as Traffic, SoftirqRest};
use punctual_host_stack::lock::Taken;
use punctual_host_stack::softnet::{After, DeviceId, List, Softirq};
use punctual_host_stack::{Priority, ThreadId};
use punctual_model::results::HostPart;
use punctual_sched::{Duration, Instant};

use super::card::FRAME_BYTES;
use super::request::Stamp;
use super::{Event, Load, Machine, Packet, Sent, Use, Watch, Who, list_of};

/// Bytes that a vNIC thread handles in one direction before it looks at the other one, and, in a kernel
/// without preemption, before it lets other threads run (`VHOST_NET_WEIGHT`, `vhost_worker`).
const VHOST_WEIGHT: u32 = 0x80000;

/// Bytes of a stream that a process reads at once at most (iperf 2: 128 KiB).
const READ_BYTES: u32 = 128 << 10;

/// Takes the packet that a process reads next: those of a stream together.
pub(super) fn read_packets(socket: &mut VecDeque<Packet>) -> Option<Packet> {
    let mut packet = socket.pop_front()?;
    while let Load::Stream { frames } = &mut packet.load
        && let Some(Packet { bytes, load: Load::Stream { frames: more }, .. }) = socket.front().copied()
        && packet.bytes + bytes <= READ_BYTES
    {
        *frames += more;
        packet.bytes += bytes;
        socket.pop_front();
    }
    Some(packet)
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Sleeping,
    Ready,
    Running,
    /// It waits for a softirq lock.
    Blocked,
}

/// A thread's step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    None,
    /// A step of an action.
    Softirq,
    /// The IRQ thread's handler.
    Handler,
    /// What a thread does before it sleeps.
    End,
    VnicReceive(Packet),
    VnicSend(Sent),
    /// A kworker puts an interrupt into a VM.
    Inject(usize),
    /// A process takes a packet and serves it.
    Process(Packet),
    /// A process, or the host on behalf of a guest's, sends the answer.
    Answer(u32),
    /// A vCPU enters its VM after it slept.
    Enter,
    /// A vCPU enters its VM again after a call to the host.
    Reenter,
    GuestInterrupt,
    /// The guest's protocols.
    GuestStack(Packet),
    /// The guest tells the vNIC thread.
    Kick(Sent),
    /// The vCPU leaves the VM to sleep.
    Halt,
}

/// Which part of a softirq a thread has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    NeedsLock,
    Runs,
}

/// A softirq in a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadSoftirq {
    /// The list it serves.
    list: usize,
    lock: Option<usize>,
    phase: Phase,
    /// Its limits where softirqs have no locks.
    run: Softirq,
}

/// A thread of the host.
pub(super) struct Thread {
    pub(super) who: Who,
    own: Priority,
    pub(super) inherited: Priority,
    /// Where it is, or was last.
    pub(super) cpu: usize,
    pub(super) allowed: Vec<usize>,
    pub(super) state: State,
    pub(super) step: Step,
    /// Time that the step still needs.
    pub(super) left: u64,
    /// The step's cost with switches to it; the refill is apart.
    pub(super) cost: u64,
    pub(super) refill: u64,
    /// Switches that came before the step.
    carried: u64,
    /// Of the step's cost: what came before it.
    switched: u64,
    pub(super) vruntime: u64,
    pub(super) ran: u64,
    pub(super) softirq: Option<ThreadSoftirq>,
    /// It was put out of its VM and has not run since.
    pub(super) left_vm: bool,
    /// It has done something since it woke up.
    worked: bool,
    /// The vNIC thread sent last.
    sent_last: bool,
    /// Bytes that the vNIC thread has handled in its present direction.
    batch: u32,
}

impl Thread {
    pub(super) fn new(who: Who, own: Priority, allowed: Vec<usize>) -> Self {
        Thread {
            who,
            own,
            inherited: Priority::FAIR,
            cpu: allowed.first().copied().unwrap_or(0),
            allowed,
            state: State::Sleeping,
            step: Step::None,
            left: 0,
            cost: 0,
            refill: 0,
            carried: 0,
            switched: 0,
            vruntime: 0,
            ran: 0,
            softirq: None,
            left_vm: false,
            worked: false,
            sent_last: false,
            batch: 0,
        }
    }

    /// Its own priority, or a greater one that it inherits.
    pub(super) fn priority(&self) -> Priority {
        self.own.max(self.inherited)
    }

    /// Does it execute instructions of a VM?
    pub(super) fn is_in_vm(&self) -> bool {
        let in_guest = matches!(self.step, Step::GuestInterrupt | Step::GuestStack(_) | Step::Process(_));
        in_guest && matches!(self.who, Who::Vcpu(_)) && self.left > 0
    }

    /// Something came before its next step, or before the rest of this one.
    pub(super) fn delayed_by(&mut self, cost: u64) {
        self.left += cost;
        match self.step {
            Step::None => self.carried += cost,
            _ => self.cost += cost,
        }
    }
}

impl<W: Watch> Machine<'_, W> {
    /// The thread begins a step.
    pub(super) fn begin(&mut self, thread: ThreadId, step: Step, cost: u64, refill: u64) {
        let thread = &mut self.threads[thread.index()];
        thread.step = step;
        thread.left = cost + refill;
        thread.switched = std::mem::take(&mut thread.carried);
        thread.cost = cost + thread.switched;
        thread.refill = refill;
    }

    fn sleep(&mut self, thread: ThreadId) {
        self.threads[thread.index()].state = State::Sleeping;
    }

    /// The stamp of the step that the thread has ended.
    pub(super) fn stamp_of(&self, thread: ThreadId, part: HostPart, wait: HostPart) -> Stamp {
        let thread = &self.threads[thread.index()];
        Stamp { cost: thread.cost, refill: thread.refill, part, wait }
    }

    /// The running thread has nothing under way: its next step, or it sleeps.
    pub(super) fn advance(&mut self, thread: ThreadId) {
        if self.threads[thread.index()].softirq.is_some() {
            return self.softirq_goes_on(thread);
        }
        match self.threads[thread.index()].who {
            Who::Irq(..) => self.irq_thread(thread),
            Who::Napi(..) => self.napi_thread(thread),
            Who::Ksoftirqd(cpu) => self.ksoftirqd_thread(thread, cpu),
            Who::Kworker(cpu) => match self.kworkers[cpu].1.pop_front() {
                Some(instance) => self.begin(thread, Step::Inject(instance), 0, 0),
                None => self.sleep(thread),
            },
            Who::Vnic(instance) => self.vnic_thread(thread, instance),
            Who::Vcpu(instance) => self.vcpu_thread(thread, instance),
            Who::Process(instance) => self.process_thread(thread, instance),
        }
    }

    /// The thread's step is over.
    pub(super) fn step_done(&mut self, thread: ThreadId) {
        let step = std::mem::replace(&mut self.threads[thread.index()].step, Step::None);
        match (step, self.threads[thread.index()].who) {
            (Step::None | Step::Softirq, _) => {}
            (Step::End, _) => self.threads[thread.index()].worked = false,
            (Step::Handler, _) => self.handler_done(thread),
            (Step::Inject(instance), _) => self.interrupt_guest(instance),
            (Step::VnicReceive(packet), _) => self.vnic_received(thread, packet),
            (Step::VnicSend(sent), Who::Vnic(instance)) => self.vnic_sent(thread, instance, sent),
            (Step::Process(packet), Who::Process(instance)) => self.processed(thread, instance, packet),
            (Step::Answer(request), who) => {
                let stamp = self.stamp_of(thread, HostPart::Send, HostPart::SendWait);
                self.stamp_step(request, stamp);
                self.handed_over(request, 0);
                self.answered(request);
                if let Who::Vcpu(_) = who {
                    let cost = self.varied(self.costs.vm_entry);
                    self.begin(thread, Step::Reenter, cost, 0);
                }
            }
            (step, Who::Vcpu(instance)) => self.guest_step_done(thread, instance, step),
            (step, who) => self.violated(|| format!("{who:?} has a step {step:?}")),
        }
    }

    // --- Softirqs in threads
    // ---------------------------------------------------------------------------------

    /// The thread runs actions on `list`, under `lock` if there is one.
    fn begin_softirq(&mut self, thread: ThreadId, list: usize, lock: Option<usize>) {
        let lock = lock.filter(|_| self.stack.method.has_softirq_lock());
        let run = Softirq::begin(Instant::from_ns(self.now));
        self.threads[thread.index()].softirq =
            Some(ThreadSoftirq { list, lock, phase: Phase::NeedsLock, run });
    }

    fn softirq_goes_on(&mut self, thread: ThreadId) {
        let one = &self.threads[thread.index()];
        let (Some(softirq), who, priority) = (one.softirq, one.who, one.priority()) else { return };
        if softirq.phase == Phase::NeedsLock {
            let taken = softirq.lock.map(|lock| (lock, self.locks[lock].take(thread, priority)));
            match taken {
                Some((lock, Taken::Waits { holder })) => {
                    self.threads[thread.index()].state = State::Blocked;
                    let other = self.threads[holder.index()].who;
                    self.tell(Event::WaitsForLock { thread: who, holder: other });
                    let inherited = self.locks[lock].inherited();
                    return self.inherit(holder, inherited);
                }
                Some((_, Taken::Held)) => self.tell(Event::Locks { thread: who }),
                None => {}
            }
            self.softirq_phase(thread, Phase::Runs);
        }
        if softirq.lock.is_some() && self.is_done(softirq.list) {
            // Somebody else has taken care of it meanwhile.
            return self.action_over(thread, softirq);
        }
        match self.action_step(softirq.list) {
            Some(cost) => self.begin(thread, Step::Softirq, cost, 0),
            None => self.action_over(thread, softirq),
        }
    }

    fn softirq_phase(&mut self, thread: ThreadId, phase: Phase) {
        if let Some(softirq) = &mut self.threads[thread.index()].softirq {
            softirq.phase = phase;
        }
    }

    /// The thread's action is over: it lets the lock go.
    fn action_over(&mut self, thread: ThreadId, mut softirq: ThreadSoftirq) {
        let cpu = self.threads[thread.index()].cpu;
        let pending = self.lists[softirq.list].is_pending();
        if !self.stack.method.has_irq_threads() {
            let now = Instant::from_ns(self.now);
            let after = softirq.run.after(now, pending, self.cpus[cpu].must_schedule);
            if after == After::Again {
                self.threads[thread.index()].softirq = Some(softirq);
                return;
            }
        }
        let goes_on = pending
            && self.stack.softirq_rest == SoftirqRest::Thread
            && softirq.list < 2 * self.cpus.len()
            && softirq.lock.is_some();
        if goes_on && self.steals(thread, softirq.lock) {
            return;
        }
        softirq.phase = Phase::NeedsLock;
        self.threads[thread.index()].softirq = goes_on.then_some(softirq);
        if let Some(lock) = softirq.lock {
            let who = self.threads[thread.index()].who;
            self.tell(Event::Unlocks { thread: who });
            let next = self.locks[lock].release();
            self.inherit(thread, Priority::FAIR);
            if let Some(next) = next {
                self.lock_granted(lock, next);
            }
        }
        let list_is_the_processors = softirq.list < 2 * self.cpus.len();
        if pending && !goes_on && list_is_the_processors && self.ksoftirqd[softirq.list / 2] != thread {
            self.wake(self.ksoftirqd[softirq.list / 2]);
        }
    }

    /// Does a thread that lets the lock go take it again before its first waiter (`rt_mutex`: a more urgent
    /// thread steals it, and so does a fair one from a fair one)?
    fn steals(&self, thread: ThreadId, lock: Option<usize>) -> bool {
        let own = self.threads[thread.index()].own;
        lock.is_some_and(|lock| {
            let waiter = self.locks[lock].inherited();
            own > waiter || waiter.is_fair()
        })
    }

    fn lock_granted(&mut self, lock: usize, thread: ThreadId) {
        let who = self.threads[thread.index()].who;
        self.softirq_phase(thread, Phase::Runs);
        self.tell(Event::Locks { thread: who });
        self.stamp_lock_wait(who);
        let inherited = self.locks[lock].inherited();
        self.threads[thread.index()].inherited = inherited;
        self.enqueue(thread);
    }

    /// The requests for whose sake the thread waited.
    fn stamp_lock_wait(&mut self, who: Who) {
        match who {
            Who::Irq(card, cpu) | Who::Napi(card, cpu) => {
                let queue = self.queues.iter().position(|queue| (queue.card, queue.cpu) == (card, cpu));
                if let Some(queue) = queue {
                    self.stamp_ring(queue, HostPart::LockWait);
                }
            }
            Who::Vnic(instance) => {
                for backlog in 0..self.backlogs.len() {
                    for at in 0..self.backlogs[backlog].len() {
                        if let Sent::Answer { server, request } = self.backlogs[backlog][at]
                            && server == instance
                        {
                            self.stamp(request, HostPart::SendLockWait);
                        }
                    }
                }
            }
            Who::Ksoftirqd(_) | Who::Kworker(_) | Who::Vcpu(_) | Who::Process(_) => {}
        }
    }

    // --- IRQ threads, NAPI threads, ksoftirqd
    // ----------------------------------------------------------------

    fn queue_of(&self, thread: ThreadId) -> usize {
        let of = |queue: &super::Queue| [queue.irq_thread, queue.napi_thread].contains(&Some(thread));
        self.queues.iter().position(of).unwrap_or(0)
    }

    fn irq_thread(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        if std::mem::take(&mut self.queues[queue].handle) {
            let cost = self.varied(self.costs.irq_thread);
            self.begin(thread, Step::Handler, cost, 0);
        } else if self.threads[thread.index()].worked {
            let cost = self.varied(self.costs.irq_thread_end);
            self.begin(thread, Step::End, cost, 0);
        } else {
            self.sleep(thread);
        }
    }

    fn handler_done(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        let stamp = self.stamp_of(thread, HostPart::IrqThread, HostPart::IrqThreadWait);
        for at in 0..self.queues[queue].requests.len() {
            let request = self.queues[queue].requests[at].1;
            self.stamp_step(request, stamp);
        }
        self.threads[thread.index()].worked = true;
        let cpu = self.queues[queue].cpu;
        if let Some(napi) = self.queues[queue].napi_thread {
            let list = self.napi_list(queue);
            self.lists[list].schedule(DeviceId(queue as u32));
            return self.wake(napi);
        }
        let list = self.handler_list(self.queues[queue].priority);
        self.schedule_device(queue, cpu, list);
        let list = list_of(cpu, list);
        self.begin_softirq(thread, list, Some(list));
    }

    /// The list that the NAPI thread of a queue has for itself.
    fn napi_list(&self, queue: usize) -> usize {
        2 * self.cpus.len() + queue
    }

    fn napi_thread(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        let list = self.napi_list(queue);
        if self.lists[list].is_pending() {
            let lock = list_of(self.threads[thread.index()].cpu, List::Common);
            self.begin_softirq(thread, list, Some(lock));
        } else {
            self.sleep(thread);
        }
    }

    fn ksoftirqd_thread(&mut self, thread: ThreadId, cpu: usize) {
        let pending = List::ALL.into_iter().map(|list| list_of(cpu, list));
        match pending.into_iter().find(|&list| self.lists[list].is_pending()) {
            Some(list) => self.begin_softirq(thread, list, Some(list)),
            None => self.sleep(thread),
        }
    }

    // --- vNIC threads
    // ----------------------------------------------------------------------------------------

    fn vnic_thread(&mut self, thread: ThreadId, instance: usize) {
        let costs = self.costs;
        let goes_on = self.in_batch(thread);
        let state = &mut self.instances[instance];
        let one = &mut self.threads[thread.index()];
        let sends = if goes_on {
            one.sent_last
        } else {
            !state.outgoing.is_empty() && (state.tap.is_empty() || !one.sent_last)
        };
        if !goes_on {
            one.batch = 0;
        }
        one.sent_last = sends;
        let wake = if one.worked { Duration::ZERO } else { costs.vnic_wake };
        let (step, cost) = if sends {
            let Some(sent) = state.outgoing.pop_front() else { return };
            one.worked = true;
            one.batch += FRAME_BYTES;
            (Step::VnicSend(sent), costs.vnic_send)
        } else if let Some(packet) = state.tap.pop_front() {
            one.worked = true;
            one.batch += packet.bytes;
            let buffers = further_buffers(costs.virtio_buffer, packet.bytes);
            let cost = costs.vnic_receive + buffers + self.copy_cost(packet.bytes);
            (Step::VnicReceive(packet), cost)
        } else if one.worked {
            (Step::End, costs.vnic_end)
        } else {
            return self.sleep(thread);
        };
        let cost = self.varied(wake + cost);
        self.begin(thread, step, cost, 0);
    }

    /// Is the vNIC thread amid packets of one direction (`handle_rx`, `handle_tx`)?
    pub(super) fn in_batch(&self, thread: ThreadId) -> bool {
        let one = &self.threads[thread.index()];
        let Who::Vnic(instance) = one.who else { return false };
        let state = &self.instances[instance];
        let more = if one.sent_last { !state.outgoing.is_empty() } else { !state.tap.is_empty() };
        let works = matches!(one.step, Step::VnicReceive(_) | Step::VnicSend(_));
        works || (more && one.batch > 0 && one.batch < VHOST_WEIGHT)
    }

    fn vnic_received(&mut self, thread: ThreadId, packet: Packet) {
        if let Load::Request(request) = packet.load {
            let stamp = self.stamp_of(thread, HostPart::VnicReceive, HostPart::VnicReceiveWait);
            self.stamp_step(request, stamp);
        }
        self.copies(packet.server, packet.bytes);
        self.instances[packet.server].guest.ring.push_back(packet);
        self.signal_guest(packet.server, self.threads[thread.index()].cpu);
    }

    /// The packet of the VM is handed to a backlog, and the thread runs the softirq itself (`netif_rx_ni`).
    fn vnic_sent(&mut self, thread: ThreadId, instance: usize, sent: Sent) {
        let cpu = self.threads[thread.index()].cpu;
        let lock = list_of(cpu, List::Common);
        // With threaded NAPI: `netif_receive_skb` under the lock, without the poll list (tun_rx_batched).
        let own = self.stack.method.has_napi_threads();
        let backlog = if own { self.cpus.len() + instance } else { cpu };
        let list = if own { 2 * self.cpus.len() + self.queues.len() + instance } else { lock };
        if let Sent::Answer { request, .. } = sent {
            let stamp = self.stamp_of(thread, HostPart::VnicSend, HostPart::VnicSendWait);
            self.stamp_step(request, stamp);
            self.handed_over(request, backlog);
        }
        self.backlogs[backlog].push_back(sent);
        let device = self.backlog_device(backlog);
        self.lists[list].schedule(device);
        self.begin_softirq(thread, list, Some(lock));
    }

    // --- Processes
    // -------------------------------------------------------------------------------------------

    fn process_thread(&mut self, thread: ThreadId, instance: usize) {
        let Some(packet) = read_packets(&mut self.instances[instance].socket) else {
            return self.sleep(thread);
        };
        let cost = self.costs.receive + self.copy_cost(packet.bytes) + self.service(&packet);
        let cost = self.varied(cost);
        let own = match self.stack.servers[self.instances[instance].server].load {
            Traffic::Requests { lines, .. } => lines + self.lines().host_receive,
            Traffic::Stream { .. } => 0,
        };
        let refill = self.refill(instance, Use::Process, own);
        self.begin(thread, Step::Process(packet), cost, refill);
    }

    fn processed(&mut self, thread: ThreadId, instance: usize, packet: Packet) {
        self.copies(instance, packet.bytes);
        match packet.load {
            Load::Request(request) => {
                let mut stamp = self.stamp_of(thread, HostPart::Process, HostPart::ProcessWait);
                // The process does not run before the processor has switched to it.
                stamp.cost -= self.threads[thread.index()].switched;
                self.stamp_step(request, stamp);
                self.begin_answer(thread, instance, request);
            }
            Load::Stream { frames } => self.read(instance, frames, packet.bytes),
        }
    }

    /// The host sends the answer: system call, protocols, driver.
    pub(super) fn begin_answer(&mut self, thread: ThreadId, instance: usize, request: u32) {
        let reply = self.requests[request as usize].reply_bytes;
        let cost = self.costs.send + self.costs.transmit + self.copy_cost(reply);
        let cost = self.varied(cost);
        let refill = self.refill(instance, Use::Send, self.lines().host_send);
        self.copies(instance, reply);
        self.begin(thread, Step::Answer(request), cost, refill);
    }

    /// The process has read so much of its stream.
    pub(super) fn read(&mut self, instance: usize, frames: u32, bytes: u32) {
        let state = &mut self.instances[instance];
        state.bytes += u64::from(bytes);
        if let Some(stream) = state.stream {
            self.stream_read(stream, frames);
        }
    }

    /// What each step uses of the cache.
    pub(super) fn lines(&self) -> Lines {
        self.stack.cache.map_or(Lines::default(), |cache| cache.lines)
    }

    /// Reading again what others' copies have evicted of the `lines` that a step uses, in ns.
    pub(super) fn refill(&mut self, instance: usize, part: Use, lines: u32) -> u64 {
        let Some(cache) = self.stack.cache else { return 0 };
        let others = self.copied - self.instances[instance].copied;
        let mark = &mut self.marks[instance * Use::COUNT + part as usize];
        let before = std::mem::replace(mark, others);
        let full = Duration::from_ns(u64::from(lines) * cache.miss.as_ns());
        let kept = kept(others.saturating_sub(before), u64::from(cache.size_kib) * 1024);
        let refill = full.as_ns() - ((u128::from(full.as_ns()) * u128::from(kept)) >> 32) as u64;
        self.varied(Duration::from_ns(refill))
    }
}

/// The share of lines, of 2^32, that a cache of `size` bytes keeps while others bring `bytes`, each line of
/// which replaces any line with equal chance: `exp(-bytes / size)`.
fn kept(bytes: u64, size: u64) -> u64 {
    /// `exp(-1/1024)` of 2^32.
    const LEAST: u64 = 4290775039;
    // After 16 sizes nothing is left.
    let steps = (u128::from(bytes) * 1024 / u128::from(size)).min(1 << 14) as u64;
    let (mut share, mut factor) = (1 << 32, LEAST);
    for bit in 0..15 {
        if (steps >> bit) & 1 == 1 {
            share = (share * factor) >> 32;
        }
        factor = (factor * factor) >> 32;
    }
    share
}

/// What the buffers of a VM's card beyond the first cost for a packet: a page each (`receive_mergeable`).
pub(super) fn further_buffers(each: Duration, bytes: u32) -> Duration {
    each * u64::from(bytes.div_ceil(4096).max(1) - 1)
}

/// A duration in ns, for costs that are added up.
pub(super) fn sum(parts: &[Duration]) -> Duration {
    parts.iter().fold(Duration::ZERO, |sum, &part| sum + part)
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn a_cache_keeps_less_the_more_others_bring() {
        let size = 8 << 20;
        let percent = |bytes: u64| (kept(bytes, size) * 10_000) >> 32;
        // exp(-0), exp(-1/2), exp(-1), exp(-4), in hundredths of a percent.
        assert_eq!([0, size / 2, size, 4 * size].map(percent), [10_000, 6_065, 3_678, 183]);
        assert!(kept(u64::MAX, 1) < 1_000);
    }
}
