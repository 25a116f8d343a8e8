//! A plane: one thread that carries the packets of some ports through the stages of a discipline.
//!
//! The plane is the mechanism around a [`Discipline`], as the network of `punctual-sim` is in simulation. It
//! polls the TX rings of its ports, asks the discipline for the next packet, does the work of that packet's
//! stage and reports it complete:
//!
//! - **Ingress** (`ingress.rs`) pops a descriptor chain, reads its addresses and finds the receiver. The
//!   frame stays in its sender's memory. A port has at most [`WINDOW`](crate::port_queue::WINDOW) packets
//!   before stage TX; the others wait in the guest's ring, so a rate limit delays frames and never drops
//!   them.
//! - **Egress** (`egress.rs`): TX passes a packet on, softnet reports the receiver's free buffers, RX copies
//!   the frame from guest to guest and returns the sender's buffers. A packet cuts through: if nothing that
//!   waits would go before it in softnet and RX ([`Discipline::cut_through`]), the three stages are one step.
//!   A frame of the only port that has any does not even wait ([`Discipline::pass`]).
//! - **Notification** (`notify.rs`, `pending.rs`): publishing a used index and signalling a driver costs more
//!   than a stage, so the plane notifies up to `NOTIFY_BATCH_MAX` consecutive deliveries together. It
//!   notifies before it carries anything less urgent, and before it waits.
//! - **Commands** (`commands.rs`) from the control thread come through the mailbox.
//!
//! # Bounds
//! Before each decision the plane takes at most one frame from each port that it polls, and
//! `EXTRA_FRAMES_MAX` more in total. It reads `LOOK_DESCRIPTORS_MAX` descriptors and the rest of the last
//! frame, and passes over a port for a while whose frame had many. A frame that never becomes a packet is the
//! port's turn like any other. Nothing else happens between two decisions, so an urgent packet waits
//! for the packet in progress and for these frames. That packet may be in all stages at once; its copy, in
//! RX, takes most of the time. A plane reads its mailbox every `STEPS_PER_BATCH` steps. It allocates nothing
//! after the start.
//!
//! The plane does not poll a port that has two or more packets before stage TX. The discipline sees only the
//! first of them, and whether another one follows, so a further frame changes no decision.
//!
//! # Idle
//! Without packets a plane busy-polls for the configured time, then enables kicks and sleeps until a driver
//! kicks. It has no timer of its own.

mod commands;
mod egress;
mod ingress;
mod notify;
mod pending;
mod polled;
pub(crate) mod step_times;
mod timed;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_net::{Discipline, InterfaceParams, Next, Stage};
use punctual_sched::{Duration, Instant};
use rustix::event::epoll;

use self::pending::PendingNotify;
use self::polled::PolledRing;
use self::step_times::{PublishTime, StepTimes};
use crate::budget::{Meter, PlaneBudget};
use crate::check::{Checker, Violation};
use crate::error::RingError;
use crate::limits::PORTS_MAX;
use crate::mailbox::{Command, Mailbox};
use crate::port_queue::{Membership, PortQueue};
use crate::ring::RxRing;
#[cfg(feature = "testing")]
use crate::ring::TxRing;
use crate::shared::Shared;
use crate::stats::{PlaneStats, PortStats};
use crate::sys::{faults, processor_time, timespec};
use crate::vlan::{Filter, Vlan};

/// Steps between two reads of the mailbox.
const STEPS_PER_BATCH: usize = 64;

/// Ports that are polled in turns, and that a plane that waits looks at between two looks at the others.
const BUSY_POLL_PORTS: usize = 16;

/// The epoll data of the mailbox; ports use their numbers.
const MAILBOX: u64 = u64::MAX;

/// What connects a plane with the other threads.
pub(crate) struct PlaneHandles {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// `None`: the plane's processor time is not limited.
    pub(crate) plane_budget: Option<Arc<PlaneBudget>>,
    /// `None`: the network has no VLANs.
    pub(crate) vlans: Option<Arc<Filter>>,
}

pub(crate) struct Plane<D> {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    plane_budget: Option<Arc<PlaneBudget>>,
    /// This thread's share of the budget.
    meter: Option<Meter>,
    discipline: D,
    /// By port, if this is the only plane. Several planes share the RX rings in
    /// [`SharedPort::rx`](crate::shared::SharedPort::rx), and this is empty.
    rx_rings: Vec<Option<Box<RxRing>>>,
    vlans: Option<Arc<Filter>>,
    pub(crate) checker: Option<Checker>,
    /// May packets pass all stages in one step?
    cuts_through: bool,
    /// How long the plane busy-polls before it sleeps.
    pub(crate) poll_time: Duration,
    epoll: OwnedFd,
    /// Watches only the mailbox.
    mailbox_epoll: OwnedFd,
    ports: Vec<PortQueue>,
    /// The TX rings that this plane polls, most urgent first.
    served: Vec<PolledRing>,
    /// The first ports of `served` that are polled before every decision; the others take turns.
    always_polled: usize,
    rotation: usize,
    /// Packets in the discipline.
    inside: usize,
    /// The last look passed over a port with a frame.
    has_skipped: bool,
    /// The port of which a frame is taken is the only one with any, and no packet waits. Ports that are
    /// polled in turns do not count.
    is_sole: bool,
    /// A frame of the last look has passed all stages.
    has_passed: bool,
    /// [`faults`] when the plane last looked for their ports.
    faults: u32,
    now: Instant,
    steps_since_clock: u32,
    pending: PendingNotify,
    stats: PlaneStats,
}

/// What a batch of steps left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// There may be more packets.
    Pending,
    /// Packets are delayed until then.
    DelayedUntil(Instant),
    /// No packet waits.
    Done,
}

/// What ends a wait.
#[derive(Clone, Copy, Debug)]
enum WaitFor {
    /// Kicks and commands.
    Anything,
    /// Commands only.
    Mailbox,
}

/// What a plane returns when its thread ends.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ports: Vec<PortStats>,
    pub(crate) stats: PlaneStats,
    pub(crate) checked: Option<Result<[u64; 3], Violation>>,
}

/// A plane under any discipline.
pub(crate) trait RunPlane: Send {
    /// Runs until [`Command::Exit`].
    fn run(self: Box<Self>) -> Outcome;

    /// As [`RunPlane::run`], and reads the clock between the steps.
    fn run_timed(self: Box<Self>, published: &PublishTime) -> (Outcome, StepTimes);

    /// Starts the rings of a port, for [`crate::testing::SteppedPlane`].
    #[cfg(feature = "testing")]
    fn start_rings(&mut self, port: usize, tx: Box<TxRing>, rx: Box<RxRing>);

    /// Stops a port's TX ring.
    #[cfg(feature = "testing")]
    fn stop_ring(&mut self, port: usize);

    /// Starts a port's TX ring.
    #[cfg(feature = "testing")]
    fn start_ring(&mut self, port: usize, tx: Box<TxRing>);

    /// Lets no packet pass several stages in one step.
    #[cfg(feature = "testing")]
    fn forbid_cut_through(&mut self);

    /// Runs until no packet waits.
    #[cfg(feature = "testing")]
    fn run_to_idle(&mut self);

    /// Looks at the rings once. Returns whether a frame passed all stages, and how many packets wait.
    #[cfg(feature = "testing")]
    fn look(&mut self) -> (bool, usize);

    /// Ends a plane that has no thread.
    #[cfg(feature = "testing")]
    fn end(self: Box<Self>) -> Outcome;
}

impl<D: Discipline> RunPlane for Plane<D> {
    fn run(self: Box<Self>) -> Outcome {
        (*self).run()
    }

    fn run_timed(self: Box<Self>, published: &PublishTime) -> (Outcome, StepTimes) {
        (*self).run_timed(published)
    }

    #[cfg(feature = "testing")]
    fn start_rings(&mut self, port: usize, tx: Box<TxRing>, rx: Box<RxRing>) {
        self.command(Command::StartTx { port, ring: tx });
        self.rx_rings[port] = Some(rx);
    }

    #[cfg(feature = "testing")]
    fn stop_ring(&mut self, port: usize) {
        self.stop_tx(port);
    }

    #[cfg(feature = "testing")]
    fn start_ring(&mut self, port: usize, tx: Box<TxRing>) {
        self.command(Command::StartTx { port, ring: tx });
    }

    #[cfg(feature = "testing")]
    fn forbid_cut_through(&mut self) {
        self.cuts_through = false;
    }

    #[cfg(feature = "testing")]
    fn run_to_idle(&mut self) {
        self.read_clock();
        while self.run_batch() == Work::Pending || self.has_pending() {
            self.read_clock();
        }
    }

    #[cfg(feature = "testing")]
    fn look(&mut self) -> (bool, usize) {
        self.poll();
        (self.has_passed, self.inside)
    }

    #[cfg(feature = "testing")]
    fn end(self: Box<Self>) -> Outcome {
        (*self).finish()
    }
}

impl<D: Discipline> Plane<D> {
    /// A plane that serves the ports for which `is_served` is true. All ports are attached to the discipline
    /// already, with these parameters.
    pub(crate) fn new(
        handles: PlaneHandles,
        discipline: D,
        is_served: impl Fn(usize) -> bool,
        params: &[InterfaceParams],
    ) -> std::io::Result<Self> {
        let PlaneHandles { shared, mailbox, plane_budget, vlans } = handles;
        let queue = |(port, params)| PortQueue::new(port, params, is_served(port), vlans.is_some());
        let mut ports = Vec::with_capacity(PORTS_MAX.max(params.len()));
        ports.extend(params.iter().enumerate().map(queue));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mailbox_epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for set in [&epoll, &mailbox_epoll] {
            epoll::add(set, mailbox.event(), epoll::EventData::new_u64(MAILBOX), flags)?;
        }
        let mut rx_rings = Vec::new();
        if shared.sole_plane.is_some() {
            rx_rings.resize_with(PORTS_MAX, || None);
        }
        let mut plane = Plane {
            rx_rings,
            shared,
            mailbox,
            plane_budget,
            meter: None,
            discipline,
            vlans,
            checker: None,
            cuts_through: true,
            poll_time: Duration::ZERO,
            epoll,
            mailbox_epoll,
            ports,
            always_polled: 0,
            served: Vec::with_capacity(PORTS_MAX),
            rotation: 0,
            inside: 0,
            has_skipped: false,
            is_sole: false,
            has_passed: false,
            faults: faults(),
            now: Instant::ZERO,
            steps_since_clock: 0,
            pending: PendingNotify::new(),
            stats: PlaneStats::default(),
        };
        (0..params.len()).filter(|port| is_served(*port)).for_each(|port| plane.add_served(port));
        Ok(plane)
    }

    /// What is sent from `port` counts as sent from the port `home`.
    pub(crate) fn set_home(&mut self, port: usize, home: usize) {
        self.ports[port].home = home;
    }

    pub(crate) fn set_membership(&mut self, port: usize, membership: Membership) {
        self.ports[port].membership = membership;
    }

    /// May a frame of `vlan` leave through `port`? Without VLANs every port is in the only one.
    #[inline]
    fn admits(&self, port: usize, vlan: Vlan, is_stacked: bool) -> bool {
        self.vlans.as_ref().is_none_or(|filter| filter.admits(port, vlan, is_stacked))
    }

    fn run(mut self) -> Outcome {
        self.meter = self.plane_budget.clone().map(|budget| Meter::new(budget, self.shared.now()));
        loop {
            while let Some(command) = self.mailbox.try_recv() {
                if matches!(command, Command::Exit) {
                    return self.finish();
                }
                self.command(command);
            }
            self.now = self.shared.now();
            if self.throttle() {
                continue;
            }
            match self.run_batch() {
                Work::Pending => {}
                Work::DelayedUntil(until) => self.idle(Some(until)),
                Work::Done => self.idle(None),
            }
        }
    }

    /// Breaks the ports whose memory has missing pages.
    #[cold]
    fn break_faulted(&mut self) {
        // Before the look: later faults are found by the next one.
        self.faults = faults();
        for port in 0..self.ports.len() {
            if self.has_faulted(port) {
                self.break_port(port, RingError::MissingPages);
            }
        }
    }

    /// Has a ring of this port memory with missing pages?
    fn has_faulted(&self, port: usize) -> bool {
        let of_rx = |rx: &Option<Box<RxRing>>| rx.as_ref().is_some_and(|rx| rx.has_faulted());
        let in_rx = match self.rx_rings.get(port) {
            Some(rx) => of_rx(rx),
            None => self.shared.ports[port].rx.with(|rx| of_rx(rx)),
        };
        in_rx || self.ports[port].tx.as_ref().is_some_and(|tx| tx.has_faulted())
    }

    fn finish(mut self) -> Outcome {
        let left: usize =
            [Stage::Tx, Stage::Softnet, Stage::Rx].map(|stage| self.discipline.waiting(stage)).iter().sum();
        for port in 0..self.ports.len() {
            self.stop_tx(port);
        }
        let checked = self.checker.as_mut().map(|checker| checker.finish(left as u64));
        let stats = self.stats();
        let ports = self.ports.into_iter().map(|port| port.stats).collect();
        Outcome { ports, stats, checked }
    }

    fn stats(&self) -> PlaneStats {
        PlaneStats {
            processor_ns: processor_time().as_ns(),
            exhaustions: self.plane_budget.as_ref().map_or(0, |budget| budget.exhaustions()),
            ..self.stats
        }
    }

    /// Waits for the next replenishment, or a command, if the budget is exhausted. Returns whether it was.
    fn throttle(&mut self) -> bool {
        let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due(self.now)) else { return false };
        let Some(until) = meter.settle(self.now) else { return false };
        self.wait(WaitFor::Mailbox, Some(until));
        true
    }

    /// Runs up to [`STEPS_PER_BATCH`] steps.
    fn run_batch(&mut self) -> Work {
        let mut work = Work::Pending;
        for _ in 0..STEPS_PER_BATCH {
            if self.meter.as_ref().is_some_and(|meter| meter.is_due(self.now)) {
                break;
            }
            self.poll();
            if !self.has_passed || self.inside > 0 {
                match self.discipline.next(self.now) {
                    Next::Process(step) => self.run_step(&step),
                    Next::WaitUntil(until) => work = Work::DelayedUntil(until),
                    // What was delivered does not wait for ports that are passed over.
                    Next::Idle if self.has_skipped => self.notify(),
                    Next::Idle => work = Work::Done,
                }
                if work != Work::Pending {
                    break;
                }
            }
            if self.faults != faults() {
                self.break_faulted();
            }
        }
        self.notify();
        work
    }

    #[inline]
    fn read_clock(&mut self) {
        self.steps_since_clock = 0;
        self.now = self.shared.now();
    }

    /// Busy-polls, then sleeps, until a kick, a command or `until`.
    fn idle(&mut self, until: Option<Instant>) {
        if self.poll_time > Duration::ZERO && self.busy_poll(until) {
            return;
        }
        if self.enable_kicks() {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.sleep(self.shared.now());
        }
        self.wait(WaitFor::Anything, until);
        if let Some(meter) = &mut self.meter {
            meter.wake(self.shared.now());
        }
    }

    fn wait(&mut self, what: WaitFor, until: Option<Instant>) {
        let now = self.shared.now();
        let timeout = until.filter(|until| *until != Instant::NEVER).map(|until| timespec(until.since(now)));
        let epoll = match what {
            WaitFor::Anything => &self.epoll,
            WaitFor::Mailbox => &self.mailbox_epoll,
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        // An interrupted wait is a wake-up like any other: the loop looks for work.
        let _ = epoll::wait(epoll, &mut events[..], timeout.as_ref());
        self.stats.wakeups += 1;
    }

    /// Polls for [`Plane::poll_time`]. Returns whether there is work, so that the plane must not sleep.
    fn busy_poll(&mut self, until: Option<Instant>) -> bool {
        let mut end = self.shared.now() + self.poll_time;
        if let Some(until) = until {
            end = end.min(until);
        }
        let check_at = self.meter.as_ref().map_or(Instant::NEVER, Meter::check_at);
        let mut next = self.always_polled;
        loop {
            if self.mailbox.has_commands() || self.has_pending_among(&mut next) {
                return true;
            }
            let now = self.shared.now();
            if now >= end {
                return until == Some(end);
            }
            if now >= check_at {
                return true;
            }
            std::hint::spin_loop();
        }
    }

    /// Could a frame be taken now from a port that is always polled, or from the next few others?
    #[inline]
    fn has_pending_among(&self, next: &mut usize) -> bool {
        let (always, others) = self.served.split_at(self.always_polled);
        let start = (*next - self.always_polled).min(others.len());
        let others = &others[start..others.len().min(start + BUSY_POLL_PORTS)];
        let has_pending = |rings: &[PolledRing]| rings.iter().any(PolledRing::has_pending);
        let end = self.always_polled + start + others.len();
        *next = if end < self.served.len() { end } else { self.always_polled };
        has_pending(always) || has_pending(others)
    }

    /// Could a frame be taken now?
    #[cfg(any(test, feature = "testing"))]
    fn has_pending(&self) -> bool {
        self.served.iter().any(PolledRing::has_pending)
    }

    /// Asks the drivers to kick. Returns whether a frame is available already.
    ///
    /// A driver that was asked kicks until the plane takes its next frame. It is not asked again, and a look
    /// at its index is enough: it sees the request after it has stored an index that this look does not see.
    fn enable_kicks(&mut self) -> bool {
        let mut is_pending = false;
        for at in 0..self.served.len() {
            let ring = &mut self.served[at];
            // A port without room waits for credit, not for its driver.
            if !ring.wants_frame() || ring.kicks() {
                is_pending |= ring.has_pending();
                continue;
            }
            let port = ring.port;
            let Some(tx) = &mut self.ports[port].tx else { continue };
            ring.set_kicks(true);
            match tx.enable_kick() {
                Ok(is_available) => is_pending |= is_available,
                Err(error) => self.break_port(port, error),
            }
        }
        is_pending
    }
}
