//! The vocabulary of traces: the events that a simulation or a live run reports to an observer.

use punctual_sched::{Duration, Instant};

use crate::index::{DomainIx, TaskIx, VcpuIx};
use crate::results::HostPart;
use punctual_host_stack::Who;

/// What a processor or a vCPU executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupant {
    /// Nothing.
    Idle,
    /// Nothing, while the vCPU's budget idles away (periodic server).
    IdleFor(Entity),
    /// A vCPU or a task.
    Unit(Entity),
    /// The scheduler itself: a decision, a context switch, waiting for the pool's lock.
    Overhead,
    /// The guest's kernel, at work on the network.
    Network,
    /// What was taken away from its pool: by a thread above its units, or because the machine stood still.
    Away {
        /// Was it a thread?
        by_thread: bool,
    },
}

/// A step of a domain's kernel for the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkStep {
    /// A guest sends a packet.
    Send,
    /// A driver domain handles an event.
    Event,
    /// A driver domain carries a packet through the TX stage.
    Tx,
    /// Through the softnet stage.
    Softnet,
    /// Through the RX stage.
    Rx,
    /// A guest receives a packet.
    Receive,
}

/// A packet in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRef {
    /// Whose it is: index of the flow, or, beyond the flows, of the chain.
    pub owner: usize,
    /// Unique in the run.
    pub id: u64,
}

/// A unit of some scheduler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Entity {
    /// A vCPU.
    Vcpu(VcpuIx),
    /// A task.
    Task(TaskIx),
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceEvent {
    /// An event of the host file.
    Changed {
        /// Its index.
        event: usize,
    },
    /// From now on the physical processor executes this (the unit of its pool's policy).
    Processor {
        /// The machine's number of the processor.
        processor: usize,
        /// What it executes.
        occupant: Occupant,
    },
    /// From now on the guest has chosen this for the vCPU. It executes while the vCPU itself runs.
    Vcpu {
        /// The vCPU.
        vcpu: VcpuIx,
        /// The unit of the guest's scheduler.
        occupant: Occupant,
    },
    /// The unit got work.
    Wake {
        /// Who.
        unit: Entity,
    },
    /// The unit has no more work.
    Sleep {
        /// Who.
        unit: Entity,
    },
    /// The unit's budget is now this.
    Budget {
        /// Whose.
        unit: Entity,
        /// What is left.
        left: Duration,
    },
    /// A job was released.
    Release {
        /// Of which task.
        task: TaskIx,
        /// The job's number, from 0.
        job: u64,
        /// When it is due.
        deadline: Instant,
    },
    /// A job finished.
    Completion {
        /// Of which task.
        task: TaskIx,
        /// The job's number, from 0.
        job: u64,
        /// From release to completion.
        response: Duration,
        /// Was it later than its deadline?
        missed: bool,
    },
    /// A step of a domain's kernel for the network is over.
    Network {
        /// The domain.
        domain: DomainIx,
        /// Which step.
        step: NetworkStep,
        /// The packet; an event has none.
        packet: Option<PacketRef>,
        /// When the step began. Until now the vCPU may have been without a processor in between.
        began: Instant,
    },
}

/// A job, from its release on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// Whose job it is.
    pub task: TaskIx,
    /// The job's number, from 0.
    pub job: u64,
    /// When it was released.
    pub release: Instant,
    /// When it is due.
    pub deadline: Instant,
    /// When a processor executed its first instruction.
    pub start: Option<Instant>,
    /// When it was complete; `None`: not by the end of the run.
    pub finish: Option<Instant>,
    /// Was it not complete at its deadline, which lies within the run?
    pub missed: bool,
}

/// What a slice ran on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlicePlace {
    /// A physical processor, by the machine's number.
    Processor(usize),
    /// A vCPU, which executed the slice while it had a processor itself.
    Vcpu(VcpuIx),
}

/// A time in which a processor or a vCPU did the same without a break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceRecord {
    /// On what.
    pub place: SlicePlace,
    /// Whose time it was.
    pub unit: Entity,
    /// Did nothing run, while the unit's budget idled away?
    pub idled_away: bool,
    /// When the processor decided for the unit.
    pub from: Instant,
    /// When the unit began to run: scheduling took the time between `from` and `start`.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
}

/// A packet of a flow, or a message that went through a chain, once it has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRecord<'a> {
    /// Whose it is: index of the flow, or, beyond the flows, of the chain.
    pub owner: usize,
    /// When it arrived; of a round trip, when the answer did.
    pub received: Instant,
    /// How long it took.
    pub latency: Duration,
    /// How long each part of its way took, in the order of [`Segment::ALL`](crate::results::Segment::ALL).
    pub segments: &'a [Duration],
}

/// Something that happened in the network stack of a Linux host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackEvent {
    /// From this event on the processor runs the thread.
    Thread {
        /// The processor.
        processor: usize,
        /// The thread; `None`: none.
        thread: Option<Who>,
    },
    /// A request has spent this time on a part of its way.
    Part {
        /// The server's number, counts included.
        server: usize,
        /// The request's number among those of this server, from 1.
        request: u64,
        /// The part.
        part: HostPart,
        /// When it began.
        began: Instant,
        /// When it ended; the way from the card onto the wire ends after the event.
        ended: Instant,
    },
}

/// Takes the events of a trace. Times never go back.
pub trait TraceSink<E = TraceEvent> {
    /// `event` happened at `at`.
    fn event(&mut self, at: Instant, event: E);
}

impl<E> TraceSink<E> for Vec<(Instant, E)> {
    fn event(&mut self, at: Instant, event: E) {
        self.push((at, event));
    }
}
