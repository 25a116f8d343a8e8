//! The events of the machine, for observers.
//!
//! The engine notifies an [`Observer`] of each [`Event`] at the instant at which it happens, and knows
//! nothing else about it. The invariants are judged by one ([`Checker`](crate::Checker)), traces are written
//! by another. Observers compose as tuples. The engine is compiled for its observer, so events without a
//! listener cost nothing.
//!
//! An observer draws its own conclusions. It gets what is fixed (which units and processors a scheduler has)
//! and what a policy says of itself ([`Policy::account`]) by reference; everything that changes it keeps
//! itself, from events.

use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::trace::{NetworkStep, PacketRef};
use punctual_sched::registry::PolicyInfo;
use punctual_sched::{Duration, Instant, Policy, Slice};

pub use crate::index::{Occupant, ProcessorIx, SchedulerIx, UnitIx};

/// A scheduler as observers see it.
#[derive(Clone, Copy)]
pub struct Scheduler<'a> {
    pub ix: SchedulerIx,
    pub policy: &'a dyn Policy,
    /// Its processors by [`CpuId`](punctual_sched::CpuId).
    pub processors: &'a [ProcessorIx],
    /// Its units by [`UnitId`](punctual_sched::UnitId).
    pub units: &'a [UnitIx],
}

/// Something that happens.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// Time has come to a new instant. Everything that follows happens then.
    Instant,
    /// The policy was called, other than to pick: accounts may have changed.
    Called {
        scheduler: Scheduler<'a>,
    },
    Timer {
        scheduler: SchedulerIx,
    },
    /// An event of the host, by index, has given units of the scheduler other parameters.
    Adjusted {
        event: usize,
        scheduler: SchedulerIx,
    },
    /// An event of the host, by index, has given the scheduler another policy. Its processors do nothing, and
    /// are asked to pick.
    Replaced {
        event: usize,
        scheduler: Scheduler<'a>,
        policy: &'static PolicyInfo,
    },
    /// The unit got work; its scheduler is notified next.
    Wake {
        unit: UnitIx,
        scheduler: SchedulerIx,
    },
    /// The unit has no more work; its scheduler is notified next.
    Sleep {
        unit: UnitIx,
        scheduler: SchedulerIx,
    },
    /// The scheduler of a unit that fell asleep has been notified, and has asked the processors that it wants
    /// to decide again.
    Asleep {
        unit: UnitIx,
    },
    /// The processor is to pick as soon as it can.
    Asked {
        processor: ProcessorIx,
    },
    /// The policy has picked for a processor. Nothing has followed from it yet.
    Picked {
        processor: ProcessorIx,
        scheduler: Scheduler<'a>,
        slice: Slice,
    },
    /// What was picked takes effect.
    Dispatched {
        processor: ProcessorIx,
        occupant: Occupant,
        /// Does it do something else than before?
        changed: bool,
        /// When the scheduling is over: now, or later where it costs time.
        start: Instant,
    },
    /// A processor did the same for a time that is over, and has been accounted for.
    Slice {
        processor: ProcessorIx,
        occupant: Occupant,
        /// Since when.
        from: Instant,
        /// Since when in earnest: from `from` until then, scheduling took the time.
        start: Instant,
    },
    /// All decisions of an instant are taken, and this scheduler was among those that were called.
    Settled {
        scheduler: Scheduler<'a>,
    },
    Release {
        task: TaskIx,
        job: u64,
        deadline: Instant,
        /// How long each part of the way of the packet took that released it; empty if none did.
        way: &'a [Duration],
    },
    /// The job is what its task works on from now on.
    Begin {
        task: TaskIx,
        job: u64,
        release: Instant,
        deadline: Instant,
    },
    Finish {
        task: TaskIx,
        job: u64,
        release: Instant,
        deadline: Instant,
    },
    /// The task holds a resource of its domain from now on. Resources are numbered through the domains.
    Locked {
        task: TaskIx,
        resource: usize,
    },
    Unlocked {
        task: TaskIx,
        resource: usize,
    },
    /// The task sleeps until it is given a resource, which another one holds from now on.
    Blocked {
        task: TaskIx,
        holder: TaskIx,
    },
    /// At the end: a job was due, and has not finished.
    Overdue {
        task: TaskIx,
        job: u64,
        release: Instant,
    },
    /// The kernel of this vCPU's domain has work to do, ahead of its guest.
    KernelBusy {
        unit: UnitIx,
    },
    /// The kernel has executed for a time that is over.
    KernelRan {
        unit: UnitIx,
        ran: Duration,
    },
    /// The kernel has nothing to do any more: the guest goes on.
    KernelIdle {
        unit: UnitIx,
        occupant: Occupant,
    },
    /// A step of a domain's kernel for the network is over.
    Step {
        domain: DomainIx,
        step: NetworkStep,
        /// The packet; an event has none.
        packet: Option<PacketRef>,
        began: Instant,
    },
    Packet(PacketEvent<'a>),
    /// At the end, what the engine counted for a physical processor.
    Accounted {
        processor: ProcessorIx,
        busy: Duration,
        idle: Duration,
        overhead: Duration,
    },
    /// The run is over, everything has been accounted for up to now.
    End,
}

/// What happens to packets. An owner is a flow's index or, beyond the flows, a chain's; a lane is one
/// direction of a flow, or a hop of a chain.
#[derive(Clone, Copy)]
pub enum PacketEvent<'a> {
    /// It came into being.
    Created {
        owner: u32,
        lane: u32,
        number: u64,
    },
    Delivered {
        owner: u32,
        lane: u32,
        number: u64,
    },
    Lost {
        owner: u32,
    },
    Timed {
        owner: u32,
        latency: Duration,
        segments: &'a [Duration],
    },
    Counted {
        owner: u32,
        /// Came into being.
        created: u64,
        delivered: u64,
        dropped: u64,
        on_their_way: u64,
    },
    /// At the end, the places that packets occupy.
    Held {
        places: u64,
        /// Those of requests that a task is to answer: they have arrived, and keep their place.
        answering: u64,
    },
}

/// Who watches a machine.
pub trait Observer {
    /// Does it want [`Event::Step`]? Looking up what the step was about costs time.
    const STEPS: bool = true;

    /// `event` happens at `now`, which never goes back.
    fn observe(&mut self, now: Instant, event: Event<'_>);

    /// Has it seen enough? The machine stops at once, and [`Observer::verdict`] says why.
    #[inline]
    fn stops(&self) -> bool {
        false
    }

    /// Why the machine stopped.
    fn verdict(&mut self) -> Option<String> {
        None
    }
}

/// No observer.
impl Observer for () {
    const STEPS: bool = false;

    #[inline(always)]
    fn observe(&mut self, _now: Instant, _event: Event<'_>) {}
}

impl<O: Observer> Observer for &mut O {
    const STEPS: bool = O::STEPS;

    #[inline(always)]
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        (**self).observe(now, event);
    }

    #[inline]
    fn stops(&self) -> bool {
        (**self).stops()
    }

    fn verdict(&mut self) -> Option<String> {
        (**self).verdict()
    }
}

/// It watches if there is one.
impl<O: Observer> Observer for Option<O> {
    const STEPS: bool = O::STEPS;

    #[inline(always)]
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        if let Some(observer) = self {
            observer.observe(now, event);
        }
    }

    #[inline]
    fn stops(&self) -> bool {
        self.as_ref().is_some_and(Observer::stops)
    }

    fn verdict(&mut self) -> Option<String> {
        self.as_mut().and_then(Observer::verdict)
    }
}

/// Both watch, the first first.
impl<A: Observer, B: Observer> Observer for (A, B) {
    const STEPS: bool = A::STEPS || B::STEPS;

    #[inline(always)]
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        self.0.observe(now, event);
        self.1.observe(now, event);
    }

    #[inline]
    fn stops(&self) -> bool {
        self.0.stops() || self.1.stops()
    }

    fn verdict(&mut self) -> Option<String> {
        self.0.verdict().or_else(|| self.1.verdict())
    }
}
