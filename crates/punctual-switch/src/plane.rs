//! A plane: one thread that carries the packets of some ports through the stages of a discipline.
//!
//! The plane is the mechanism around a [`Discipline`], what `punctual-sim`'s network is in simulation. It
//! looks for frames in the send rings of its ports, asks which packet is next, does what the stage takes, and
//! says when it is done:
//!
//! - **Taking a frame in** reads its descriptors and addresses, and finds the receiver. The frame stays in
//!   its sender's memory. A port has at most [`WINDOW`] packets before the TX stage; the others wait in the
//!   guest's ring, so a rate limit delays and never drops.
//! - **TX** hands it over, **softnet** asks how many buffers the receiver has, **RX** copies it from guest to
//!   guest, and gives the sender its buffers back.
//! - **Telling** both, in their rings and, if they want to hear, by an event, costs more than a stage.
//!   Deliveries in a row are told together, `NOTIFY_BATCH_MAX` at most; before something less urgent is carried, and
//!   before the plane waits.
//!
//! # Bounds
//! Before each decision the plane takes in at most one frame from each port it looks at, and `EXTRA_FRAMES_MAX`
//! more in all. Nothing else happens between two decisions, so an urgent packet waits for the packet in
//! progress and for that. Between two looks at its mailbox a plane takes 64 steps. Nothing is allocated after
//! the start.
//!
//! A port with two packets or more before the TX stage is not looked at: a discipline sees only the first of
//! them, and whether another one follows when it is through TX, so a frame behind them changes no decision.
//!
//! # Idle
//! Without packets a plane polls for as long as it was told to, then asks all drivers to ring and sleeps
//! until one does. It has no timer of its own.

mod commands;
mod egress;
mod ingress;
mod notify;
pub(crate) mod step_times;
mod timed;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use punctual_net::{Discipline, InterfaceParams, Next, Stage};
use punctual_sched::{Duration, Instant};
use rustix::event::epoll;

use crate::budget::{Meter, PlaneBudget};
use crate::check::{Checker, Violation};
use crate::event::Notice;
use crate::limits::PORTS_MAX;
use crate::mailbox::{Command, Mailbox};
use crate::port_queue::PortQueue;
use crate::ring::RxRing;
use crate::shared::Shared;
use crate::stats::{PlaneStats, PortStats};
use crate::sys::{processor_time, timespec};
use crate::vlan::{Filter, Vlan};

/// Steps between two looks at the mailbox.
const STEPS_PER_BATCH: usize = 64;

/// What connects a plane with the other threads.
pub(crate) struct PlaneHandles {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) notices: Sender<Notice>,
    /// The processor time that the plane may take, if that is limited.
    pub(crate) plane_budget: Option<Arc<PlaneBudget>>,
    /// Where the network has VLANs.
    pub(crate) vlans: Option<Arc<Filter>>,
}

/// A plane; see the module.
pub(crate) struct Plane<D> {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    notices: Sender<Notice>,
    plane_budget: Option<Arc<PlaneBudget>>,
    /// This thread's part in the plane_budget.
    meter: Option<Meter>,
    discipline: D,
    /// By port, the rings with which VMs receive, if this is the only plane; otherwise none, and planes share
    /// them ([`SharedPort::receive`]).
    rx_rings: Vec<Option<Box<RxRing>>>,
    /// Where the network has VLANs.
    vlans: Option<Arc<Filter>>,
    pub(crate) checker: Option<Checker>,
    /// How long it polls before it sleeps.
    pub(crate) poll_time: Duration,
    epoll: OwnedFd,
    /// Hears the mailbox alone.
    mailbox_epoll: OwnedFd,
    ports: Vec<PortQueue>,
    /// Its own ports, most urgent first; so many of them are looked at before every decision.
    served: Vec<usize>,
    always_polled: usize,
    rotation: usize,
    now: Instant,
    steps_since_clock: u32,
    pending: notify::PendingNotify,
    stats: PlaneStats,
}

/// What a plane waits for.
#[derive(Clone, Copy, Debug)]
enum WaitFor {
    /// Frames and commands.
    Anything,
    /// Commands.
    Mailbox,
}

/// What a plane leaves behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ports: Vec<PortStats>,
    pub(crate) stats: PlaneStats,
    pub(crate) checked: Option<Result<[u64; 3], Violation>>,
}

/// The event of the mailbox; ports have their own numbers.
const MAILBOX: u64 = u64::MAX;

/// A plane under whatever discipline.
pub(crate) trait Work: Send {
    /// Works until it is told to end.
    fn run(self: Box<Self>) -> Outcome;

    /// The same, with a clock between the steps.
    fn run_timed(self: Box<Self>, shown: &step_times::PublishTime) -> (Outcome, step_times::StepTimes);
}

impl<D: Discipline> Work for Plane<D> {
    fn run(self: Box<Self>) -> Outcome {
        (*self).run()
    }

    fn run_timed(self: Box<Self>, shown: &step_times::PublishTime) -> (Outcome, step_times::StepTimes) {
        (*self).run_timed(shown)
    }
}

impl<D: Discipline> Plane<D> {
    /// A plane of those ports for which `is_own` says so. All ports are attached to the discipline, with
    /// these parameters.
    pub(crate) fn new(
        threads: PlaneHandles,
        discipline: D,
        is_own: impl Fn(usize) -> bool,
        params: &[InterfaceParams],
    ) -> std::io::Result<Self> {
        let PlaneHandles { shared, mailbox, notices, plane_budget, vlans } = threads;
        let local = |(port, params)| PortQueue::new(params, is_own(port), vlans.is_some());
        let mut ports = Vec::with_capacity(PORTS_MAX.max(params.len()));
        ports.extend(params.iter().enumerate().map(local));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mailbox_epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for hears in [&epoll, &mailbox_epoll] {
            epoll::add(hears, &mailbox.event, epoll::EventData::new_u64(MAILBOX), flags)?;
        }
        let mut rx_rings = Vec::new();
        if shared.sole_plane.is_some() {
            rx_rings.resize_with(PORTS_MAX, || None);
        }
        let mut plane = Plane {
            rx_rings,
            shared,
            mailbox,
            notices,
            plane_budget,
            meter: None,
            discipline,
            vlans,
            checker: None,
            poll_time: Duration::ZERO,
            epoll,
            mailbox_epoll,
            ports,
            always_polled: 0,
            served: Vec::with_capacity(PORTS_MAX),
            rotation: 0,
            now: Instant::ZERO,
            steps_since_clock: 0,
            pending: notify::PendingNotify::new(),
            stats: PlaneStats::default(),
        };
        (0..params.len()).filter(|port| is_own(*port)).for_each(|port| plane.add_served(port));
        Ok(plane)
    }

    /// Is a port in a VLAN? Without VLANs all are in the only one.
    #[inline]
    fn is_in(&self, port: usize, vlan: Vlan) -> bool {
        self.vlans.as_ref().is_none_or(|filter| filter.contains(port, vlan))
    }

    /// Works until it is told to end.
    fn run(mut self) -> Outcome {
        self.meter =
            self.plane_budget.clone().map(|plane_budget| Meter::new(plane_budget, self.shared.now()));
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
            if let Some(until) = self.run_batch() {
                self.idle(until);
            }
        }
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

    /// What was counted so far.
    fn stats(&self) -> PlaneStats {
        PlaneStats {
            processor_ns: processor_time().as_ns(),
            exhaustions: self.plane_budget.as_ref().map_or(0, |plane_budget| plane_budget.exhaustions()),
            ..self.stats
        }
    }

    /// Is the budget used up? Then this waits until there is some, or a command.
    fn throttle(&mut self) -> bool {
        let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due(self.now)) else { return false };
        let Some(until) = meter.settle(self.now) else { return false };
        self.wait(WaitFor::Mailbox, Some(until));
        true
    }

    /// Carries packets for a turn. Returns until when there is nothing to do, if there is not.
    fn run_batch(&mut self) -> Option<Option<Instant>> {
        let mut rest = None;
        for _ in 0..STEPS_PER_BATCH {
            if self.meter.as_ref().is_some_and(|meter| meter.is_due(self.now)) {
                break;
            }
            self.poll();
            match self.discipline.next(self.now) {
                Next::Process(step) => self.run_step(&step),
                Next::WaitUntil(until) => rest = Some(Some(until)),
                Next::Idle => rest = Some(None),
            }
            if rest.is_some() {
                break;
            }
        }
        self.notify();
        rest
    }

    #[inline]
    fn read_clock(&mut self) {
        self.steps_since_clock = 0;
        self.now = self.shared.now();
    }

    /// Nothing to do until then, or until somebody rings.
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
        for at in 0..self.served.len() {
            let port = self.served[at];
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.disable_kick()) {
                self.break_port(port, broken);
            }
        }
    }

    /// Sleeps until something happens, or until then.
    fn wait(&mut self, what: WaitFor, until: Option<Instant>) {
        let now = self.shared.now();
        let timeout = until.filter(|until| *until != Instant::NEVER).map(|until| timespec(until.since(now)));
        let epoll = match what {
            WaitFor::Anything => &self.epoll,
            WaitFor::Mailbox => &self.mailbox_epoll,
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        // An interrupted wait is as good as any.
        let _ = epoll::wait(epoll, &mut events[..], timeout.as_ref());
        self.stats.wakeups += 1;
    }

    /// Looks at the rings for as long as it pays. Is there anything?
    fn busy_poll(&mut self, until: Option<Instant>) -> bool {
        let mut end = self.shared.now() + self.poll_time;
        if let Some(until) = until {
            end = end.min(until);
        }
        let check_at = self.meter.as_ref().map_or(Instant::NEVER, Meter::check_at);
        loop {
            if self.mailbox.has_commands.load(Ordering::Relaxed) || self.has_pending() {
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

    /// Is there a frame that could be taken in?
    fn has_pending(&self) -> bool {
        self.served.iter().any(|port| self.ports[*port].has_pending())
    }

    /// Asks the drivers to ring. Is there a frame already?
    fn enable_kicks(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.served.len() {
            let port = self.served[at];
            let local = &mut self.ports[port];
            if !local.wants_frame() {
                // It waits for credit, not for its driver.
                continue;
            }
            match local.send.as_mut().map_or(Ok(false), |send| send.enable_kick()) {
                Ok(available) => more |= available,
                Err(broken) => self.break_port(port, broken),
            }
        }
        more
    }
}
