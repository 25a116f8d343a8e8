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
//!   Deliveries in a row are told together, `TOLD_MAX` at most; before something less urgent is carried, and
//!   before the plane waits.
//!
//! # Bounds
//! Before each decision the plane takes in at most one frame from each port it looks at, and `TOGETHER_MAX`
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

pub(crate) mod plug;
pub(crate) mod timed;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_net::discipline::RING_SLOTS_DEFAULT;
use punctual_net::{
    Discipline, Fate, FlowId, InterfaceId, InterfaceParams, Next, Packet, Rate, Stage, Step, TokenBucket,
};
use punctual_sched::{Duration, Instant};
use rustix::event::epoll;

use crate::budget::{Account, Meter, processor_time};
use crate::check::{Checker, Violation, urgency};
use crate::frame::{self, FirstBytes};
use crate::lock::Gate;
use crate::ring::{Broken, Chain, Culprit, Delivery, ReceiveRing, SendRing, Taken, ring_bell, visible};
use crate::session::{RECEIVE, SEND};
use crate::stats::{PlaneStats, PortStats};
use crate::switch::{PLANE_LIMIT, PORTS_MAX};
use crate::table::Table;
use crate::vlan::{Filter, Front, Start, Vlan};

/// Packets of a port that wait for the TX stage at most.
pub const WINDOW: u32 = 8;

/// Frames of a port that are in the switch at most, whatever the size of its ring.
pub const IN_FLIGHT_MAX: usize = 256;

/// Steps between two looks at the mailbox.
const TURN: usize = 64;

/// Packets before the TX stage at which a port is looked at.
const FEW: u32 = 1;

/// Frames that are taken in before a decision at most, beside the first of each port.
const TOGETHER_MAX: u32 = 3;

/// Steps between two looks at the clock, but for [`LONG_BYTES`] that are copied: less than a microsecond. A
/// look costs as much as a step.
const STEPS_PER_LOOK_AT_CLOCK: u32 = 32;

/// Deliveries of which VMs are told together, at most.
const TOLD_MAX: usize = 8;

/// A frame of so many bytes is told at once: its copy takes longer than telling.
const LONG_BYTES: u32 = 4096;

/// Ports that are looked at before every decision; of the others, those of [`ROTATION`].
const ALWAYS_MAX: usize = 8;

/// Less urgent ports that are looked at before a decision, in turns.
const ROTATION: usize = 4;

/// Frames to all ports that a port may send: a thousand a second, and a thousand at once.
const FLOODS: Rate = Rate { bytes: 100, window: Duration::from_ms(100), burst_bytes: 1_000 };

/// What happened to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM's monitor connected.
    Connected,
    /// A monitor that wants to connect cannot be accepted; the reason. The switch goes on trying.
    Unaccepted(String),
    /// Its driver uses both rings.
    Running,
    /// The monitor forgot what the driver chose: the driver is taken to have chosen all that it was offered.
    Assumed,
    /// The connection ended; the reason, unless the monitor closed it.
    Disconnected(Option<String>),
    /// A ring is broken: the port is out of use until its driver resets it.
    Broken(Broken),
}

/// Something happened to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The port.
    pub port: usize,
    /// What happened.
    pub event: Event,
}

/// What all threads know of a port.
#[derive(Debug, Default)]
pub(crate) struct SharedPort {
    /// The ring with which its VM receives, unless there is only one plane.
    pub(crate) receive: Gate<Option<Box<ReceiveRing>>>,
    /// Buffers in it as of the last look.
    free: AtomicU32,
    /// Is a ring broken? Nothing starts until the driver resets the port.
    pub(crate) broken: AtomicBool,
}

/// What all threads know.
#[derive(Debug)]
pub(crate) struct Shared {
    /// As many as there may be.
    pub(crate) ports: Vec<SharedPort>,
    /// Ports from here on were never in use.
    pub(crate) used: AtomicUsize,
    pub(crate) table: Table,
    /// The most bytes behind a frame's addresses, type and tag.
    pub(crate) mtu: u32,
    pub(crate) start: std::time::Instant,
    /// The way to the plane if there is only one: then the receive rings are its own.
    pub(crate) only: Option<Arc<Mailbox>>,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    /// A port's receive ring is there, or gone. Returns where the old one goes on. Planes never ask for this.
    pub(crate) fn set_receive(&self, port: usize, ring: Option<ReceiveRing>) -> Option<u16> {
        let ring = ring.map(Box::new);
        let Some(only) = &self.only else { return ended(self.exchange(port, ring)) };
        let (reply, answer) = sync_channel(1);
        only.send(Command::Receive { port, ring, reply });
        ended(answer.recv_timeout(PLANE_LIMIT).ok().flatten())
    }

    /// A port's receive ring tells its driver here from now on. Planes never ask for this.
    pub(crate) fn set_call(&self, port: usize, call: Option<Arc<OwnedFd>>) {
        match &self.only {
            Some(only) => only.send(Command::Call { port, queue: RECEIVE, call }),
            None => self.ports[port].receive.with(|ring| {
                if let Some(ring) = ring {
                    ring.set_call(call);
                }
            }),
        }
    }

    /// Puts a receive ring into its place among those that planes share. Returns the old one.
    fn exchange(&self, port: usize, mut ring: Option<Box<ReceiveRing>>) -> Option<Box<ReceiveRing>> {
        let free = ring.as_mut().and_then(|ring| ring.free().ok()).unwrap_or_default();
        self.ports[port].receive.with(|place| {
            self.ports[port].free.store(free.into(), Ordering::Relaxed);
            std::mem::replace(place, ring)
        })
    }
}

/// A receive ring that is not used any more. Returns where it goes on.
fn ended(ring: Option<Box<ReceiveRing>>) -> Option<u16> {
    let mut ring = ring?;
    // A broken ring's driver resets it.
    let _ = ring.tell();
    Some(ring.base())
}

/// What a plane is asked to do.
pub(crate) enum Command {
    /// Serve a port's send ring.
    Start { port: usize, ring: Box<SendRing> },
    /// A port's receive ring is there, or gone; the old one.
    Receive { port: usize, ring: Option<Box<ReceiveRing>>, reply: SyncSender<Option<Box<ReceiveRing>>> },
    /// A ring's driver hears here from now on.
    Call { port: usize, queue: usize, call: Option<Arc<OwnedFd>> },
    /// The monitor hears of a broken send ring here from now on.
    Error { port: usize, error: Option<Arc<OwnedFd>> },
    /// No more; where the ring goes on.
    Stop { port: usize, reply: SyncSender<Option<u16>> },
    /// A port comes.
    Attach { attach: Box<plug::Attach>, reply: SyncSender<plug::Attached> },
    /// A port that has no rings any more goes.
    Detach { port: usize, none: Box<PortStats>, reply: SyncSender<PortStats> },
    /// What was counted so far, of ports `from` on into places that are there.
    Count { from: usize, into: Vec<PortStats>, reply: SyncSender<(Vec<PortStats>, PlaneStats)> },
    /// It is over.
    End,
}

/// The way to a plane.
#[derive(Debug)]
pub(crate) struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    waiting: AtomicBool,
    wake: OwnedFd,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { commands: Mutex::default(), waiting: AtomicBool::new(false), wake })
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.waiting.store(true, Ordering::Release);
        ring_bell(&self.wake);
    }

    /// A command, unless there is none or its sender is still at it.
    fn take(&self) -> Option<Command> {
        if !self.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.try_lock().ok()?;
        let command = commands.pop_front();
        self.waiting.store(!commands.is_empty(), Ordering::Relaxed);
        command
    }
}

/// A frame in the switch.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// When it was taken in.
    came: Instant,
    chain: Chain,
    /// Receivers that it has not reached yet.
    copies: u16,
    /// Has it reached one of several? Then it is not sent again when its ring stops.
    reached: bool,
}

/// Where the last frame of a port went: those that follow it go there, too, as long as this holds.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// Both addresses and the VLAN.
    ends: (u64, u32),
    vlan: Vlan,
    /// The number of changes of the table.
    changes: u64,
    /// When the table wants to hear of the sender again. It does so once a second.
    until: Instant,
    receiver: usize,
}

/// The VLAN of a frame in the switch, and what was read of it.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    vlan: Vlan,
    start: Start,
}

/// A port as its plane knows it.
#[derive(Debug)]
struct Local {
    send: Option<Box<SendRing>>,
    slots: Box<[Slot]>,
    /// By slot; none where there are no VLANs.
    tags: Box<[Tag]>,
    /// Numbers of the oldest frame in the switch, and of the next one.
    first: u32,
    next: u32,
    /// Packets before the TX stage, and at most.
    in_tx: u32,
    window: u32,
    /// Slots of its receive ring by the discipline's account.
    ring_slots: u32,
    floods: TokenBucket,
    route: Route,
    /// The smaller, the more urgent.
    urgency: u64,
    /// How often another port took this one's place. Packets to one that was here before do not arrive.
    incarnation: u8,
    /// Has its driver to hear of frames that it sent, of frames that it received?
    untold: [bool; 2],
    stats: PortStats,
}

impl Local {
    /// Only a port that the plane serves has frames in it.
    fn new(params: &InterfaceParams, is_served: bool, has_vlans: bool) -> Self {
        let frames = if is_served { IN_FLIGHT_MAX } else { 0 };
        let tags = if has_vlans { frames } else { 0 };
        let ring_slots = params.ring_slots.unwrap_or(RING_SLOTS_DEFAULT);
        Local {
            send: None,
            slots: vec![Slot::default(); frames].into_boxed_slice(),
            tags: vec![Tag::default(); tags].into_boxed_slice(),
            first: 0,
            next: 0,
            in_tx: 0,
            window: WINDOW.min(ring_slots),
            ring_slots,
            floods: TokenBucket::new(Instant::ZERO, FLOODS),
            route: Route::default(),
            urgency: urgency(params),
            incarnation: 0,
            untold: [false; 2],
            stats: PortStats::default(),
        }
    }

    /// May another frame be taken in?
    #[inline]
    fn has_room(&self) -> bool {
        self.in_tx < self.window && (self.next.wrapping_sub(self.first) as usize) < IN_FLIGHT_MAX
    }

    /// May another frame change a decision, and is there room for it?
    #[inline(always)]
    fn wants_more(&self) -> bool {
        self.in_tx <= FEW && self.has_room()
    }

    /// Is there such a frame?
    #[inline(always)]
    fn has_news(&self) -> bool {
        self.wants_more() && self.send.as_ref().is_some_and(|send| send.has_more())
    }

    /// Frames that its VM offers and that no receiver has yet.
    fn queued(&mut self) -> u64 {
        // A broken ring is noticed when a frame is taken.
        let offered = self.send.as_mut().map_or(0, |send| send.waiting().unwrap_or_default());
        u64::from(offered) + u64::from(self.next.wrapping_sub(self.first))
    }

    /// Is the frame with this number here? Its ring may have stopped meanwhile.
    #[inline]
    fn has(&self, number: u32) -> bool {
        let age = self.next.wrapping_sub(number);
        age > 0 && age <= self.next.wrapping_sub(self.first)
    }

    /// Copies the frame with this number into a receive ring, and gives it back if that was the last
    /// receiver.
    #[inline(always)]
    fn deliver(
        &mut self,
        place: &mut Option<Box<ReceiveRing>>,
        number: u32,
        front: Option<&Front>,
    ) -> Delivered {
        let slot = &mut self.slots[number as usize % IN_FLIGHT_MAX];
        let Some(send) = &self.send else { return (Ok(Delivery::NoRoom), Ok(false)) };
        let done = put(place, send, &slot.chain, front);
        if !matches!(done, Ok(Delivery::Done { .. })) {
            return (done, Ok(false));
        }
        slot.reached |= slot.copies > 1;
        slot.copies = slot.copies.saturating_sub(1);
        let is_over = slot.copies == 0 && number == self.first;
        (done, if is_over { self.give_back() } else { Ok(false) })
    }

    /// Gives the driver what is finished, in order: a driver that goes on where the used ring ends then sends
    /// nothing twice. Was there anything?
    #[inline]
    fn give_back(&mut self) -> Result<bool, Broken> {
        let Some(send) = &mut self.send else { return Ok(false) };
        let first = self.first;
        while self.first != self.next {
            let slot = &self.slots[self.first as usize % IN_FLIGHT_MAX];
            if slot.copies > 0 {
                break;
            }
            self.first = self.first.wrapping_add(1);
            send.give_back(&slot.chain)?;
        }
        Ok(first != self.first)
    }
}

/// What became of a frame for its receiver, and whether its driver gets something back.
type Delivered = (Result<Delivery, Culprit>, Result<bool, Broken>);

/// What connects a plane with the other threads.
pub(crate) struct Threads {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) notices: Sender<Notice>,
    /// The processor time that the plane may take, if that is limited.
    pub(crate) account: Option<Arc<Account>>,
    /// Where the network has VLANs.
    pub(crate) vlans: Option<Arc<Filter>>,
}

/// A plane; see the module.
pub(crate) struct Plane<D> {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    notices: Sender<Notice>,
    account: Option<Arc<Account>>,
    /// This thread's part in the account.
    meter: Option<Meter>,
    discipline: D,
    /// By port, the rings with which VMs receive, if this is the only plane; otherwise none, and planes share
    /// them ([`SharedPort::receive`]).
    receivers: Vec<Option<Box<ReceiveRing>>>,
    /// Where the network has VLANs.
    vlans: Option<Arc<Filter>>,
    pub(crate) checker: Option<Checker>,
    /// How long it polls before it sleeps.
    pub(crate) poll: Duration,
    epoll: OwnedFd,
    /// Hears the mailbox alone.
    bell: OwnedFd,
    ports: Vec<Local>,
    /// Its own ports, most urgent first; so many of them are looked at before every decision.
    own: Vec<usize>,
    always: usize,
    turn: usize,
    now: Instant,
    steps: u32,
    untold: Untold,
    stats: PlaneStats,
}

/// Of what VMs were not told yet.
#[derive(Debug)]
struct Untold {
    /// Ports that sent, and ports that received.
    ports: [Vec<usize>; 2],
    /// Deliveries: the sender, and when the frame came.
    deliveries: Vec<(usize, Instant)>,
    /// The most urgent of them has this urgency.
    urgency: u64,
}

impl Untold {
    fn new() -> Self {
        let none = || Vec::with_capacity(PORTS_MAX);
        Untold { ports: [none(), none()], deliveries: Vec::with_capacity(TOLD_MAX), urgency: u64::MAX }
    }
}

/// What a plane waits for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// Frames and commands.
    Anything,
    /// Commands.
    Bell,
}

/// How long a wait takes, for the kernel.
pub(crate) fn timespec(time: Duration) -> rustix::time::Timespec {
    let ns = time.as_ns();
    rustix::time::Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
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

/// Packets of a source have the numbers of their frames, in bits 16 to 47; above them stands the source,
/// below the destination and its incarnation.
fn id_of(source: usize, number: u32, destination: usize, incarnation: u8) -> u64 {
    let to = u64::from(incarnation) << 8 | destination as u64 & 0xff;
    (source as u64) << 48 | u64::from(number) << 16 | to
}

/// The incarnation of the destination to which a packet goes.
fn incarnation_of(packet: &Packet) -> u8 {
    (packet.id >> 8) as u8
}

fn number_of(packet: &Packet) -> u32 {
    (packet.id >> 16) as u32
}

/// Buffers in a receive ring that planes share, as of the last look unless more than that are wanted.
#[inline]
fn free_of(port: &SharedPort, wanted: usize) -> Result<u32, Broken> {
    let free = port.free.load(Ordering::Relaxed);
    if free as usize > wanted {
        return Ok(free);
    }
    let free = port.receive.with(|ring| ring.as_mut().map_or(Ok(0), |ring| ring.free()))?.into();
    port.free.store(free, Ordering::Relaxed);
    Ok(free)
}

/// As [`Local::deliver`], into a ring that planes share.
fn deliver_locked(port: &SharedPort, from: &mut Local, number: u32, front: Option<&Front>) -> Delivered {
    port.receive.with(|place| {
        let (done, given) = from.deliver(place, number, front);
        let free = place.as_ref().map_or(0, |ring| ring.free_at_least());
        port.free.store(free.into(), Ordering::Relaxed);
        if given == Ok(true) {
            // Another plane may show the receiver this frame. The sender first: if the switch dies between,
            // the frame is lost rather than sent again by the next one.
            let _ = from.send.as_mut().map(|send| send.show());
        }
        (done, given)
    })
}

/// Copies a frame into a receive ring. One that is broken goes.
#[inline(always)]
fn put(
    place: &mut Option<Box<ReceiveRing>>,
    send: &SendRing,
    chain: &Chain,
    front: Option<&Front>,
) -> Result<Delivery, Culprit> {
    let Some(ring) = place else { return Ok(Delivery::NoRoom) };
    let done = ring.deliver(send, chain, front);
    if matches!(done, Err(Culprit::Receiver(_))) {
        *place = None;
    }
    done
}

/// A plane under whatever discipline.
pub(crate) trait Work: Send {
    /// Works until it is told to end.
    fn run(self: Box<Self>) -> Outcome;

    /// The same, with a clock between the steps.
    fn run_timed(self: Box<Self>, shown: &timed::Shown) -> (Outcome, timed::StepTimes);
}

impl<D: Discipline> Work for Plane<D> {
    fn run(self: Box<Self>) -> Outcome {
        (*self).run()
    }

    fn run_timed(self: Box<Self>, shown: &timed::Shown) -> (Outcome, timed::StepTimes) {
        (*self).run_timed(shown)
    }
}

impl<D: Discipline> Plane<D> {
    /// A plane of those ports for which `is_own` says so. All ports are attached to the discipline, with
    /// these parameters.
    pub(crate) fn new(
        threads: Threads,
        discipline: D,
        is_own: impl Fn(usize) -> bool,
        params: &[InterfaceParams],
    ) -> std::io::Result<Self> {
        let Threads { shared, mailbox, notices, account, vlans } = threads;
        let local = |(port, params)| Local::new(params, is_own(port), vlans.is_some());
        let mut ports = Vec::with_capacity(PORTS_MAX.max(params.len()));
        ports.extend(params.iter().enumerate().map(local));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let bell = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for hears in [&epoll, &bell] {
            epoll::add(hears, &mailbox.wake, epoll::EventData::new_u64(MAILBOX), flags)?;
        }
        let mut receivers = Vec::new();
        if shared.only.is_some() {
            receivers.resize_with(PORTS_MAX, || None);
        }
        let mut plane = Plane {
            receivers,
            shared,
            mailbox,
            notices,
            account,
            meter: None,
            discipline,
            vlans,
            checker: None,
            poll: Duration::ZERO,
            epoll,
            bell,
            ports,
            always: 0,
            own: Vec::with_capacity(PORTS_MAX),
            turn: 0,
            now: Instant::ZERO,
            steps: 0,
            untold: Untold::new(),
            stats: PlaneStats::default(),
        };
        (0..params.len()).filter(|port| is_own(*port)).for_each(|port| plane.serve(port));
        Ok(plane)
    }

    /// Is a port in a VLAN? Without VLANs all are in the only one.
    #[inline]
    fn is_in(&self, port: usize, vlan: Vlan) -> bool {
        self.vlans.as_ref().is_none_or(|filter| filter.has(port, vlan))
    }

    /// Works until it is told to end.
    fn run(mut self) -> Outcome {
        self.meter = self.account.clone().map(|account| Meter::new(account, self.shared.now()));
        loop {
            while let Some(command) = self.mailbox.take() {
                if matches!(command, Command::End) {
                    return self.finish();
                }
                self.command(command);
            }
            self.now = self.shared.now();
            if self.waits_for_budget() {
                continue;
            }
            if let Some(until) = self.work() {
                self.rest(until);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        let left: usize =
            [Stage::Tx, Stage::Softnet, Stage::Rx].map(|stage| self.discipline.waiting(stage)).iter().sum();
        for port in 0..self.ports.len() {
            self.stop(port);
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
            exhaustions: self.account.as_ref().map_or(0, |account| account.exhaustions()),
            ..self.stats
        }
    }

    /// Is the budget used up? Then this waits until there is some, or a command.
    fn waits_for_budget(&mut self) -> bool {
        let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due(self.now)) else { return false };
        let Some(until) = meter.settle(self.now) else { return false };
        self.wait(Wait::Bell, Some(until));
        true
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Start { port, ring } => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(port as u64);
                let added = epoll::add(&self.epoll, ring.kick.as_fd(), data, flags);
                self.ports[port].send = Some(ring);
                if added.is_err() {
                    // Not an eventfd: nobody would ever hear this driver.
                    self.broke(port, Broken::Place);
                }
            }
            Command::Receive { port, ring, reply } => {
                let old = std::mem::replace(&mut self.receivers[port], ring);
                drop(reply.try_send(old));
            }
            Command::Call { port, queue: RECEIVE, call } => {
                if let Some(Some(ring)) = self.receivers.get_mut(port) {
                    ring.set_call(call);
                }
            }
            Command::Call { port, call, .. } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.set_call(call);
                }
            }
            Command::Error { port, error } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.error = error;
                }
            }
            Command::Stop { port, reply } => drop(reply.try_send(self.stop(port))),
            Command::Attach { attach, reply } => drop(reply.try_send(self.attach(*attach))),
            Command::Detach { port, none, reply } => drop(reply.try_send(self.detach(port, *none))),
            Command::Count { from, mut into, reply } => {
                for (port, place) in self.ports.iter_mut().skip(from).zip(&mut into) {
                    place.copy_from(&port.stats);
                    place.queued = port.queued();
                }
                drop(reply.try_send((into, self.stats())));
            }
            Command::End => {}
        }
    }

    /// Stops a port's send ring. What was taken from it and not given back is forgotten; the driver's ring
    /// still has it, but for a frame that has reached some of its receivers: no one gets it twice.
    fn stop(&mut self, port: usize) -> Option<u16> {
        let local = &mut self.ports[port];
        let mut ring = local.send.take()?;
        let first = &local.slots[local.first as usize % IN_FLIGHT_MAX];
        if local.first != local.next && first.reached {
            // A broken ring's driver resets it.
            let _ = ring.give_back(&first.chain);
        }
        let _ = ring.tell();
        let _ = epoll::delete(&self.epoll, ring.kick.as_fd());
        local.first = local.next;
        Some(ring.base())
    }

    /// Carries packets for a turn. Returns until when there is nothing to do, if there is not.
    fn work(&mut self) -> Option<Option<Instant>> {
        let mut rest = None;
        for _ in 0..TURN {
            if self.meter.as_ref().is_some_and(|meter| meter.is_due(self.now)) {
                break;
            }
            self.look();
            match self.discipline.next(self.now) {
                Next::Process(step) => self.carry(&step),
                Next::WaitUntil(until) => rest = Some(Some(until)),
                Next::Idle => rest = Some(None),
            }
            if rest.is_some() {
                break;
            }
        }
        self.tell();
        rest
    }

    /// Shows VMs what they sent and received, and tells those that want to hear.
    fn tell(&mut self) {
        if self.untold.ports.iter().all(Vec::is_empty) {
            return;
        }
        match self.receivers.is_empty() {
            true => self.tell_with_locks(),
            false => self.tell_alone(),
        }
        if !self.untold.deliveries.is_empty() {
            self.look_at_clock();
            for &(port, came) in &self.untold.deliveries {
                self.ports[port].stats.latency.record(self.now.since(came));
            }
        }
        self.untold.ports.iter_mut().for_each(Vec::clear);
        self.untold.deliveries.clear();
        self.untold.urgency = u64::MAX;
    }

    /// As [`Plane::tell`], where the receive rings are the plane's own.
    fn tell_alone(&mut self) {
        // Senders first: if the switch dies here, frames are lost rather than sent again by the next one.
        // Rings that are broken are noticed below.
        for &port in &self.untold.ports[SEND] {
            let _ = self.ports[port].send.as_mut().map(|send| send.show());
        }
        for &port in &self.untold.ports[RECEIVE] {
            let _ = self.receivers[port].as_mut().map(|ring| ring.show());
        }
        visible();
        for at in 0..self.untold.ports[RECEIVE].len() {
            let port = self.untold.ports[RECEIVE][at];
            self.ports[port].untold[RECEIVE] = false;
            if let Some(Err(broken)) = self.receivers[port].as_mut().map(|ring| ring.call()) {
                self.broke(port, broken);
            }
        }
        for at in 0..self.untold.ports[SEND].len() {
            let port = self.untold.ports[SEND][at];
            self.ports[port].untold[SEND] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.call()) {
                self.broke(port, broken);
            }
        }
    }

    /// As [`Plane::tell`], where planes share the receive rings.
    fn tell_with_locks(&mut self) {
        for at in 0..self.untold.ports[RECEIVE].len() {
            let port = self.untold.ports[RECEIVE][at];
            self.ports[port].untold[RECEIVE] = false;
            // Senders were shown theirs when it was put there.
            let tell = |ring: &mut Option<Box<ReceiveRing>>| ring.as_mut().map_or(Ok(()), |ring| ring.tell());
            let told = self.shared.ports[port].receive.with(tell);
            if let Err(broken) = told {
                self.broke(port, broken);
            }
        }
        for at in 0..self.untold.ports[SEND].len() {
            let port = self.untold.ports[SEND][at];
            self.ports[port].untold[SEND] = false;
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.tell()) {
                self.broke(port, broken);
            }
        }
    }

    #[inline]
    fn look_at_clock(&mut self) {
        self.steps = 0;
        self.now = self.shared.now();
    }

    /// A port's VM has to hear of frames that it sent, or received.
    #[inline]
    fn tell_later(&mut self, port: usize, queue: usize) {
        if !std::mem::replace(&mut self.ports[port].untold[queue], true) {
            self.untold.ports[queue].push(port);
        }
    }

    /// Takes frames in from the ports that are looked at now.
    #[inline(always)]
    fn look(&mut self) {
        let mut more = TOGETHER_MAX;
        for at in 0..self.always {
            let port = self.own[at];
            if self.ports[port].has_news() {
                self.take_in(port, &mut more);
            }
        }
        if self.always < self.own.len() {
            self.look_in_turn(&mut more);
        }
    }

    /// The same, from ports that are not looked at each time.
    fn look_in_turn(&mut self, more: &mut u32) {
        let rest = self.own.len() - self.always;
        for _ in 0..rest.min(ROTATION) {
            self.turn = if self.turn + 1 < rest { self.turn + 1 } else { 0 };
            let port = self.own[self.always + self.turn];
            if self.ports[port].has_news() {
                self.take_in(port, more);
            }
        }
    }

    /// Takes frames in from a port that has room: one, and so many more.
    #[inline(never)]
    fn take_in(&mut self, port: usize, more: &mut u32) {
        if self.shared.ports[port].broken.load(Ordering::Relaxed) {
            // Another plane found its receive ring broken.
            self.stop(port);
            return;
        }
        while self.take_one_in(port) && *more > 0 && self.ports[port].has_room() {
            *more -= 1;
        }
    }

    /// Takes a frame in from a port that has room for it. Was there one?
    #[inline(always)]
    fn take_one_in(&mut self, port: usize) -> bool {
        let local = &mut self.ports[port];
        let Some(send) = &mut local.send else { return false };
        let number = local.next;
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        match send.take(&mut slot.chain) {
            Ok(Taken::Nothing) => return false,
            Ok(Taken::Frame { bytes }) => {
                (slot.copies, slot.reached, slot.came) = (0, false, self.now);
                local.next = number.wrapping_add(1);
                let first = slot.chain.first;
                if first.exceeds(self.shared.mtu, bytes) {
                    self.refuse(port, bytes, |drops| &mut drops.mtu);
                } else if self.vlans.is_some() {
                    self.forward_tagged(port, number, bytes);
                } else {
                    self.forward(port, number, bytes, &first, Vlan::default());
                }
            }
            Ok(Taken::Unfit) => {
                slot.copies = 0;
                local.next = number.wrapping_add(1);
                self.refuse(port, 0, |drops| &mut drops.malformed);
            }
            Err(broken) => {
                self.broke(port, broken);
                return false;
            }
        }
        let local = &mut self.ports[port];
        if local.slots[number as usize % IN_FLIGHT_MAX].copies == 0 {
            // It never became a packet.
            let given = local.give_back();
            self.note(port, given);
        }
        true
    }

    /// Gives a frame's packets to the discipline: one for each receiver.
    #[inline(always)]
    fn forward(&mut self, port: usize, number: u32, bytes: u32, first: &FirstBytes, vlan: Vlan) {
        match self.route(port, first, vlan) {
            Some(receiver) if receiver == port => self.refuse(port, bytes, |drops| &mut drops.no_receiver),
            Some(receiver) if !self.is_in(receiver, vlan) => {
                self.refuse(port, bytes, |drops| &mut drops.vlan);
            }
            Some(receiver) => self.arrive(port, number, receiver, bytes),
            None => self.flood(port, number, bytes, vlan),
        }
    }

    /// The port of a frame's receiver, if that is known. The table learns its sender.
    #[inline(always)]
    fn route(&mut self, port: usize, first: &FirstBytes, vlan: Vlan) -> Option<usize> {
        let Route { ends, vlan: of, changes, until, receiver } = self.ports[port].route;
        let is_same = ends == first.ends() && of == vlan;
        if is_same && changes == self.shared.table.changes() && self.now < until {
            return Some(receiver);
        }
        self.find_route(port, first, vlan)
    }

    #[inline(never)]
    fn find_route(&mut self, port: usize, first: &FirstBytes, vlan: Vlan) -> Option<usize> {
        let (to, from) = frame::addresses(&first.start());
        let table = &self.shared.table;
        table.learn(from, vlan, port, self.now);
        if to.is_group() {
            return None;
        }
        let changes = table.changes();
        let receiver = table.find(to, vlan)?;
        let second = Duration::from_secs(1);
        let until = Instant::ZERO + second * (self.now.since(Instant::ZERO).div_floor(second) + 1);
        self.ports[port].route = Route { ends: first.ends(), vlan, changes, until, receiver };
        Some(receiver)
    }

    /// As [`Plane::forward`], where there are VLANs.
    fn forward_tagged(&mut self, port: usize, number: u32, bytes: u32) {
        let local = &self.ports[port];
        let Some(send) = &local.send else { return };
        let at = number as usize % IN_FLIGHT_MAX;
        let first = local.slots[at].chain.first;
        let start = first.start();
        let tag = match start.ends_with(&frame::TAGGED) {
            true if (bytes as usize) < frame::ETHERNET_BYTES + frame::TAG_BYTES => {
                return self.refuse(port, bytes, |drops| &mut drops.malformed);
            }
            true => send.tag(&local.slots[at].chain).map(Some),
            false => Ok(None),
        };
        let tag = match tag {
            Ok(tag) => tag,
            Err(broken) => return self.broke(port, broken),
        };
        let vlan = self.vlans.as_ref().and_then(|filter| filter.of(port, tag));
        let Some(vlan) = vlan else { return self.refuse(port, bytes, |drops| &mut drops.vlan) };
        self.ports[port].tags[at] = Tag { vlan, start: Start { bytes: start, tag } };
        self.forward(port, number, bytes, &first, vlan);
    }

    /// A frame to all ports that have a VM.
    fn flood(&mut self, port: usize, number: u32, bytes: u32, vlan: Vlan) {
        let local = &mut self.ports[port];
        if local.floods.check(self.now, 1).is_err() {
            return self.refuse(port, bytes, |drops| &mut drops.flood);
        }
        local.floods.consume(1);
        let shared = Arc::clone(&self.shared);
        let mut reached = false;
        for receiver in 0..shared.used.load(Ordering::Acquire).min(self.ports.len()) {
            let may = receiver != port && self.is_in(receiver, vlan);
            if may && self.receives(receiver) {
                reached = true;
                self.arrive(port, number, receiver, bytes);
            }
        }
        if !reached {
            self.refuse(port, bytes, |drops| &mut drops.no_receiver);
        }
    }

    /// Has a port a VM that receives?
    fn receives(&self, port: usize) -> bool {
        match self.receivers.get(port) {
            Some(ring) => ring.is_some(),
            None => self.shared.ports[port].receive.with(|ring| ring.is_some()),
        }
    }

    /// A frame that never becomes a packet.
    fn refuse(&mut self, port: usize, bytes: u32, reason: impl FnOnce(&mut crate::stats::Drops) -> &mut u64) {
        let stats = &mut self.ports[port].stats;
        stats.sent.add(bytes);
        *reason(&mut stats.drops) += 1;
    }

    /// A packet arrives at the discipline.
    #[inline(always)]
    fn arrive(&mut self, port: usize, number: u32, receiver: usize, bytes: u32) {
        let packet = Packet {
            id: id_of(port, number, receiver, self.ports[receiver].incarnation),
            flow: FlowId((port * PORTS_MAX + receiver) as u32),
            source: InterfaceId(port as u32),
            destination: InterfaceId(receiver as u32),
            bytes,
        };
        let local = &mut self.ports[port];
        local.stats.sent.add(bytes);
        match self.discipline.arrive(self.now, packet) {
            Ok(()) => {
                local.in_tx += 1;
                local.slots[number as usize % IN_FLIGHT_MAX].copies += 1;
                if let Some(checker) = &mut self.checker {
                    checker.came(&packet);
                }
            }
            Err(reason) => local.stats.drops.count(reason),
        }
    }

    /// Does what a stage takes.
    #[inline(always)]
    fn carry(&mut self, step: &Step) {
        let port = step.packet.source.index();
        if self.ports[port].urgency > self.untold.urgency {
            // What is more urgent does not wait.
            self.tell();
        }
        if let Some(checker) = &mut self.checker {
            checker.starts(step);
        }
        match step.stage {
            Stage::Tx => self.ports[port].in_tx -= 1,
            Stage::Softnet => self.count_buffers(step.packet.destination),
            Stage::Rx => self.deliver(&step.packet),
        }
        self.steps += 1;
        let is_long = step.stage == Stage::Rx && step.packet.bytes >= LONG_BYTES;
        if is_long || self.steps >= STEPS_PER_LOOK_AT_CLOCK {
            self.look_at_clock();
        }
        let fate = self.discipline.complete(self.now);
        self.stats.carried[step.stage as usize] += 1;
        if let Some(checker) = &mut self.checker {
            checker.ends(step, fate);
        }
        match fate {
            Fate::Queued(_) => {}
            Fate::Dropped(reason) => {
                self.ports[port].stats.drops.count(reason);
                self.drop_copy(port, number_of(&step.packet));
            }
            Fate::Delivered => {
                if self.untold.deliveries.len() >= TOLD_MAX || step.packet.bytes >= LONG_BYTES {
                    self.tell();
                }
            }
        }
    }

    /// Tells the discipline how many buffers a receiver has.
    #[inline]
    fn count_buffers(&mut self, receiver: InterfaceId) {
        let port = receiver.index();
        let wanted = self.discipline.waiting(Stage::Rx);
        let free = match self.receivers.get_mut(port) {
            Some(Some(ring)) if usize::from(ring.free_at_least()) > wanted => Ok(ring.free_at_least().into()),
            // The driver may have added some, of which it does not tell.
            Some(ring) => ring.as_mut().map_or(Ok(0), |ring| ring.free().map(u32::from)),
            None => free_of(&self.shared.ports[port], wanted),
        };
        let free = free.unwrap_or_else(|broken| {
            self.broke(port, broken);
            0
        });
        let slots = self.ports[port].ring_slots;
        self.discipline.set_unread(receiver, slots.saturating_sub(free));
    }

    /// Copies a frame to its receiver, and gives it back to its sender if that was the last one.
    #[inline(always)]
    fn deliver(&mut self, packet: &Packet) {
        let (source, receiver) = (packet.source.index(), packet.destination.index());
        let number = number_of(packet);
        if self.ports[receiver].incarnation != incarnation_of(packet) {
            // The port to which it was sent is gone, and this is another one.
            self.ports[source].stats.drops.destination_ring += 1;
            return self.drop_copy(source, number);
        }
        let local = &mut self.ports[source];
        let is_here = local.has(number);
        let at = number as usize % IN_FLIGHT_MAX;
        if !is_here || local.send.is_none() {
            local.stats.drops.stopped += 1;
            return;
        }
        let front = self.vlans.as_ref().and_then(|filter| {
            let tag = local.tags.get(at)?;
            filter.front(receiver, tag.vlan, &tag.start)
        });
        let came = local.slots[at].came;
        let (done, given) = match self.receivers.get_mut(receiver) {
            Some(place) => local.deliver(place, number, front.as_ref()),
            None => deliver_locked(&self.shared.ports[receiver], local, number, front.as_ref()),
        };
        let Ok(Delivery::Done { .. }) = done else {
            self.not_delivered(source, receiver, done);
            return self.drop_copy(source, number);
        };
        self.untold.deliveries.push((source, came));
        self.untold.urgency = self.untold.urgency.min(local.urgency);
        local.stats.delivered.add(packet.bytes);
        let to = &mut self.ports[receiver];
        to.stats.received.add(packet.bytes);
        if !std::mem::replace(&mut to.untold[RECEIVE], true) {
            self.untold.ports[RECEIVE].push(receiver);
        }
        self.note(source, given);
    }

    /// A frame did not reach its receiver.
    #[cold]
    fn not_delivered(&mut self, source: usize, receiver: usize, done: Result<Delivery, Culprit>) {
        let drops = &mut self.ports[source].stats.drops;
        match done {
            Ok(Delivery::Done { .. }) => {}
            Ok(Delivery::NoRoom) => drops.destination_ring += 1,
            Ok(Delivery::Offload) => drops.offload += 1,
            Err(Culprit::Sender(broken)) => {
                drops.malformed += 1;
                self.broke(source, broken);
            }
            Err(Culprit::Receiver(broken)) => {
                drops.destination_ring += 1;
                self.broke(receiver, broken);
            }
        }
    }

    /// A copy of a port's frame is dropped.
    #[cold]
    fn drop_copy(&mut self, port: usize, number: u32) {
        let local = &mut self.ports[port];
        if !local.has(number) {
            return;
        }
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        slot.copies = slot.copies.saturating_sub(1);
        let given = local.give_back();
        self.note(port, given);
    }

    /// Frames were given back to a port's driver, or its ring is broken.
    #[inline]
    fn note(&mut self, port: usize, given: Result<bool, Broken>) {
        match given {
            Ok(true) => self.tell_later(port, SEND),
            Ok(false) => {}
            Err(broken) => self.broke(port, broken),
        }
    }

    /// A port's ring is broken: it is out of use until its driver resets it.
    #[cold]
    fn broke(&mut self, port: usize, broken: Broken) {
        if let Some(error) = self.ports[port].send.as_ref().and_then(|ring| ring.error.as_ref()) {
            ring_bell(error);
        }
        self.stop(port);
        ended(match self.receivers.get_mut(port) {
            Some(place) => place.take(),
            None => self.shared.exchange(port, None),
        });
        if !self.shared.ports[port].broken.swap(true, Ordering::AcqRel) {
            // Without a reader there is nobody to tell.
            let _ = self.notices.send(Notice { port, event: Event::Broken(broken) });
        }
    }

    /// Nothing to do until then, or until somebody rings.
    fn rest(&mut self, until: Option<Instant>) {
        if self.poll > Duration::ZERO && self.poll_rings(until) {
            return;
        }
        if self.listen() {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.sleep(self.shared.now());
        }
        self.wait(Wait::Anything, until);
        if let Some(meter) = &mut self.meter {
            meter.wake(self.shared.now());
        }
        for at in 0..self.own.len() {
            let port = self.own[at];
            if let Some(Err(broken)) = self.ports[port].send.as_mut().map(|send| send.ignore()) {
                self.broke(port, broken);
            }
        }
    }

    /// Sleeps until something happens, or until then.
    fn wait(&mut self, what: Wait, until: Option<Instant>) {
        let now = self.shared.now();
        let timeout = until.filter(|until| *until != Instant::NEVER).map(|until| timespec(until.since(now)));
        let epoll = match what {
            Wait::Anything => &self.epoll,
            Wait::Bell => &self.bell,
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        // An interrupted wait is as good as any.
        let _ = epoll::wait(epoll, &mut events[..], timeout.as_ref());
        self.stats.wakeups += 1;
    }

    /// Looks at the rings for as long as it pays. Is there anything?
    fn poll_rings(&mut self, until: Option<Instant>) -> bool {
        let mut end = self.shared.now() + self.poll;
        if let Some(until) = until {
            end = end.min(until);
        }
        let look_at = self.meter.as_ref().map_or(Instant::NEVER, Meter::look_at);
        loop {
            if self.mailbox.waiting.load(Ordering::Relaxed) || self.any_more() {
                return true;
            }
            let now = self.shared.now();
            if now >= end {
                return until == Some(end);
            }
            if now >= look_at {
                return true;
            }
            std::hint::spin_loop();
        }
    }

    /// Is there a frame that could be taken in?
    fn any_more(&self) -> bool {
        self.own.iter().any(|port| self.ports[*port].has_news())
    }

    /// Asks the drivers to ring. Is there a frame already?
    fn listen(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.own.len() {
            let port = self.own[at];
            let local = &mut self.ports[port];
            if !local.wants_more() {
                // It waits for credit, not for its driver.
                continue;
            }
            match local.send.as_mut().map_or(Ok(false), |send| send.listen()) {
                Ok(available) => more |= available,
                Err(broken) => self.broke(port, broken),
            }
        }
        more
    }
}
