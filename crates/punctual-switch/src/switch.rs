//! A switch: its ports, their sockets, and the threads behind them.
//!
//! One thread, the *control*, listens on all sockets and talks with the VMs' monitors. It waits for no one of
//! them. Each plane is a thread of its own. A send ring belongs to one plane, and the control asks it. So
//! does a receive ring if there is only one plane; several planes share it, behind a lock that inherits
//! priorities.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use punctual_model::network::Vlans;
use punctual_net::discipline::{DisciplineInfo, Visitor};
use punctual_net::{Discipline, InterfaceParams, registry};
use punctual_sched::registry::Options;
use punctual_sched::{Duration, Instant};
use rustix::event::epoll;
use rustix::time::Timespec;
use vm_memory::{Bytes, GuestAddress};

use crate::budget::{self, Account, Budget};
use crate::check::{Checker, Violation};
use crate::connection::{self, Connection};
use crate::features;
use crate::frame::Address;
use crate::plane::{Command, Event, Mailbox, Notice, Outcome, Plane, Shared, SharedPort, Threads, Work};
use crate::ring::{Broken, ReceiveRing, SendRing, Setup, ring_bell};
use crate::session::{RECEIVE, Rings, SEND};
use crate::socket::make_way;
use crate::stats::{PlaneStats, PortStats, UplinkStats};
use crate::table::{Behind, Table};
use crate::uplink::{Counters, StopUplink, Uplink};
use crate::vlan::{Filter, TooMany};
use crate::wire::Wire;

mod plug;

use plug::{Inbox, Plugs, Request};

/// Ports of a switch at most.
pub const PORTS_MAX: usize = 256;

/// How long a plane may take to stop a ring. It looks at its mailbox every few packets.
pub(crate) const PLANE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Ports of which a plane is asked together what it counted: copying that takes some microseconds.
const COUNTED_TOGETHER: usize = 4;

/// So often both bells rang without anything in either ring, and the memory is not shared. QEMU makes each
/// bell as if it had rung and rings it once more when it starts the ring; a driver rings when it adds to a
/// ring.
const SILENT_KICKS: u64 = 5;

/// A listener that cannot accept, for want of descriptors or memory, is left alone for this long: its monitor
/// waits, so without a pause the control would be told of it again at once, for ever.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Why a switch does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ports, or too many.
    #[error("a switch of {0} ports; it has 1 to {PORTS_MAX}")]
    Ports(usize),
    /// A port's plane that there is not.
    #[error("port {port} is in plane {plane}, which there is not")]
    Plane {
        /// The port's name.
        port: String,
        /// The plane's index.
        plane: usize,
    },
    /// The discipline refuses its options.
    #[error("{0}")]
    Discipline(String),
    /// A budget that cannot be kept.
    #[error("plane {plane}: {source}")]
    Budget {
        /// The plane's name.
        plane: String,
        /// Why.
        #[source]
        source: budget::Error,
    },
    /// Too many VLANs.
    #[error(transparent)]
    Vlans(#[from] TooMany),
    /// The socket of another switch that is at work.
    #[error("another switch listens on {0}")]
    InUse(PathBuf),
    /// A socket cannot be made.
    #[error("cannot listen on {path}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The first port with VLANs in a network without.
    #[error("no port has VLANs so far; to begin with them, start the switch anew")]
    FirstVlans,
    /// No place for another port.
    #[error("all {PORTS_MAX} places are taken, some by packets of ports that are gone; try again")]
    NoPlace,
    /// A plane does not answer.
    #[error("a plane does not answer")]
    Silent,
    /// The kernel refuses threads or events.
    #[error("cannot start the switch's threads")]
    Start(#[source] io::Error),
}

/// What is at a port.
#[derive(Debug)]
pub enum End {
    /// A VM, whose monitor connects to this socket.
    Socket(PathBuf),
    /// A VM, whose monitor connects here.
    Listener(UnixListener),
    /// Something beyond the switch.
    Uplink(Box<dyn Wire>),
}

/// A port.
#[derive(Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What is at it.
    pub end: End,
    /// What the discipline is told of it.
    pub params: InterfaceParams,
    /// The plane that serves what its VM sends.
    pub plane: usize,
    /// The address that is set aside for its VM.
    pub address: Option<Address>,
    /// Its VLANs.
    pub vlans: Vlans,
}

/// A plane's thread.
pub struct PlaneThread {
    /// Its name.
    pub name: String,
    /// Called first in the thread, and in those of the plane's uplinks: sets priority and processor.
    pub enter: Arc<dyn Fn() + Send + Sync>,
    /// How long it polls before it sleeps.
    pub poll: Duration,
    /// Processor time that it may take together with its uplinks, if that is limited.
    pub budget: Option<Budget>,
}

/// A switch to be started.
pub struct Config {
    /// The ports, in the order in which their VMs count as booted.
    pub ports: Vec<Port>,
    /// The planes.
    pub planes: Vec<PlaneThread>,
    /// Which packet is next, in every plane.
    pub discipline: &'static DisciplineInfo,
    /// The discipline's options.
    pub options: Options,
    /// The most bytes behind a frame's addresses, type and tag, if that is limited.
    pub mtu: Option<u32>,
    /// Are the invariants checked?
    pub check: bool,
}

/// What a switch counted.
#[derive(Clone, Debug)]
pub struct Report {
    /// By port.
    pub ports: Vec<PortStats>,
    /// By plane.
    pub planes: Vec<PlaneStats>,
    /// With `check`, at the end: for each plane the most less urgent packets that went before a waiting one
    /// in TX, softnet and RX; or what was violated.
    pub checked: Vec<Result<[u64; 3], Violation>>,
}

/// A switch at work. It stops when this is dropped.
pub struct Switch {
    mailboxes: Vec<Arc<Mailbox>>,
    planes: Vec<JoinHandle<Outcome>>,
    control: Option<JoinHandle<()>>,
    uplinks: Vec<RunningUplink>,
    plugs: Plugs,
}

/// An uplink at work.
pub(crate) struct RunningUplink {
    port: usize,
    thread: Option<JoinHandle<()>>,
    stop: StopUplink,
    counters: Arc<Counters>,
    /// Is its wire gone?
    ended: Arc<AtomicBool>,
}

impl RunningUplink {
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    fn stop_and_wait(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Switch({} ports, {} planes)", self.plugs.ports(), self.planes.len())
    }
}

impl Switch {
    /// Starts a switch: makes the sockets and the threads. The receiver tells what happens to ports, until
    /// the switch stops.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the kernel refuses; then nothing is left.
    pub fn start(config: Config) -> Result<(Switch, Receiver<Notice>), Error> {
        check(&config)?;
        let (notice, notices) = mpsc::channel();
        let mailboxes: Result<Vec<_>, _> =
            config.planes.iter().map(|_| Mailbox::new().map(Arc::new)).collect();
        let mailboxes = mailboxes.map_err(Error::Start)?;
        let shared = Arc::new(shared(&config, &mailboxes)?);
        let mut planes = Vec::new();
        let vlans: Vec<Vlans> = config.ports.iter().map(|port| port.vlans.clone()).collect();
        let vlans = Filter::new(&vlans)?.map(Arc::new);
        let accounts = config.planes.iter().map(account).collect::<Result<Vec<_>, _>>()?;
        for (index, (mailbox, account)) in mailboxes.iter().zip(&accounts).enumerate() {
            let threads = Threads {
                shared: Arc::clone(&shared),
                mailbox: Arc::clone(mailbox),
                notices: notice.clone(),
                account: account.clone(),
                vlans: vlans.clone(),
            };
            planes.push(plane(&config, index, threads)?);
        }
        let inbox = Inbox::new().map(Arc::new).map_err(Error::Start)?;
        let control = Control::new(&config, &shared, &mailboxes, (&notice, &inbox))?;
        let plugs = Plugs::new(&config, (&shared, &inbox), &notice, (&accounts, vlans));
        let (planes_of, uplinks) = (Vec::new(), Vec::new());
        let mut switch = Switch { mailboxes, planes: planes_of, control: None, uplinks, plugs };
        for (plane, thread) in planes.into_iter().zip(&config.planes) {
            let enter = Arc::clone(&thread.enter);
            let work = move || {
                enter();
                plane.run()
            };
            switch.planes.push(spawn(thread.name.clone(), work)?);
        }
        switch.control = Some(spawn("switch control".into(), move || control.run())?);
        for (port, of) in config.ports.into_iter().enumerate() {
            if let End::Uplink(wire) = of.end {
                switch.start_uplink(port, of.plane, wire)?;
            }
        }
        Ok((switch, notices))
    }

    /// What was counted so far; without a plane that does not answer.
    pub fn count(&self) -> Report {
        let mut report = Report { ports: Vec::new(), planes: Vec::new(), checked: Vec::new() };
        report.ports.resize_with(self.plugs.ports(), PortStats::default);
        for mailbox in &self.mailboxes {
            report.planes.extend(count_plane(mailbox, &mut report.ports));
        }
        self.add_uplinks(&mut report);
        report
    }

    /// Has the uplink at this place ended, because what is beyond it is gone?
    pub fn has_ended(&self, place: usize) -> bool {
        let has_ended = |uplink: &RunningUplink| uplink.ended.load(Ordering::Acquire);
        self.uplinks.iter().any(|uplink| uplink.port == place && has_ended(uplink))
    }

    fn add_uplinks(&self, report: &mut Report) {
        for RunningUplink { port, counters, .. } in &self.uplinks {
            report.ports[*port].uplink = Some(UplinkStats::of(counters));
        }
    }

    /// Stops: connections are closed, sockets removed. VMs go on when a switch listens again.
    pub fn stop(mut self) -> Report {
        self.end()
    }

    fn end(&mut self) -> Report {
        if let Some(thread) = self.control.take() {
            self.plugs.inbox.send(Request::End);
            let _ = thread.join();
        }
        let mut report = Report { ports: Vec::new(), planes: Vec::new(), checked: Vec::new() };
        report.ports.resize_with(self.plugs.ports(), PortStats::default);
        for (mailbox, thread) in self.mailboxes.iter().zip(self.planes.drain(..)) {
            mailbox.send(Command::End);
            if let Ok(outcome) = thread.join() {
                add(&mut report, &outcome.ports, outcome.stats);
                report.checked.extend(outcome.checked);
            }
        }
        // What the planes delivered goes out before an uplink ends.
        self.uplinks.iter_mut().for_each(RunningUplink::stop_and_wait);
        self.add_uplinks(&mut report);
        report
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new().name(name).spawn(work).map_err(Error::Start)
}

/// The account of a plane with a budget.
fn account(plane: &PlaneThread) -> Result<Option<Arc<Account>>, Error> {
    let Some(budget) = &plane.budget else { return Ok(None) };
    let account = Account::new(budget);
    let account = account.map_err(|source| Error::Budget { plane: plane.name.clone(), source })?;
    Ok(Some(Arc::new(account)))
}

/// Addresses that ports learn which come later, as far as memory was set aside for them.
const MORE_ADDRESSES: u32 = 1_024;

/// What is behind a port.
fn behind(end: &End) -> Behind {
    match end {
        End::Socket(_) | End::Listener(_) => Behind::Vm,
        End::Uplink(_) => Behind::Uplink,
    }
}

/// What all threads know at the start.
pub(crate) fn shared(config: &Config, mailboxes: &[Arc<Mailbox>]) -> Result<Shared, Error> {
    let behind: Vec<Behind> = config.ports.iter().map(|port| behind(&port.end)).collect();
    let table = Table::with_room(&behind, PORTS_MAX, MORE_ADDRESSES);
    for (port, of) in config.ports.iter().enumerate() {
        if let Some(address) = of.address {
            table.pin(address, port);
        }
    }
    Ok(Shared {
        ports: std::iter::repeat_with(SharedPort::default).take(PORTS_MAX).collect(),
        used: AtomicUsize::new(config.ports.len()),
        table,
        mtu: config.mtu.unwrap_or(u32::MAX),
        start: std::time::Instant::now(),
        only: if let [only] = mailboxes { Some(Arc::clone(only)) } else { None },
    })
}

/// The thread of an uplink, which starts with its rings.
pub(crate) fn start_uplink(
    wire: Box<dyn Wire>,
    mut rings: PortRings,
    enter: Arc<dyn Fn() + Send + Sync>,
    account: Option<Arc<Account>>,
) -> io::Result<RunningUplink> {
    let counters = Arc::<Counters>::default();
    let uplink = Uplink::new(wire, Arc::clone(&counters))?;
    let stop = uplink.stopper();
    let port = rings.port;
    let ended = Arc::<AtomicBool>::default();
    let of_thread = Arc::clone(&ended);
    for (queue, setup) in [RECEIVE, SEND].into_iter().zip(uplink.setups()?) {
        rings.start(queue, setup).map_err(io::Error::other)?;
    }
    let work = move || {
        enter();
        if let Err(error) = uplink.run(account, rings.shared.start) {
            for queue in [RECEIVE, SEND] {
                rings.stop(queue);
            }
            rings.shared.table.forget(port);
            of_thread.store(true, Ordering::Release);
            rings.notice(Event::Disconnected(Some(error.to_string())));
        }
    };
    let thread = std::thread::Builder::new().name(format!("switch uplink {port}")).spawn(work)?;
    Ok(RunningUplink { port, thread: Some(thread), stop, counters, ended })
}

/// Adds what a plane counted of `ports`, a few at a time: it carries packets in between. Returns what it did
/// itself, if it answers.
fn count_plane(mailbox: &Mailbox, ports: &mut [PortStats]) -> Option<PlaneStats> {
    let mut plane = None;
    for (at, sums) in ports.chunks_mut(COUNTED_TOGETHER).enumerate() {
        let (reply, answer) = mpsc::sync_channel(1);
        let into = vec![PortStats::default(); sums.len()];
        mailbox.send(Command::Count { from: at * COUNTED_TOGETHER, into, reply });
        let (counted, stats) = answer.recv_timeout(PLANE_LIMIT).ok()?;
        sums.iter_mut().zip(&counted).for_each(|(sum, port)| sum.merge(port));
        plane = Some(stats);
    }
    plane
}

fn add(report: &mut Report, ports: &[PortStats], plane: PlaneStats) {
    for (sum, port) in report.ports.iter_mut().zip(ports) {
        sum.merge(port);
    }
    report.planes.push(plane);
}

fn check(config: &Config) -> Result<(), Error> {
    if config.ports.is_empty() || config.ports.len() > PORTS_MAX {
        return Err(Error::Ports(config.ports.len()));
    }
    match config.ports.iter().find(|port| port.plane >= config.planes.len()) {
        Some(port) => Err(Error::Plane { port: port.name.clone(), plane: port.plane }),
        None => Ok(()),
    }
}

/// What a plane is made of beside its discipline.
struct PlaneOf<'a> {
    config: &'a Config,
    index: usize,
    threads: Threads,
}

impl Visitor for PlaneOf<'_> {
    type Output = Result<Box<dyn Work>, Error>;

    fn visit<D: Discipline + 'static>(self, mut discipline: D) -> Self::Output {
        let PlaneOf { config, index, threads } = self;
        for port in &config.ports {
            let attached = discipline.attach(Instant::ZERO, &port.params);
            attached.map_err(|error| Error::Discipline(format!("port {}: {error}", port.name)))?;
        }
        discipline.reserve(PORTS_MAX);
        let params: Vec<InterfaceParams> = config.ports.iter().map(|port| port.params.clone()).collect();
        let is_own = |port: usize| config.ports[port].plane == index;
        let mut plane = Plane::new(threads, discipline, is_own, &params).map_err(Error::Start)?;
        plane.poll = config.planes[index].poll;
        if config.check {
            plane.checker = Some(Checker::new(config.discipline, &config.options, &params));
        }
        Ok(Box::new(plane))
    }
}

/// The plane `index` with a discipline of its own.
pub(crate) fn plane(config: &Config, index: usize, threads: Threads) -> Result<Box<dyn Work>, Error> {
    let of = PlaneOf { config, index, threads };
    registry::build(config.discipline, &config.options, of)
        .map_err(|error| Error::Discipline(error.to_string()))?
}

/// The rings of a port, as its session starts and stops them.
pub(crate) struct PortRings {
    port: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    notices: Sender<Notice>,
    /// By queue: does it run?
    running: [bool; 2],
    /// Rings whose bells the control hears until something is seen in one of them.
    unproven: [Option<Setup>; 2],
    /// Have the rings changed since the control last looked?
    changed: bool,
}

/// Rings of a port that do not run yet.
pub(crate) fn rings(
    port: usize,
    plane: usize,
    shared: &Arc<Shared>,
    mailboxes: &[Arc<Mailbox>],
    notices: &Sender<Notice>,
) -> PortRings {
    PortRings {
        port,
        shared: Arc::clone(shared),
        mailbox: Arc::clone(&mailboxes[plane]),
        notices: notices.clone(),
        running: [false; 2],
        unproven: [None, None],
        changed: false,
    }
}

impl PortRings {
    fn notice(&self, event: Event) {
        // Without a reader there is nobody to tell.
        let _ = self.notices.send(Notice { port: self.port, event });
    }

    fn is_broken(&self) -> bool {
        self.shared.ports[self.port].broken.load(Ordering::Acquire)
    }

    /// The driver rang. Is there anything in the rings now?
    fn rang(&mut self) {
        let is_seen = |setup: &Setup| {
            let index = GuestAddress(setup.available.saturating_add(2));
            setup.memory.guest.read_obj::<u16>(index).unwrap_or_default() != 0
        };
        if self.unproven.iter().flatten().any(is_seen) {
            self.unproven = [None, None];
            self.changed = true;
            return;
        }
        let kicks: u64 = self.unproven.iter().flatten().map(|setup| rings_of(&setup.kick)).sum();
        if kicks >= SILENT_KICKS {
            self.unproven = [None, None];
            self.changed = true;
            for queue in [RECEIVE, SEND] {
                self.stop(queue);
            }
            self.shared.ports[self.port].broken.store(true, Ordering::Release);
            self.notice(Event::Broken(Broken::NotShared));
        }
    }
}

/// How often a bell has rung. Nobody reads bells, so their count is that since they were made.
fn rings_of(bell: &OwnedFd) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", bell.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
    count.and_then(|count| u64::from_str_radix(count.trim(), 16).ok()).unwrap_or_default()
}

impl Rings for PortRings {
    fn start(&mut self, queue: usize, setup: Setup) -> Result<(), Broken> {
        if self.is_broken() {
            return Ok(());
        }
        if queue == RECEIVE {
            self.shared.set_receive(self.port, Some(ReceiveRing::new(&setup)?));
        } else {
            let ring = Box::new(SendRing::new(&setup)?);
            self.mailbox.send(Command::Start { port: self.port, ring });
        }
        self.running[queue] = true;
        if let Some(call) = &setup.call {
            // The switch before may have died between a frame and telling of it.
            ring_bell(call);
        }
        let assumed = setup.assumed;
        self.unproven[queue] = Some(setup);
        self.changed = true;
        if self.running == [true; 2] {
            self.notice(Event::Running);
            if assumed {
                self.notice(Event::Assumed);
            }
        }
        Ok(())
    }

    fn stop(&mut self, queue: usize) -> Option<u16> {
        if !std::mem::take(&mut self.running[queue]) {
            return None;
        }
        self.unproven[queue] = None;
        self.changed = true;
        if queue == RECEIVE {
            return self.shared.set_receive(self.port, None);
        }
        let (reply, answer) = mpsc::sync_channel(1);
        self.mailbox.send(Command::Stop { port: self.port, reply });
        answer.recv_timeout(PLANE_LIMIT).ok().flatten()
    }

    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>) {
        if !self.running[queue] {
            return;
        }
        if let Some(setup) = &mut self.unproven[queue] {
            setup.call.clone_from(&call);
        }
        match queue {
            RECEIVE => self.shared.set_call(self.port, call),
            _ => self.mailbox.send(Command::Call { port: self.port, queue, call }),
        }
    }

    fn set_error(&mut self, queue: usize, error: Option<Arc<OwnedFd>>) {
        // A broken receive ring is told of at its sender's place.
        if queue == SEND && self.running[queue] {
            self.mailbox.send(Command::Error { port: self.port, error });
        }
    }

    fn forgive(&mut self) {
        self.shared.ports[self.port].broken.store(false, Ordering::Release);
    }
}

/// A port as the control sees it.
struct Door {
    socket: Socket,
    connection: Option<Connection>,
    rings: PortRings,
    /// Bells that the control hears.
    heard: Vec<Arc<OwnedFd>>,
    /// Was it said that no monitor can be accepted?
    is_unaccepted: bool,
}

impl Door {
    /// Listens for a VM's monitor; `None` at an uplink.
    fn open(end: &End, rings: PortRings) -> Result<Option<Door>, Error> {
        let (path, listener) = match end {
            End::Uplink(_) => return Ok(None),
            End::Socket(path) => (Some(path.clone()), listen(path)?),
            End::Listener(listener) => {
                let listener = listener.try_clone().map_err(Error::Start)?;
                listener.set_nonblocking(true).map_err(Error::Start)?;
                (None, listener)
            }
        };
        let socket = Socket { path, listener };
        Ok(Some(Door { socket, connection: None, rings, heard: Vec::new(), is_unaccepted: false }))
    }

    fn hang_up(&mut self, epoll: &OwnedFd) {
        hang_up(&mut self.connection, &mut self.rings, epoll);
    }

    /// Disconnects the VM for good. The socket goes first: a monitor that connects again at once must be
    /// refused, for some (Cloud Hypervisor's) do not try again after a connection that ends unheard.
    fn close(self, epoll: &OwnedFd) {
        let Door { socket, mut connection, mut rings, heard, .. } = self;
        let _ = epoll::delete(epoll, &socket.listener);
        drop(socket);
        hang_up(&mut connection, &mut rings, epoll);
        for bell in heard {
            let _ = epoll::delete(epoll, &*bell);
        }
    }
}

fn hang_up(connection: &mut Option<Connection>, rings: &mut PortRings, epoll: &OwnedFd) {
    let Some(mut connection) = connection.take() else { return };
    let _ = epoll::delete(epoll, connection.as_fd());
    connection.end(rings);
    rings.shared.table.forget(rings.port);
}

/// Where a port's monitor connects.
struct Socket {
    /// The socket's file, if it is removed at the end.
    path: Option<PathBuf>,
    listener: UnixListener,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The thread that talks with the VMs' monitors.
struct Control {
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    /// By port; uplinks have none.
    doors: BTreeMap<usize, Door>,
    /// Features.
    offered: u64,
    /// Ports whose listeners are left alone until then.
    paused: Option<(std::time::Instant, Vec<usize>)>,
}

/// What an event of the control's epoll is about: the port in the upper bits, one of these below.
const LISTENER: u64 = 0;
const CONNECTION: u64 = 1;
const BELL: u64 = 2;
const INBOX: u64 = 3;

fn data(port: usize, what: u64) -> epoll::EventData {
    epoll::EventData::new_u64((port as u64) << 2 | what)
}

impl Control {
    fn new(
        config: &Config,
        shared: &Arc<Shared>,
        mailboxes: &[Arc<Mailbox>],
        (notices, inbox): (&Sender<Notice>, &Arc<Inbox>),
    ) -> Result<Control, Error> {
        let started = |error: rustix::io::Errno| Error::Start(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(started)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &inbox.bell, data(0, INBOX), flags).map_err(started)?;
        let offered = features::OFFERED | config.mtu.map_or(0, |_| features::MTU);
        let (inbox, doors) = (Arc::clone(inbox), BTreeMap::new());
        let mut control = Control { epoll, inbox, doors, offered, paused: None };
        for (port, of) in config.ports.iter().enumerate() {
            let rings = rings(port, of.plane, shared, mailboxes, notices);
            if let Some(door) = Door::open(&of.end, rings)? {
                control.add(port, door).map_err(Error::Start)?;
            }
        }
        Ok(control)
    }

    /// Another port, whose socket is listened at.
    fn add(&mut self, port: usize, door: Door) -> io::Result<()> {
        let added =
            epoll::add(&self.epoll, &door.socket.listener, data(port, LISTENER), epoll::EventFlags::IN);
        // Its drop removes what it made.
        self.doors.insert(port, door);
        Ok(added?)
    }

    /// A port goes: its VM is disconnected.
    fn remove(&mut self, port: usize) {
        if let Some(door) = self.doors.remove(&port) {
            door.close(&self.epoll);
        }
    }

    /// Does what is in the inbox. Is it the end?
    fn do_requests(&mut self) -> bool {
        while let Some(request) = self.inbox.take() {
            match request {
                Request::Open { port, door, reply } => drop(reply.try_send(self.add(port, *door))),
                Request::Close { port, reply } => {
                    self.remove(port);
                    // Whoever asked may have given up.
                    let _ = reply.try_send(());
                }
                Request::End => return true,
            }
        }
        false
    }

    fn run(mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        loop {
            // An error other than an interruption would be one of this program; then it waits no more.
            let timeout = self.end_pause();
            let happened = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
                Ok((happened, _)) => happened,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            for event in happened.iter() {
                let number = event.data.u64();
                let port = (number >> 2) as usize;
                match number & 3 {
                    LISTENER => self.accept(port),
                    CONNECTION => self.read(port),
                    BELL => {
                        if let Some(door) = self.doors.get_mut(&port) {
                            door.rings.rang();
                        }
                    }
                    _ => {
                        if self.do_requests() {
                            return;
                        }
                        continue;
                    }
                }
                self.follow_bells(port);
            }
        }
    }

    /// A monitor connects. A port has one at a time.
    fn accept(&mut self, port: usize) {
        let Some(door) = self.doors.get_mut(&port) else { return };
        let stream = match door.socket.listener.accept() {
            Ok((stream, _)) => stream,
            // The monitor gave up.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.pause(port, &error),
        };
        door.is_unaccepted = false;
        if door.connection.is_some() {
            return;
        }
        let Ok(connection) = Connection::new(stream, self.offered) else { return };
        if epoll::add(&self.epoll, &connection, data(port, CONNECTION), epoll::EventFlags::IN).is_ok() {
            door.connection = Some(connection);
            door.rings.notice(Event::Connected);
        }
    }

    /// The listener of this port is left alone for a while.
    fn pause(&mut self, port: usize, error: &io::Error) {
        let Some(door) = self.doors.get_mut(&port) else { return };
        // It can fail only if the listener is gone from the set, and then nothing is heard of it either.
        let _ = epoll::modify(
            &self.epoll,
            &door.socket.listener,
            data(port, LISTENER),
            epoll::EventFlags::empty(),
        );
        if !std::mem::replace(&mut door.is_unaccepted, true) {
            door.rings.notice(Event::Unaccepted(error.to_string()));
        }
        let until = std::time::Instant::now() + ACCEPT_PAUSE;
        self.paused.get_or_insert_with(|| (until, Vec::new())).1.push(port);
    }

    /// Hears listeners again whose pause is over. Returns how long the pause of others goes on.
    fn end_pause(&mut self) -> Option<Timespec> {
        let left = self.paused.as_ref()?.0.saturating_duration_since(std::time::Instant::now());
        if !left.is_zero() {
            return Some(Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() });
        }
        for port in self.paused.take()?.1 {
            if let Some(door) = self.doors.get(&port) {
                let listener = &door.socket.listener;
                let _ = epoll::modify(&self.epoll, listener, data(port, LISTENER), epoll::EventFlags::IN);
            }
        }
        None
    }

    /// A monitor says something, or leaves.
    fn read(&mut self, port: usize) {
        let Some(door) = self.doors.get_mut(&port) else { return };
        let Some(connection) = &mut door.connection else { return };
        let Err(error) = connection.read(&mut door.rings) else { return };
        let reason = match error {
            connection::Error::Closed => None,
            error => Some(with_sources(&error)),
        };
        door.hang_up(&self.epoll);
        door.rings.notice(Event::Disconnected(reason));
    }

    /// Hears the bells of rings in which nothing was seen yet, and no others.
    fn follow_bells(&mut self, port: usize) {
        let Some(door) = self.doors.get_mut(&port) else { return };
        if !std::mem::take(&mut door.rings.changed) {
            return;
        }
        for bell in door.heard.drain(..) {
            let _ = epoll::delete(&self.epoll, &*bell);
        }
        for setup in door.rings.unproven.iter().flatten() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &*setup.kick, data(port, BELL), flags).is_ok() {
                door.heard.push(Arc::clone(&setup.kick));
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let doors = std::mem::take(&mut self.doors);
        doors.into_values().for_each(|door| door.close(&self.epoll));
    }
}

/// A listener at `path`. A socket that a switch left behind is replaced.
fn listen(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket { path: path.to_owned(), source };
    make_way(path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::InUse(path.to_owned()),
        _ => failed(error),
    })?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// An error and what caused it, in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
