//! The server of one VM's socket calls: one thread, which waits for nobody.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_model::sockets::Sockets;
use punctual_sched::{Duration, Instant};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::ivshmem;
use crate::layout;
use crate::memory::Shared;
use crate::queue::{Broken, Geometry, HostQueues, Words};
use crate::rate::Rate;
use crate::resume::{Found, Record};
use crate::segments::Segments;
use crate::stats::Counts;
use crate::table::Table;

/// Calls made before sockets are looked at again.
const BATCH: usize = 32;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

const LISTENER: u64 = 0;
const MONITOR: u64 = 1;
const DOORBELL: u64 = 2;
const STOP: u64 = 3;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket of another server that is at work.
    #[error("another server listens on {0}")]
    InUse(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen on {path}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The network namespace of the host file.
    #[error("cannot use the network namespace {name}")]
    Namespace {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses a thread or events.
    #[error("cannot start the server's thread")]
    Start(#[source] io::Error),
}

/// A server to be started.
pub struct Config {
    /// The thread's name.
    pub name: String,
    /// The socket on which it listens for the VM's monitor.
    pub socket: PathBuf,
    /// What the VM may do.
    pub policy: Sockets,
    /// How long it polls for the next call of a service, before it sleeps: after an event and after each
    /// call, but not when the guest has sent its answer.
    pub poll: Duration,
    /// Called first in the thread: sets its priority and processor.
    pub enter: Box<dyn FnOnce() + Send>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM's monitor connected.
    Connected,
    /// A VM of a server before this one is served again.
    Resumed,
    /// A VM of a server before this one is there, and cannot be served again.
    NotResumed(String),
    /// It left; this many sockets were closed.
    Left(usize),
    /// Its guest speaks this version of `docs/vmrpc.md` instead of [`layout::VERSION`]: it is not served.
    OtherVersion(u32),
    /// Another monitor wanted to connect meanwhile, and was refused.
    Refused,
    /// The memory says what cannot be; the VM's sockets were closed, and it is not served any more.
    Broken(Broken),
    /// Nothing works any more.
    Failed(String),
}

/// A server at work. It stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<(Counts, Segments)>>,
    /// What was counted a moment ago.
    counts: Arc<Mutex<Counts>>,
    /// The socket to remove.
    socket: Option<PathBuf>,
}

impl Server {
    /// Starts it, and tells what happens.
    ///
    /// # Errors
    /// When its socket cannot be made, or the kernel refuses.
    pub fn start(config: Config) -> Result<(Server, Receiver<Event>), Error> {
        Server::start_resuming(config, None)
    }

    /// The same; and notes in a file where the VM's files are, to serve the VM of a server before this one.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_resuming(
        config: Config,
        record: Option<PathBuf>,
    ) -> Result<(Server, Receiver<Event>), Error> {
        let socket = config.socket.clone();
        let listener = listen(&socket)?;
        match Server::begin(listener, record, config) {
            Ok((mut server, events)) => {
                server.socket = Some(socket);
                Ok((server, events))
            }
            Err(error) => {
                remove(&socket);
                Err(error)
            }
        }
    }

    /// Starts it on a socket that listens already and does not block; that of `config` is not looked at.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start_on(listener: UnixListener, config: Config) -> Result<(Server, Receiver<Event>), Error> {
        Server::begin(listener, None, config)
    }

    fn begin(
        listener: UnixListener,
        record: Option<PathBuf>,
        config: Config,
    ) -> Result<(Server, Receiver<Event>), Error> {
        let counts = Arc::<Mutex<Counts>>::default();
        let published = Arc::clone(&counts);
        let stop = Arc::new(bell().map_err(Error::Start)?);
        let (sender, receiver) = mpsc::channel();
        let (entered, result) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(config.name.clone());
        let thread = thread.spawn(move || match enter_namespace(config.policy.netns.as_deref()) {
            Ok(()) => {
                drop(entered);
                work(config, listener, record, &stopped, (sender, published))
            }
            Err(error) => {
                let _ = entered.send(error);
                Default::default()
            }
        });
        let thread = thread.map_err(Error::Start).and_then(|thread| match result.recv() {
            Ok(error) => Err(error),
            Err(_) => Ok(thread),
        })?;
        Ok((Server { stop, thread: Some(thread), counts, socket: None }, receiver))
    }

    /// What was counted a moment ago.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops it: its VM's sockets are closed, and the guest is told.
    pub fn stop(self) -> Counts {
        self.finish().0
    }

    /// As [`Server::stop`], with where the time of its requests went.
    pub fn finish(mut self) -> (Counts, Segments) {
        self.end()
    }

    fn end(&mut self) -> (Counts, Segments) {
        let Some(thread) = self.thread.take() else { return Default::default() };
        ring(&self.stop);
        let done = thread.join().unwrap_or_default();
        if let Some(socket) = &self.socket {
            remove(socket);
        }
        done
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(bell: &OwnedFd) {
    // Full means rung.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Moves this thread into the network namespace in which sockets are to be.
fn enter_namespace(name: Option<&str>) -> Result<(), Error> {
    let Some(name) = name else { return Ok(()) };
    let enter = || {
        let file = std::fs::File::open(Path::new("/run/netns").join(name))?;
        Ok(rustix::thread::move_into_link_name_space(
            file.as_fd(),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?)
    };
    enter().map_err(|source| Error::Namespace { name: name.into(), source })
}

/// Has the process ended that a record is about?
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn remove(path: &Path) {
    // It may be gone.
    let _ = std::fs::remove_file(path);
}

/// Listens; takes the place of a server that has died.
fn listen(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket { path: path.into(), source };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(Error::InUse(path.into()));
            }
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn work(
    config: Config,
    listener: UnixListener,
    record: Option<PathBuf>,
    stop: &OwnedFd,
    (notices, published): (Sender<Event>, Arc<Mutex<Counts>>),
) -> (Counts, Segments) {
    (config.enter)();
    let epoll = match epoll::create(epoll::CreateFlags::CLOEXEC) {
        Ok(epoll) => Arc::new(epoll),
        Err(error) => {
            let _ = notices.send(Event::Failed(error.to_string()));
            return Default::default();
        }
    };
    let start = std::time::Instant::now();
    let mut server = Worker {
        policy: config.policy,
        poll: config.poll,
        epoll,
        listener,
        record,
        start,
        guest: None,
        expects_since: None,
        counts: Counts::default(),
        published,
        segments: Segments::default(),
        notices,
    };
    if let Err(error) = server.run(stop) {
        server.tell(Event::Failed(error.to_string()));
    }
    server.leave();
    (server.counts, server.segments)
}

/// The thread's state.
struct Worker {
    policy: Sockets,
    poll: Duration,
    epoll: Arc<OwnedFd>,
    listener: UnixListener,
    record: Option<PathBuf>,
    start: std::time::Instant,
    guest: Option<Guest>,
    /// Since when the guest, which was told of something, is expected to make its next call. Whoever waits
    /// for an answer that was sent may need this processor.
    expects_since: Option<Instant>,
    counts: Counts,
    published: Arc<Mutex<Counts>>,
    segments: Segments,
    notices: Sender<Event>,
}

/// A VM that is connected.
struct Guest {
    monitor: Monitor,
    shared: Shared,
    queues: HostQueues,
    table: Table,
    rate: Option<Rate>,
    doorbell: OwnedFd,
    /// Those of its queues; a device with fewer vectors uses the first queues alone.
    interrupts: Vec<OwnedFd>,
    /// Was it told that the guest speaks another version?
    is_version_told: bool,
    is_broken: bool,
}

/// How the end of a VM's monitor is noticed.
enum Monitor {
    Connection(UnixStream),
    Process(OwnedFd),
}

/// What is next.
enum Next {
    /// There may be more calls.
    Busy,
    /// There are none.
    Idle,
    /// The limit of calls is reached for so long.
    HeldUp(Duration),
}

impl Worker {
    fn now(&self) -> Instant {
        Instant::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    fn tell(&self, event: Event) {
        // Nobody may listen any more.
        let _ = self.notices.send(event);
    }

    fn run(&mut self, stop: &OwnedFd) -> io::Result<()> {
        let input = epoll::EventFlags::IN;
        epoll::add(&*self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), input)?;
        epoll::add(&*self.epoll, stop, epoll::EventData::new_u64(STOP), input)?;
        self.resume();
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = match self.calls() {
                Next::Busy => Some(Duration::ZERO),
                Next::HeldUp(time) => Some(time),
                Next::Idle if self.expects_call() => Some(Duration::ZERO),
                Next::Idle => self.sleep(),
            };
            let timeout = timeout.map(|time| Timespec {
                tv_sec: (time.as_ns() / 1_000_000_000) as i64,
                tv_nsec: (time.as_ns() % 1_000_000_000) as i64,
            });
            events.clear();
            self.publish();
            match epoll::wait(&*self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(guest) = &self.guest {
                guest.queues.wake(&guest.shared);
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.connect(),
                    MONITOR => self.monitor(),
                    DOORBELL => self.doorbell(),
                    token => self.happened(token),
                }
            }
        }
    }

    /// Whoever reads what was counted keeps nobody waiting: then it is told later.
    fn publish(&self) {
        if let Ok(mut published) = self.published.try_lock() {
            *published = self.counts;
        }
    }

    /// Makes the calls that are submitted, a batch at most.
    fn calls(&mut self) -> Next {
        let now = self.now();
        let Some(guest) = self.guest.as_mut().filter(|guest| !guest.is_broken) else { return Next::Idle };
        for made in 0..BATCH {
            if let Some(rate) = &mut guest.rate
                && let Err(time) = rate.take(now)
            {
                self.counts.held_up += 1;
                return Next::HeldUp(time);
            }
            match guest.queues.take(&guest.shared) {
                Ok(Some(slot)) => {
                    let told = (&mut self.counts, &mut self.segments);
                    let served = guest.table.serve(&guest.shared, &mut guest.queues, slot, told);
                    self.expects_since = (!served.has_sent).then_some(now);
                    if let Some(queue) = served.interrupt {
                        self.counts.interrupts += 1;
                        guest.interrupt(queue);
                    }
                }
                Ok(None) => {
                    if let Some(rate) = &mut guest.rate {
                        rate.give_back();
                    }
                    return if made == 0 { Next::Idle } else { Next::Busy };
                }
                Err(broken) => {
                    guest.is_broken = true;
                    guest.end();
                    self.tell(Event::Broken(broken));
                    return Next::Idle;
                }
            }
        }
        Next::Busy
    }

    /// Is the next call of a service to come soon?
    fn expects_call(&self) -> bool {
        self.expects_since.is_some_and(|since| self.now().since(since) < self.poll)
    }

    /// Prepares to sleep; how long at most.
    fn sleep(&mut self) -> Option<Duration> {
        let is_asleep = match &self.guest {
            Some(guest) if !guest.is_broken => guest.queues.sleep(&guest.shared),
            _ => true,
        };
        self.counts.sleeps += u64::from(is_asleep);
        if is_asleep { None } else { Some(Duration::ZERO) }
    }

    fn happened(&mut self, token: u64) {
        let now = self.now();
        let Some(guest) = self.guest.as_mut().filter(|guest| !guest.is_broken) else { return };
        self.expects_since = Some(now);
        let told = guest.table.happened(&guest.shared, &mut guest.queues, token, &mut self.counts);
        if let Some(queue) = told {
            self.counts.interrupts += 1;
            guest.interrupt(queue);
        }
    }

    fn doorbell(&mut self) {
        let Some(guest) = &mut self.guest else { return };
        // Empty means that it was read meanwhile.
        let _ = rustix::io::read(&guest.doorbell, &mut [0; 8]);
        let version = guest.shared.load(layout::GUEST_VERSION_AT);
        if !guest.is_version_told && ![0, layout::VERSION].contains(&version) {
            guest.is_version_told = true;
            self.tell(Event::OtherVersion(version));
        }
    }

    fn connect(&mut self) {
        let Ok((monitor, _)) = self.listener.accept() else { return };
        if self.guest.is_some() {
            return self.tell(Event::Refused);
        }
        match self.guest(monitor) {
            Ok(guest) => {
                self.guest = Some(guest);
                self.counts.guests += 1;
                self.tell(Event::Connected);
            }
            Err(error) => self.tell(Event::Failed(error.to_string())),
        }
    }

    /// New memory for a monitor that has connected.
    fn guest(&self, monitor: UnixStream) -> io::Result<Guest> {
        monitor.set_nonblocking(true)?;
        let (shared, doorbell) = (Shared::new()?, bell()?);
        let interrupts = (0..layout::QUEUES).map(|_| bell()).collect::<io::Result<Vec<_>>>()?;
        shared.store(layout::VERSION_AT, layout::VERSION);
        shared.store(layout::STATUS_AT, layout::STATUS_SERVING);
        shared.store(layout::INCARNATION_AT, 1);
        shared.store(layout::MAGIC_AT, layout::MAGIC);
        ivshmem::greet(&monitor, shared.file(), doorbell.as_fd(), &interrupts)?;
        if let Some(path) = &self.record {
            Record::of(&monitor, &shared, &doorbell, &interrupts)?.write(path)?;
        }
        let queues = HostQueues::new(Geometry::FULL);
        self.serve(Monitor::Connection(monitor), shared, queues, doorbell, interrupts)
    }

    fn serve(
        &self,
        monitor: Monitor,
        shared: Shared,
        queues: HostQueues,
        doorbell: OwnedFd,
        interrupts: Vec<OwnedFd>,
    ) -> io::Result<Guest> {
        let input = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let file = match &monitor {
            Monitor::Connection(connection) => connection.as_fd(),
            Monitor::Process(process) => process.as_fd(),
        };
        epoll::add(&*self.epoll, file, epoll::EventData::new_u64(MONITOR), input)?;
        epoll::add(&*self.epoll, &doorbell, epoll::EventData::new_u64(DOORBELL), input)?;
        Ok(Guest {
            monitor,
            shared,
            queues,
            table: Table::new(self.policy.clone(), Arc::clone(&self.epoll)),
            rate: self.policy.calls_per_second.map(|calls| Rate::new(calls, self.now())),
            doorbell,
            interrupts,
            is_version_told: false,
            is_broken: false,
        })
    }

    /// Serves the VM of a server before this one, if there is one: its sockets are gone, new ones work.
    fn resume(&mut self) {
        let Some((path, record)) = self.record.as_deref().and_then(|path| Some((path, Record::read(path)?)))
        else {
            return;
        };
        match record.open().and_then(|found| self.found(found)) {
            Ok(guest) => {
                guest.interrupt(0);
                self.guest = Some(guest);
                self.counts.guests += 1;
                self.tell(Event::Resumed);
            }
            Err(error) if is_gone(&error) => remove(path),
            Err(error) => self.tell(Event::NotResumed(error.to_string())),
        }
    }

    fn found(&self, found: Found) -> io::Result<Guest> {
        let Found { process, shared, doorbell, interrupts } = found;
        let queues = HostQueues::resume(&shared, Geometry::FULL);
        for id in 0..layout::SOCKETS {
            shared.store(layout::READY_AT + id * 4, 0);
            shared.store(layout::ERROR_AT + id * 4, 0);
        }
        shared.store(layout::HOST_SLEEPING_AT, 0);
        shared.store(layout::STATUS_AT, layout::STATUS_SERVING);
        let incarnation = shared.load(layout::INCARNATION_AT).wrapping_add(1);
        shared.store(layout::INCARNATION_AT, incarnation);
        self.serve(Monitor::Process(process), shared, queues, doorbell, interrupts)
    }

    /// The monitor says nothing that matters; or it left.
    fn monitor(&mut self) {
        let has_left = match self.guest.as_ref().map(|guest| &guest.monitor) {
            None => return,
            // A process is ready when it has ended.
            Some(Monitor::Process(_)) => true,
            Some(Monitor::Connection(connection)) => match rustix::io::read(connection, &mut [0; 64]) {
                Ok(bytes) => bytes == 0,
                Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
            },
        };
        if has_left {
            self.leave();
            self.record.as_deref().into_iter().for_each(remove);
        }
    }

    fn leave(&mut self) {
        if let Some(mut guest) = self.guest.take() {
            let closed = guest.end();
            self.tell(Event::Left(closed));
        }
    }
}

impl Guest {
    /// Closes the VM's sockets and tells it; how many there were.
    fn end(&mut self) -> usize {
        let closed = self.table.len();
        self.table.clear();
        self.shared.store(layout::STATUS_AT, layout::STATUS_GONE);
        self.interrupt(0);
        closed
    }

    /// Interrupts the virtual processor of a queue.
    fn interrupt(&self, queue: u32) {
        self.interrupts.get(queue as usize).or(self.interrupts.first()).into_iter().for_each(ring);
    }
}
