//! The response time of a request through a Linux host's network stack, at most.
//!
//! The rules are those of `docs/host-stack.md`. A bound is the sum of the request's own steps at their
//! greatest cost, with everything evicted from the cache, and of what may come before them:
//!
//! - **The softirq lock**, where the way passes one: an action of its holder, which inherits the request's
//!   priority; then the action of its own thread, which serves the whole list. An action is a poll of each
//!   device that may stand on the list, 64 packets each.
//! - **Hard IRQs** of all queues, as if all were on the same processor.
//! - **What the same threads do after the request before**: their ends, leaving and entering the VM.
//! - **Other urgent servers**: all that their requests cost, as if it were on the same processor and came
//!   first. Of each, one request may be under way and one comes each `gap_min`; and each may preempt what it
//!   finds at every switch of its own.
//!
//! There is a bound only where nothing of the fair class is on the way, a request is answered before the next
//! one may come, and both are true of all other servers with a priority: the earliest request that is late
//! would otherwise find more of them than are counted.

use alloc::vec::Vec;

use punctual_sched::Duration;

use crate::costs::StackCosts;
use crate::host::{Card, HostStack, Injection, Load, Path, Server, SoftirqRest};
use crate::method::Method;
use crate::softnet::WEIGHT;

/// Why there is no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBound {
    /// What a softirq on return from an interrupt leaves over is ksoftirqd's, which is of the fair class.
    Ksoftirqd,
    /// The card's IRQ threads are of the fair class.
    FairCard,
    /// The server's vNIC thread is of the fair class.
    FairVnic,
    /// The server's vCPU thread or process is of the fair class.
    FairServer,
    /// Its VM's interrupts are put in by a kworker, which is of the fair class.
    FairInjection,
    /// Another server with a priority, or a server on a card with one, has no bound itself.
    SeveralUrgent,
    /// The thread that takes a common softirq lock for it goes on until nothing is left on the list.
    SoftirqRest,
    /// A request may come before the one before it is answered.
    Overlap,
    /// The server has a stream, which has no requests.
    Stream,
}

impl core::fmt::Display for NoBound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            NoBound::Ksoftirqd => "what a softirq leaves over is ksoftirqd's, which is of the fair class",
            NoBound::FairCard => "its card's IRQ threads are of the fair class",
            NoBound::FairVnic => "its vNIC thread is of the fair class",
            NoBound::FairServer => "its vCPU thread or process is of the fair class",
            NoBound::FairInjection => "a kworker puts its VM's interrupts in, which is of the fair class",
            NoBound::SeveralUrgent => {
                "another server with a priority, or on a card with one, has no bound itself, so that nobody \
                 knows how much of it comes before"
            }
            NoBound::SoftirqRest => {
                "a thread that takes the common softirq lock for it then serves all that other cards bring \
                 (`softirq_rest = \"ksoftirqd\"` ends that)"
            }
            NoBound::Overlap => "a request may come before the one before it is answered",
            NoBound::Stream => "it has a stream, which has no requests",
        })
    }
}

/// What a part of a bound is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundPart {
    /// The request's own steps, with the switches between them.
    Steps,
    /// Reading again what its steps use of the cache.
    Refill,
    /// Softirq locks: their holders' actions, and those of its own threads.
    Locks,
    /// What its threads do for the request before, and leaving and entering the VM for them.
    Threads,
    /// Hard IRQs.
    Interrupts,
    /// Requests of other urgent servers.
    Others,
}

impl BoundPart {
    /// All, in the order in which they are told.
    pub const ALL: [BoundPart; 6] = [
        BoundPart::Steps,
        BoundPart::Refill,
        BoundPart::Locks,
        BoundPart::Threads,
        BoundPart::Interrupts,
        BoundPart::Others,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            BoundPart::Steps => "own steps",
            BoundPart::Refill => "cache refills",
            BoundPart::Locks => "softirq locks",
            BoundPart::Threads => "its threads before",
            BoundPart::Interrupts => "hard IRQs",
            BoundPart::Others => "other urgent servers",
        }
    }
}

/// A response time at most, and what it consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseBound {
    /// By [`BoundPart`], in ns.
    parts_ns: [u64; BoundPart::ALL.len()],
}

impl ResponseBound {
    /// The sum of all parts.
    pub fn total(&self) -> Duration {
        Duration::from_ns(self.parts_ns.iter().sum())
    }

    /// How much of it is for `part`.
    pub fn part(&self, part: BoundPart) -> Duration {
        Duration::from_ns(self.parts_ns[part as usize])
    }
}

/// Switches between threads on the way of a request at most: to the IRQ or NAPI threads, the vNIC thread
/// twice, the vCPU thread or process, and around a lock to its holder and back, three times.
const SWITCHES: u64 = 12;

/// The response time of a request to `server` at most, from the wire to the wire.
///
/// # Errors
/// Why there is no bound.
pub fn response_bound(stack: &HostStack, server: &Server) -> Result<ResponseBound, NoBound> {
    conditions(stack, server)?;
    let others: Vec<&Server> = stack.servers.iter().filter(|other| is_urgent(stack, other)).collect();
    if others.iter().any(|other| conditions(stack, other).is_err()) {
        return Err(NoBound::SeveralUrgent);
    }
    let bound = bound_beside(stack, server, &others)?;
    if others.iter().all(|other| bound_beside(stack, other, &others).is_ok()) {
        Ok(bound)
    } else {
        Err(NoBound::SeveralUrgent)
    }
}

/// Do threads with a priority work for this server?
fn is_urgent(stack: &HostStack, server: &Server) -> bool {
    let priorities = [stack.cards[server.card].priority, server.priority, server.vnic_priority];
    priorities.iter().any(|priority| !priority.is_fair())
}

/// The bound beside all urgent servers, itself among them, of which each has one.
fn bound_beside(stack: &HostStack, server: &Server, urgent: &[&Server]) -> Result<ResponseBound, NoBound> {
    let way = Way::new(stack, server);
    let gap_min = gap_min(server);
    let of_others = |within: u64| -> u64 {
        let other = |other: &&Server| {
            let count = u64::from(other.count) - u64::from(core::ptr::eq(*other, server));
            count * (requests_within(other, within) + 1) * Way::new(stack, other).before_others(&way)
        };
        urgent.iter().map(other).sum()
    };
    // In the order of [`BoundPart::ALL`].
    let mut bound =
        ResponseBound { parts_ns: [way.steps(), way.own_refill(), way.locks(), way.threads(), 0, 0] };
    // Each round counts the hard IRQs and requests within the bound so far. It ends: a bound beyond `gap_min`
    // is none.
    loop {
        let before = bound.total();
        bound.parts_ns[BoundPart::Interrupts as usize] = way.interrupts(before.as_ns());
        bound.parts_ns[BoundPart::Others as usize] = of_others(before.as_ns());
        if bound.total() >= gap_min {
            return Err(NoBound::Overlap);
        }
        if bound.total() == before {
            return Ok(bound);
        }
    }
}

/// What must be true of every server that is to have a bound, whatever else is urgent.
fn conditions(stack: &HostStack, server: &Server) -> Result<(), NoBound> {
    match server.load {
        Load::Stream { .. } => return Err(NoBound::Stream),
        Load::Requests { call: Some(_), .. } => return Err(NoBound::Overlap),
        Load::Requests { call: None, .. } => {}
    }
    if stack.method == Method::Vanilla {
        return Err(NoBound::Ksoftirqd);
    }
    if stack.cards[server.card].priority.is_fair() {
        return Err(NoBound::FairCard);
    }
    if server.priority.is_fair() {
        return Err(NoBound::FairServer);
    }
    if server.path == Path::Virtio && server.vnic_priority.is_fair() {
        return Err(NoBound::FairVnic);
    }
    if stack.injection == Injection::Kworker && server.path.is_interrupted() {
        return Err(NoBound::FairInjection);
    }
    if stack.softirq_rest == SoftirqRest::Thread && Way::new(stack, server).shares_lock() {
        return Err(NoBound::SoftirqRest);
    }
    Ok(())
}

/// The way of a request; all times in ns.
struct Way<'s> {
    stack: &'s HostStack,
    server: &'s Server,
    card: &'s Card,
    /// Those of the host, which are no less than a guest's.
    costs: StackCosts,
}

impl<'s> Way<'s> {
    fn new(stack: &'s HostStack, server: &'s Server) -> Self {
        Way { stack, server, card: &stack.cards[server.card], costs: stack.host_costs() }
    }

    /// How much later a request of `other` is because of one of this server: all that this one costs, a poll
    /// that finds nothing any more, and what `other` needs each time to go on.
    fn before_others(&self, other: &Way<'_>) -> u64 {
        let costs = *self.costs();
        let goes_on = self.greatest(costs.switch) + other.out_of_vm();
        let own = self.steps() + self.own_refill() + self.locks() + self.threads();
        own + self.sum(&[costs.softirq, costs.frame]) + SWITCHES * goes_on
    }

    fn costs(&self) -> &StackCosts {
        &self.costs
    }

    /// The greatest cost of a step.
    fn greatest(&self, cost: Duration) -> u64 {
        cost.as_ns() + cost.as_ns() * u64::from(self.costs().jitter_ppm) / 1_000_000
    }

    /// Reading so many lines again, at most.
    fn refill(&self, lines: u32) -> u64 {
        self.stack.cache.map_or(0, |cache| self.greatest(cache.miss * u64::from(lines)))
    }

    /// What the request's own steps read again, with everything evicted.
    fn own_refill(&self) -> u64 {
        let Some(cache) = self.stack.cache else { return 0 };
        let Load::Requests { lines: own, .. } = self.server.load else { return 0 };
        let one = cache.lines;
        let guest = [one.guest_interrupt, one.guest_protocol, one.guest_switch];
        let socket = [one.host_protocol, one.host_receive, one.host_send];
        let used = match self.server.path {
            Path::Virtio => [guest.as_slice(), &[one.guest_receive, one.guest_send]].concat(),
            Path::Outsourcing | Path::RtOutsourcing => {
                [socket.as_slice(), &[one.guest_interrupt, one.guest_switch, one.guest_calls]].concat()
            }
            Path::Container | Path::Process => socket.to_vec(),
        };
        self.refill(own) + used.into_iter().map(|lines| self.refill(lines)).sum::<u64>()
    }

    fn sum(&self, steps: &[Duration]) -> u64 {
        steps.iter().map(|&step| self.greatest(step)).sum()
    }

    fn copy(&self, bytes: u32) -> Duration {
        Duration::from_ns(self.costs().copy_per_kib.as_ns() * u64::from(bytes) / 1024)
    }

    /// The request's own steps, but for refills of the cache.
    fn steps(&self) -> u64 {
        let costs = *self.costs();
        let Load::Requests { bytes, reply_bytes, service, other, .. } = self.server.load else { return 0 };
        let bytes = other.map_or(0, |other| other.bytes).max(bytes);
        let reply_bytes = other.map_or(0, |other| other.reply_bytes).max(reply_bytes);
        let copies = [self.copy(bytes), self.copy(bytes), self.copy(reply_bytes), self.copy(reply_bytes)];
        let host = [costs.hard_irq, costs.irq_thread, costs.softirq, costs.frame, service];
        let process = [costs.receive, costs.send, costs.transmit];
        let vm = [
            costs.vcpu_wake,
            costs.vm_entry,
            costs.guest_switch,
            costs.guest_interrupt,
            costs.vm_exit,
            costs.vm_exit,
            costs.vm_entry,
            costs.vm_entry,
        ];
        let path = match self.server.path {
            Path::Virtio => self.sum(&[
                costs.bridge,
                costs.vnic_wake,
                costs.vnic_receive,
                costs.protocol,
                costs.vnic_wake,
                costs.vnic_send,
                costs.softirq,
                costs.bridge,
                costs.transmit,
            ]),
            Path::Outsourcing | Path::RtOutsourcing => {
                self.sum(&[costs.protocol, costs.socket_call, costs.socket_call])
            }
            Path::Container | Path::Process => self.sum(&[costs.protocol]),
        };
        let vm = if self.server.path.is_vm() { self.sum(&vm) + costs.late.as_ns() } else { 0 };
        let switches = SWITCHES * self.greatest(costs.switch);
        let coalesce = self.card.coalesce.as_ns();
        2 * costs.card.as_ns()
            + coalesce
            + self.sum(&copies)
            + self.sum(&host)
            + self.sum(&process)
            + path
            + vm
            + switches
    }

    /// What the threads do for the request before, and once more before its vCPU: its IRQ thread and its vNIC
    /// thread.
    fn threads(&self) -> u64 {
        let costs = *self.costs();
        let ends = self.sum(&[
            costs.irq_thread_end,
            costs.irq_thread_end,
            costs.vnic_end,
            costs.vnic_end,
            costs.vm_exit,
            costs.vm_entry,
        ]);
        ends + 2 * self.out_of_vm()
    }

    /// Of each softirq lock on the way: an action of its holder, and the rest of the list in its own.
    fn locks(&self) -> u64 {
        let locked = if self.stack.method.has_softirq_lock() { 2 * self.action() } else { 0 };
        let inwards =
            if self.stack.method == Method::Partitioned && self.is_partitioned() { 0 } else { locked };
        let outwards = if self.server.path == Path::Virtio { locked } else { 0 };
        inwards + outwards
    }

    /// Does a thread take, for the request, a lock of a list that other cards use?
    fn shares_lock(&self) -> bool {
        let own_list = self.stack.method == Method::Partitioned && self.is_partitioned();
        let lists = matches!(self.stack.method, Method::Threaded | Method::Partitioned);
        lists && (!own_list || self.server.path == Path::Virtio)
    }

    /// Does the card use the urgent list, alone?
    fn is_partitioned(&self) -> bool {
        self.card.priority >= self.stack.rtnet_prio
    }

    /// A common action at most: a poll of a queue of each card, and of a backlog.
    fn action(&self) -> u64 {
        let costs = *self.costs();
        let (weight, frame) = (u64::from(WEIGHT), self.greatest(costs.frame));
        let virtio = self.greatest(costs.bridge);
        let socket = self.sum(&[costs.protocol, costs.send, costs.transmit]);
        let any_socket = self.stack.servers.iter().any(|server| server.path != Path::Virtio);
        let packet = if any_socket { virtio.max(socket) } else { virtio };
        let queue = weight * (frame + packet);
        let backlog = weight * self.sum(&[costs.bridge, costs.transmit]);
        self.greatest(costs.softirq) + self.stack.cards.len() as u64 * queue + backlog
    }

    /// Leaving and entering the VM, when something comes before what runs in it.
    fn out_of_vm(&self) -> u64 {
        if self.server.path.is_vm() { self.greatest(self.costs.vm_exit + self.costs.vm_entry) } else { 0 }
    }

    /// Hard IRQs within a time.
    fn interrupts(&self, within: u64) -> u64 {
        let costs = self.costs();
        let least = |cost: Duration| cost.as_ns() - cost.as_ns() * u64::from(costs.jitter_ppm) / 1_000_000;
        // A queue interrupts again after it was handled and polled, at the earliest.
        let handled = least(costs.hard_irq) + least(costs.softirq) + least(costs.frame);
        let count = |(at, card): (usize, &Card)| {
            let mut on_card = self.stack.servers.iter().filter(|server| server.card == at);
            let unbounded = |server: &Server| {
                matches!(server.load, Load::Stream { .. } | Load::Requests { call: Some(_), .. })
            };
            if on_card.clone().any(unbounded) {
                let distance = card.coalesce.as_ns().max(handled).max(1);
                return card.processors.len() as u64 * (within / distance + 1);
            }
            // Without streams an interrupt brings a request at least.
            on_card.by_ref().map(|server| u64::from(server.count) * requests_within(server, within)).sum()
        };
        let all: u64 = self.stack.cards.iter().enumerate().map(count).sum();
        all * (self.greatest(costs.hard_irq) + self.out_of_vm())
    }
}

/// The least distance of two requests; of a stream, which has none, no time.
fn gap_min(server: &Server) -> Duration {
    match server.load {
        Load::Requests { gap_min, .. } => gap_min,
        Load::Stream { .. } => Duration::ZERO,
    }
}

/// Requests to one server within a time, in ns, at most.
fn requests_within(server: &Server, within: u64) -> u64 {
    match server.load {
        Load::Requests { gap_min, .. } => within / gap_min.as_ns().max(1) + 1,
        Load::Stream { .. } => 0,
    }
}
