//! The interface between a packet discipline and whatever drives it.
//!
//! A discipline holds the packets that wait in the manager domain and decides which is processed next. A
//! *driver* (the simulator, a switch, a test) owns the clock and the processor: it gives packets in, asks
//! what to do, lets the time pass that this takes, and says when it is done.
//!
//! # The contract
//!
//! - `now` never goes back from one call to the next.
//! - After [`Next::Process`] the driver lets the packet's cost in that stage pass, then calls
//!   [`Discipline::complete`], then asks again. Packets may arrive meanwhile. It does not ask again before.
//! - What arrives at the instant of a decision is given in before the driver asks.
//! - After [`Next::Idle`] the driver asks again when a packet has arrived; after [`Next::WaitUntil`] when a
//!   packet has arrived or that instant has come.
//! - One processor does it all: a kernel thread (stages TX and RX) and the softirq (softnet) never run at
//!   once. What another processor does is another discipline instance.
//! - All calls but [`Discipline::attach`], [`Discipline::replace`] and [`Discipline::reserve`] work without
//!   allocation.
//! - An [`InterfaceId`] that `attach` did not return is a programming error and panics.

use alloc::boxed::Box;

use punctual_sched::ParamError;
use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};
use punctual_sched::time::{Duration, Instant};

use crate::packet::{DropReason, Drops, InterfaceId, Packet, Stage};
use crate::token_bucket::Rate;

/// What is at the other end of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterfaceKind {
    /// A guest domain's `netif`: its packets enter at [`Stage::Tx`], packets for it leave at [`Stage::Rx`].
    #[default]
    Guest,
    /// A network card: its packets enter at [`Stage::Softnet`], and packets for it leave there.
    Device,
}

/// What a user may set for an interface. Each discipline reads what its registry entry lists and ignores the
/// rest; `None` means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceParams {
    /// Guest or device.
    pub kind: InterfaceKind,
    /// A smaller number is more urgent; without one the interface is less urgent than all that have one. What
    /// comes from a device without one is as urgent as the guest to which it goes.
    pub priority: Option<u32>,
    /// Packets in a batch, instead of the discipline's `batch`.
    pub batch: Option<u32>,
    /// Limit of the `softnet_data` queue of the interface's priority, instead of the discipline's
    /// `softnet_limit`; among interfaces of one priority the largest counts.
    pub softnet_limit: Option<u32>,
    /// Slots of the TX ring, and of the RX ring; [`RING_SLOTS_DEFAULT`].
    pub ring_slots: Option<u32>,
    /// Rate limit of what a guest sends. None for devices.
    pub rate: Option<Rate>,
}

/// Slots of a netif ring: one page (Xen `xen/include/public/io/netif.h`, `RING_SIZE` of a 4 KiB page).
pub const RING_SLOTS_DEFAULT: u32 = 256;

/// The largest queue limit, ring, batch and round, so that sums of them never overflow.
pub const COUNT_MAX: u32 = 65_536;

/// Kind of a parameter that counts packets.
pub(crate) const PACKETS: ParamKind = ParamKind::Count { min: 1, max: COUNT_MAX as u64 };

pub(crate) const PRIORITY: ParamInfo = ParamInfo {
    name: "priority",
    kind: ParamKind::Count { min: 0, max: u32::MAX as u64 },
    default: Some(ParamDefault::Words("least urgent")),
    help: "fixed priority of the interface's packets; a smaller number is more urgent",
};

pub(crate) const BATCH: ParamInfo = ParamInfo {
    name: "batch",
    kind: PACKETS,
    default: Some(ParamDefault::Words("the discipline's")),
    help: "packets processed in a stage before the next stage gets its turn",
};

pub(crate) const SOFTNET_LIMIT: ParamInfo = ParamInfo {
    name: "softnet_limit",
    kind: PACKETS,
    default: Some(ParamDefault::Words("the discipline's")),
    help: "packets that wait in the softnet_data queue of this priority; more are dropped",
};

pub(crate) const RING_SLOTS: ParamInfo = ParamInfo {
    name: "ring_slots",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(RING_SLOTS_DEFAULT as u64))),
    help: "slots of the interface's TX ring and of its RX ring",
};

pub(crate) const CREDIT_BYTES: ParamInfo = ParamInfo {
    name: "credit_bytes",
    kind: ParamKind::Count { min: 1, max: u64::MAX },
    default: Some(ParamDefault::Words("no limit")),
    help: "bytes the guest may send per credit_window",
};

pub(crate) const CREDIT_WINDOW: ParamInfo = ParamInfo {
    name: "credit_window",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Value(OptionValue::Duration(Duration::from_ms(50)))),
    help: "how often credit_bytes are credited",
};

pub(crate) const BURST_BYTES: ParamInfo = ParamInfo {
    name: "burst_bytes",
    kind: ParamKind::Count { min: 1, max: u64::MAX },
    default: Some(ParamDefault::Words("credit_bytes")),
    help: "credit that an idle guest saves up at most",
};

/// What to process, and for how long the round it belongs to goes on at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The stage.
    pub stage: Stage,
    /// The packet.
    pub packet: Packet,
    /// Is it the first of its round (the thread was scheduled, the softirq raised)? The driver adds what that
    /// costs.
    pub starts_round: bool,
    /// Packets left in the round at most, this one included.
    pub round_packets_max: u32,
    /// No packet of the round is started from here on.
    pub round_until: Instant,
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Process a packet; it is not interrupted.
    Process(Step),
    /// No packet may be processed before this instant, when a rate limit gives new credit.
    WaitUntil(Instant),
    /// No packet waits.
    Idle,
}

/// What became of the packet whose processing is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It waits for this stage, or will from the end of the round on.
    Queued(Stage),
    /// It has left the manager domain to its destination.
    Delivered,
    /// It is gone and was counted.
    Dropped(DropReason),
}

/// A packet discipline: see the module's contract.
pub trait Discipline: Send {
    /// Adds an interface. Guests are treated in this order where nothing else decides, as in the order of
    /// boot.
    ///
    /// # Errors
    /// [`ParamError`] names the parameter; the discipline is unchanged.
    fn attach(&mut self, now: Instant, params: &InterfaceParams) -> Result<InterfaceId, ParamError>;

    /// Gives a guest's interface to another guest, with these parameters. Packets of the old guest that are
    /// beyond stage TX go on. `false`, and nothing changes, while one waits for TX or is in it, and for
    /// devices.
    ///
    /// # Errors
    /// [`ParamError`] names the parameter; the discipline is unchanged.
    fn replace(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        params: &InterfaceParams,
    ) -> Result<bool, ParamError>;

    /// Makes room for so many interfaces in all, so that `attach` hardly allocates. The memory is touched
    /// when it is used.
    fn reserve(&mut self, interfaces: usize);

    /// A packet arrived from its source.
    ///
    /// # Errors
    /// Why it was dropped; it is counted.
    fn arrive(&mut self, now: Instant, packet: Packet) -> Result<(), DropReason>;

    /// A packet arrives and passes all stages at once, if no other is here: [`Discipline::arrive`],
    /// [`Discipline::next`] and [`Discipline::cut_through`] in one call. `None`, and nothing changes, if
    /// others wait, if the rate of its source is limited, and for devices. The driver calls
    /// [`Discipline::set_unread`] for the receiver before.
    ///
    /// # Panics
    /// While a packet is being processed.
    fn pass(&mut self, now: Instant, packet: &Packet) -> Option<Fate>;

    /// Chooses what is processed from `now` on.
    ///
    /// # Panics
    /// While a packet is being processed.
    fn next(&mut self, now: Instant) -> Next;

    /// The packet of the last [`Next::Process`] has been processed.
    ///
    /// # Panics
    /// When none is being processed.
    fn complete(&mut self, now: Instant) -> Fate;

    /// As [`Discipline::complete`], but a packet of stage TX may pass softnet and RX as well: if it goes to a
    /// guest, and if nothing that waits would be processed before it in these stages. Result and state are
    /// then those of `complete`, `next`, `complete`, `next` and `complete` at `now`: [`Fate::Delivered`], or
    /// dropped for [`DropReason::DestinationRing`]. The driver calls [`Discipline::set_unread`] before.
    ///
    /// # Panics
    /// When no packet is being processed.
    fn cut_through(&mut self, now: Instant) -> Fate;

    /// The guest has not read `packets` of those delivered to it. They occupy slots of its RX ring. A driver
    /// that never calls this has guests that read at once.
    fn set_unread(&mut self, interface: InterfaceId, packets: u32);

    /// Free slots of a guest's TX ring; `None` for a device, whose packets enter at softnet.
    fn room(&self, interface: InterfaceId) -> Option<u32>;

    /// Packets that came from `interface` and were dropped.
    fn drops(&self, interface: InterfaceId) -> Drops;

    /// Packets that wait for `stage`, not counting one being processed.
    fn waiting(&self, stage: Stage) -> usize;
}

impl Discipline for Box<dyn Discipline> {
    fn attach(&mut self, now: Instant, params: &InterfaceParams) -> Result<InterfaceId, ParamError> {
        (**self).attach(now, params)
    }

    fn replace(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        params: &InterfaceParams,
    ) -> Result<bool, ParamError> {
        (**self).replace(now, interface, params)
    }

    fn reserve(&mut self, interfaces: usize) {
        (**self).reserve(interfaces);
    }

    fn arrive(&mut self, now: Instant, packet: Packet) -> Result<(), DropReason> {
        (**self).arrive(now, packet)
    }

    fn pass(&mut self, now: Instant, packet: &Packet) -> Option<Fate> {
        (**self).pass(now, packet)
    }

    fn next(&mut self, now: Instant) -> Next {
        (**self).next(now)
    }

    fn complete(&mut self, now: Instant) -> Fate {
        (**self).complete(now)
    }

    fn cut_through(&mut self, now: Instant) -> Fate {
        (**self).cut_through(now)
    }

    fn set_unread(&mut self, interface: InterfaceId, packets: u32) {
        (**self).set_unread(interface, packets);
    }

    fn room(&self, interface: InterfaceId) -> Option<u32> {
        (**self).room(interface)
    }

    fn drops(&self, interface: InterfaceId) -> Drops {
        (**self).drops(interface)
    }

    fn waiting(&self, stage: Stage) -> usize {
        (**self).waiting(stage)
    }
}

/// What a driver does with a discipline whose type the compiler knows: calls of it are compiled into the
/// driver instead of going through a table ([`registry::build`](crate::registry::build)).
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<D: Discipline + 'static>(self, discipline: D) -> Self::Output;
}

/// Builds a discipline instance without interfaces.
pub type Build = fn(options: &Options) -> Result<Box<dyn Discipline>, OptionError>;

/// How far a discipline puts urgent packets before others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preemption {
    /// Not at all: it reads no priorities.
    None,
    /// Between batches: urgent packets wait for the rest of a turn of others.
    Batches,
    /// Between packets: only the packet that is being processed comes first.
    Packets,
}

/// Everything there is to know about a discipline without reading its code.
#[derive(Clone, Copy)]
pub struct DisciplineInfo {
    /// Name in host files and on the command line.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Where its rules come from: paper and section, or file in Xen or Linux.
    pub source: &'static str,
    /// Parameters of an interface that this discipline reads.
    pub interface_params: &'static [ParamInfo],
    /// Options of the discipline itself.
    pub options: &'static [ParamInfo],
    /// How far it puts urgent packets before others.
    pub preemption: Preemption,
    /// Builds an instance.
    pub build: Build,
}

impl core::fmt::Debug for DisciplineInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DisciplineInfo({})", self.name)
    }
}

impl PartialEq for DisciplineInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DisciplineInfo {}
