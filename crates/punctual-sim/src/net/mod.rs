//! Networks in the machine: driver domains, rings, links and what is sent.
//!
//! # The way of a packet
//! A guest's stack sends it (its kernel's time), it takes a slot of the TX ring and an event notifies the
//! driver domain, whose kernel handles the event, carries the packet through TX, softnet and RX (the
//! discipline says which packet is next) and sends an event to the receiving guest, whose kernel receives it.
//! One from outside comes over the link into the network card, whose interrupt is an event to the driver
//! domain, too. Everything but the links is processor time of some domain, and waits while its vCPU does not
//! execute.
//!
//! # Kernels
//! Each domain with an interface, and each driver domain, has a [`Kernel`] on its first vCPU: work in
//! interrupt context, ahead of the guest's tasks. It takes one step after the other, none of them preempted
//! inside the domain (the hypervisor takes the vCPU's processor away whenever it wants). What the next step
//! is, is decided when the step before is over and the vCPU executes, after everything that arrives at that
//! instant.
//!
//! - A **guest's kernel** first sends answers and acknowledgements, then receives what is in its RX rings,
//!   then sends what its flows and tasks want to send; interfaces take turns.
//! - A **driver's kernel** handles pending events and carries packets, see [`EventHandling`].
//!
//! An event to who already has one pending, or who is still at work on what it brought, is not sent: netfront
//! and netback look again before they rest. So packets that a guest puts into its TX ring while others of its
//! packets are there reach the discipline at once, and a card that is being polled does not interrupt.
//!
//! [`EventHandling`]: punctual_model::network::EventHandling

pub(crate) mod build;
mod carry;
mod clock;
mod flows;
mod kernel;
mod results;

use std::collections::{BTreeMap, VecDeque};

use punctual_jobs::flow::GooseState;
use punctual_jobs::stream::{Receiver, Sender};
use punctual_jobs::{mix, uniform_ns};
use punctual_model::Histogram;
use punctual_model::index::TaskIx;
use punctual_model::network::{EventHandling, NetworkCosts, Nic};
use punctual_model::results::{JobStats, PacketCounts, Segment};
use punctual_net::event_channel::{EventChannels, Port};
use punctual_net::{Discipline, InterfaceId, Step};
use punctual_sched::{Duration, Instant};

use crate::index::{KernelIx, ProcessorIx, UnitIx, indexes};
use clock::Clock;

/// Parts of a packet's way.
pub(crate) const SEGMENTS: usize = Segment::ALL.len();

/// Everything about networks.
#[derive(Default)]
pub(crate) struct Net {
    pub(crate) kernels: Vec<Kernel>,
    bridges: Vec<Bridge>,
    /// Guests' interfaces, those of one bridge contiguous and in its order.
    interfaces: Vec<Interface>,
    packets: Packets,
    lanes: Vec<Lane>,
    flows: Vec<FlowState>,
    chains: Vec<ChainState>,
    /// By task: its place in a chain.
    chain_of_task: Vec<Option<ChainStep>>,
    /// By task: what released its jobs that are not finished, for tasks that packets release.
    served: Vec<VecDeque<Served>>,
    pub(crate) clock: Clock,
    /// Kernels that choose their next step at this instant.
    pub(crate) choosers: Vec<KernelIx>,
}

/// What a kernel is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing to do: the guest's tasks run.
    Idle,
    /// There is work; what exactly is decided as soon as the vCPU executes.
    Choosing,
    Stepping,
}

/// A step of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    None,
    /// A driver handles the event on a port.
    Event(Port),
    Carry(Step),
    /// A guest receives the first packet of an interface's RX ring.
    Receive {
        interface: u32,
    },
    Send {
        interface: u32,
        packet: u32,
    },
}

/// A domain's work in interrupt context, on its first vCPU.
pub(crate) struct Kernel {
    pub(crate) proc: ProcessorIx,
    pub(crate) vcpu: UnitIx,
    pub(crate) state: State,
    /// Does the vCPU execute, and on which physical processor?
    pub(crate) powered: bool,
    pub(crate) root: ProcessorIx,
    /// What is left of the step, and since when it executes, while it does.
    pub(crate) left: Duration,
    pub(crate) from: Instant,
    pub(crate) spent: Duration,
    /// Has it just found something to do after it had nothing?
    woke: bool,
    /// Was its processor busy then?
    was_busy: bool,
    /// Since when its vCPU does not execute although it has something to do.
    off_since: Option<Instant>,
    /// Was that for long?
    resumes: bool,
    work: Work,
    began: Instant,
    /// Part of the step that sends an event.
    event_part: Duration,
    /// The network that the domain drives.
    bridge: Option<u32>,
    /// Its interfaces in other networks, and whose turn it is.
    interfaces: Vec<u32>,
    turn: usize,
}

indexes!(KernelIx, Kernel);

/// A driver domain's side of a network.
struct Bridge {
    kernel: KernelIx,
    discipline: Box<dyn Discipline>,
    channels: EventChannels,
    events: EventHandling,
    costs: NetworkCosts,
    nic: Nic,
    card: InterfaceId,
    card_port: Port,
    /// The interface that each port belongs to, or none for the card.
    owner_of_port: Vec<Option<u32>>,
    /// The interface of each [`InterfaceId`], for classes the one that they are of; the card is none.
    interface_of_id: Vec<Option<u32>>,
    /// In the card until its interrupt is handled.
    in_card: VecDeque<u32>,
    /// Packets from the card before or in the softnet stage.
    polled: u32,
    /// [`EventHandling::OneByOne`]: packets carried since the last event, while they go on.
    since_event: Option<u32>,
    /// The link is free again then.
    inward_free_at: Instant,
    outward_free_at: Instant,
    credit_at: Instant,
    outside: Vec<punctual_model::network::OutsideHost>,
    /// For the jitter of costs.
    random: u64,
    carried: [u64; 3],
    events_handled: u64,
    events_sent: u64,
}

/// A guest's interface.
struct Interface {
    bridge: u32,
    id: InterfaceId,
    /// Those of its classes, by PCP: for what it sends, and for what comes from outside.
    classes: BTreeMap<u8, InterfaceClass>,
    port: Port,
    kernel: KernelIx,
    /// Answers and acknowledgements to be sent, and everything else.
    soft: VecDeque<u32>,
    sends: VecDeque<u32>,
    /// In the TX ring, not yet seen by netback.
    posted: VecDeque<u32>,
    /// Packets in the TX stage or before it.
    in_tx: u32,
    ring_slots: u32,
    /// With classes: those in the TX ring in their order, and whether they are through TX. Slots become free
    /// in this order, whatever a more urgent class has overtaken.
    in_order: VecDeque<(u32, bool)>,
    /// Does it wait for a free slot? Set when there is none, cleared by the event that announces free slots.
    blocked: bool,
    /// Those in the RX ring; this many of them, from the front, have seen the vCPU execute.
    received: VecDeque<u32>,
    seen: usize,
    /// Has an event been sent that the kernel is still at work on?
    polling: bool,
    /// Has that event's handling still to be paid for?
    interrupt: bool,
}

/// The interfaces of a class in the discipline.
#[derive(Clone, Copy)]
struct InterfaceClass {
    sends: InterfaceId,
    from_card: InterfaceId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Interface(u32),
    Outside { bridge: u32, host: u32 },
}

/// One direction of a flow, or a hop of a chain: packets that keep their order.
struct Lane {
    from: End,
    to: End,
    /// What the discipline sees of the ends.
    source: InterfaceId,
    destination: InterfaceId,
    /// Index of the flow, then of the chain.
    owner: u32,
    created: u64,
}

/// What a packet is to its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// To be answered; its number.
    Request(u64),
    /// The answer.
    Reply(u64),
    /// Number in a stream.
    Data(u64),
    /// Everything before is there.
    Ack(u64),
    Plain,
    /// Releases the task of this step of its chain.
    Hop {
        step: u32,
    },
}

#[derive(Clone, Copy)]
struct Packet {
    lane: u32,
    number: u64,
    role: Role,
    bytes: u32,
    /// What its latency counts from.
    origin: Instant,
    /// The end of the last segment.
    mark: Instant,
    segments: [Duration; SEGMENTS],
}

/// All packets on their way, at places that are used again.
#[derive(Default)]
struct Packets {
    list: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    fn add(&mut self, packet: Packet) -> u32 {
        if let Some(place) = self.free.pop() {
            self.list[place as usize] = packet;
            return place;
        }
        self.list.push(packet);
        self.list.len() as u32 - 1
    }

    fn remove(&mut self, packet: u32) {
        self.free.push(packet);
    }

    fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// A segment of the packet's way ends now.
    #[inline]
    fn stamp(&mut self, packet: u32, segment: Segment, now: Instant) {
        let packet = &mut self.list[packet as usize];
        packet.segments[segment as usize] += now.since(packet.mark);
        packet.mark = now;
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, packet: u32) -> &Packet {
        &self.list[packet as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    #[inline]
    fn index_mut(&mut self, packet: u32) -> &mut Packet {
        &mut self.list[packet as usize]
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    SendQueue,
    Card,
    Softnet,
    Destination,
}

/// Latencies and where they went.
#[derive(Default)]
struct Times {
    latency: Histogram,
    segments: [Histogram; SEGMENTS],
}

impl Times {
    fn record(&mut self, latency: Duration, segments: &[Duration; SEGMENTS]) {
        self.latency.record(latency);
        for (histogram, &time) in self.segments.iter_mut().zip(segments) {
            histogram.record(time);
        }
    }
}

/// What a flow or chain has in common.
#[derive(Default)]
struct Tally {
    packets: PacketCounts,
    times: Times,
    alive: u64,
}

struct FlowState {
    traffic: punctual_model::network::Traffic,
    /// From the one that begins to the other end, and back.
    forth: u32,
    back: u32,
    tally: Tally,
    deadline: Option<Duration>,
    late: u64,
    timeouts: u64,
    retransmissions: u64,
    /// Requests, bursts or packets so far, and at most.
    number: u64,
    count: u64,
    /// Requests without an answer yet, and when they are given up.
    waiting: VecDeque<(u64, Instant)>,
    seed: u64,
    goose: GooseState,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    /// Is the timer set that gives up a request?
    request_set: bool,
    /// A stream's silence lasts too long from then on.
    silence_at: Instant,
    /// When the stream's timer fires, if it is set. It is not moved to a later time, but looks again when it
    /// fires.
    silence_set_for: Instant,
    /// A packet of a stream is acknowledged at the latest then, and is the timer for it set?
    ack_at: Instant,
    ack_set: bool,
}

struct ChainState {
    /// The lane to each step from the one before, unless that is in the same domain. The first has none.
    lanes: Vec<Option<u32>>,
    steps: Vec<TaskIx>,
    bytes: u32,
    deadline: Duration,
    tally: Tally,
    jobs: JobStats,
    /// Jobs that ended by their deadline.
    in_time: u64,
    /// By step: the hops on their way to it, and the release of the first step that each began with.
    origins: Vec<VecDeque<(u64, Instant)>>,
}

#[derive(Clone, Copy)]
struct ChainStep {
    chain: u32,
    step: u32,
}

/// What released a job of a task.
#[derive(Clone, Copy)]
struct Served {
    release: Instant,
    /// The release of the chain's first step.
    origin: Instant,
    packet: Option<u32>,
}

impl Net {
    /// When something happens by itself next.
    #[inline]
    pub(crate) fn at(&self) -> Instant {
        self.clock.at()
    }

    /// When a job of a task that packets release was released: this many earlier jobs are unfinished, too.
    pub(crate) fn release_of(&self, task: TaskIx, before: usize) -> Option<Instant> {
        Some(self.served.get(task.0)?.get(before)?.release)
    }

    fn tally(&mut self, owner: u32) -> &mut Tally {
        let owner = owner as usize;
        match owner.checked_sub(self.flows.len()) {
            None => &mut self.flows[owner].tally,
            Some(chain) => &mut self.chains[chain].tally,
        }
    }
}

impl Bridge {
    /// Is it the card, or a class of what comes from it?
    #[inline]
    fn is_card(&self, id: InterfaceId) -> bool {
        self.interface_of_id[id.index()].is_none()
    }

    /// A step's cost with its jitter.
    #[inline]
    fn vary(&mut self, cost: Duration) -> Duration {
        let ppm = u64::from(self.costs.jitter_ppm);
        if ppm == 0 {
            return cost;
        }
        self.random = self.random.wrapping_add(1);
        let most_ns = u128::from(cost.as_ns()) * u128::from(ppm) / 1_000_000;
        cost + Duration::from_ns(uniform_ns(most_ns as u64, mix(self.random, 0)))
    }

    /// What a wake-up of a guest costs now, on a processor that was busy or idle.
    #[inline]
    fn wake(&mut self, was_busy: bool) -> Duration {
        let costs = if was_busy { self.costs.guest_wake_busy } else { self.costs.guest_wake };
        if !costs.varies() {
            let wake = costs.median;
            return if wake > Duration::ZERO { self.vary(wake) } else { wake };
        }
        self.random = self.random.wrapping_add(1);
        let ppm = uniform_ns(999_999, mix(self.random, 0)) as u32;
        self.vary(costs.at(ppm))
    }

    /// How long a packet occupies the link.
    fn wire_time(&self, bytes: u32) -> Duration {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        Duration::from_ns(bits.div_ceil(u128::from(self.nic.bandwidth_bps)) as u64)
    }
}

impl Interface {
    /// A packet of the TX ring is through stage TX.
    fn passed_tx(&mut self, packet: u32) {
        self.in_tx -= 1;
        // The places of packets are used again: what was through TX before has another packet's.
        if let Some((_, done)) = self.in_order.iter_mut().find(|(of, done)| *of == packet && !done) {
            *done = true;
        }
        while self.in_order.front().is_some_and(|(_, done)| *done) {
            self.in_order.pop_front();
        }
    }

    /// Free slots of the TX ring.
    #[inline]
    fn room(&self, discipline: &dyn Discipline) -> u32 {
        if !self.classes.is_empty() {
            return self.ring_slots.saturating_sub(self.in_order.len() as u32);
        }
        let free = discipline.room(self.id).unwrap_or(0);
        free.saturating_sub(self.posted.len() as u32)
    }
}
