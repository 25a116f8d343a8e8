//! The server of one VM's socket calls: one thread, which blocks in `epoll` only.

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
use crate::queue::{Geometry, HostQueues, RingError, Words};
use crate::rate::Rate;
use crate::resume::{Found, Record};
use crate::segments::Segments;
use crate::stats::Counts;
use crate::table::Table;

/// Most calls made before the server polls for events.
const BATCH: usize = 32;
/// Most events taken from `epoll_wait` at once.
const EVENTS: usize = 64;

const LISTENER: u64 = 0;
const MONITOR: u64 = 1;
const DOORBELL: u64 = 2;
const STOP: u64 = 3;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another server listens on {0}")]
    InUse(PathBuf),
    #[error("cannot listen on {path}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot use the network namespace {name}")]
    Namespace {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the server's thread")]
    Start(#[source] io::Error),
}

/// Configuration of a server.
pub struct Config {
    /// The thread's name.
    pub name: String,
    /// Path of the socket to which the VM's monitor connects.
    pub socket: PathBuf,
    /// The VM's rules and limits.
    pub policy: Sockets,
    /// Time to poll for the next call, after an event or a call, before the server sleeps. The server does
    /// not poll after the guest has sent an answer.
    pub poll: Duration,
    /// Called first in the thread, to set its priority and processor.
    pub enter: Box<dyn FnOnce() + Send>,
}

/// A change that the server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A VM's monitor connected.
    Connected,
    /// The server took over the VM of an earlier server.
    Resumed,
    /// The VM of an earlier server still runs but cannot be taken over.
    NotResumed(String),
    /// The VM disconnected, and this many sockets were closed.
    Disconnected(usize),
    /// The guest speaks this protocol version instead of [`layout::VERSION`], and is not served.
    OtherVersion(u32),
    /// A second monitor tried to connect, and was refused.
    Refused,
    /// The guest wrote an invalid ring. Its sockets are closed, and it is not served any more.
    InvalidRing(RingError),
    /// The server has failed.
    Failed(String),
}

/// A running server, which stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<(Counts, Segments)>>,
    /// Counters as of the thread's last turn.
    counts: Arc<Mutex<Counts>>,
    /// The socket to remove at the end.
    socket: Option<PathBuf>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// The socket cannot be bound, the namespace entered, or the thread started.
    pub fn start(config: Config) -> Result<(Server, Receiver<Event>), Error> {
        Server::start_resuming(config, None)
    }

    /// Starts a server that can take over the VM of an earlier one. It records the VM in the file `record`.
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
                remove_file(&socket);
                Err(error)
            }
        }
    }

    /// Starts a server on a non-blocking socket that already listens, instead of the one in `config`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the thread not be started.
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
        let stop = Arc::new(new_eventfd().map_err(Error::Start)?);
        let (sender, receiver) = mpsc::channel();
        let (entered, result) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(config.name.clone());
        let thread = thread.spawn(move || match enter_namespace(config.policy.netns.as_deref()) {
            Ok(()) => {
                drop(entered);
                run_worker(config, listener, record, &stopped, (sender, published))
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

    /// Counters as of the thread's last turn.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the server: closes its VM's sockets and sets the status that the guest reads.
    pub fn stop(self) -> Counts {
        self.finish().0
    }

    /// As [`Server::stop`], and returns where the time of requests went.
    pub fn finish(mut self) -> (Counts, Segments) {
        self.join()
    }

    fn join(&mut self) -> (Counts, Segments) {
        let Some(thread) = self.thread.take() else { return Default::default() };
        signal(&self.stop);
        let done = thread.join().unwrap_or_default();
        if let Some(socket) = &self.socket {
            remove_file(socket);
        }
        done
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.join();
    }
}

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn signal(eventfd: &OwnedFd) {
    // A full counter is a pending signal.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Moves this thread into the network namespace of the VM's sockets.
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

/// Whether an error means that the recorded process has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn remove_file(path: &Path) {
    // The file may be gone already.
    let _ = std::fs::remove_file(path);
}

/// Listens on `path`. Replaces the socket that a killed server left behind.
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

fn run_worker(
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
        server.report(Event::Failed(error.to_string()));
    }
    server.disconnect_guest();
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
    /// Start of the wait for the guest's next call, for which the server polls. `None` once the guest has
    /// sent an answer: the receiver of the answer may need this processor.
    expects_since: Option<Instant>,
    counts: Counts,
    published: Arc<Mutex<Counts>>,
    segments: Segments,
    notices: Sender<Event>,
}

/// A connected VM.
struct Guest {
    monitor: Monitor,
    shared: Shared,
    queues: HostQueues,
    table: Table,
    rate: Option<Rate>,
    doorbell: OwnedFd,
    /// One for each queue. With fewer vectors in the device, only the first queues are in use.
    interrupts: Vec<OwnedFd>,
    /// [`Event::OtherVersion`] is reported once.
    is_version_reported: bool,
    /// The guest violated the protocol and is not served any more.
    is_broken: bool,
}

/// The VM's monitor: a connection, or the process of a VM that was taken over. Either becomes readable when
/// the monitor ends.
enum Monitor {
    Connection(UnixStream),
    Process(OwnedFd),
}

/// The outcome of a batch of calls.
enum Next {
    /// There may be more calls.
    Busy,
    /// There are no more calls.
    Idle,
    /// The rate limit permits the next call after this time.
    HeldUp(Duration),
}

impl Worker {
    fn now(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn report(&self, event: Event) {
        // The receiver may be gone.
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
                guest.queues.end_sleep(&guest.shared);
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.on_connect(),
                    MONITOR => self.on_monitor(),
                    DOORBELL => self.on_doorbell(),
                    token => self.on_socket(token),
                }
            }
        }
    }

    /// Publishes the counters. While a reader holds the lock, the server does not wait but publishes later.
    fn publish(&self) {
        if let Ok(mut published) = self.published.try_lock() {
            *published = self.counts;
        }
    }

    /// Makes submitted calls, at most a batch.
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
            match guest.queues.next_submission(&guest.shared) {
                Ok(Some(slot)) => {
                    let measured = (&mut self.counts, &mut self.segments);
                    let served = guest.table.serve(&guest.shared, &mut guest.queues, slot, measured);
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
                Err(error) => {
                    guest.is_broken = true;
                    guest.disconnect();
                    self.report(Event::InvalidRing(error));
                    return Next::Idle;
                }
            }
        }
        Next::Busy
    }

    /// Whether to poll for the guest's next call.
    fn expects_call(&self) -> bool {
        self.expects_since.is_some_and(|since| self.now().since(since) < self.poll)
    }

    /// Prepares to sleep. Returns the timeout: none, or zero when a call has come meanwhile.
    fn sleep(&mut self) -> Option<Duration> {
        let is_asleep = match &self.guest {
            Some(guest) if !guest.is_broken => guest.queues.prepare_sleep(&guest.shared),
            _ => true,
        };
        self.counts.sleeps += u64::from(is_asleep);
        if is_asleep { None } else { Some(Duration::ZERO) }
    }

    fn on_socket(&mut self, token: u64) {
        let now = self.now();
        let Some(guest) = self.guest.as_mut().filter(|guest| !guest.is_broken) else { return };
        self.expects_since = Some(now);
        let interrupt = guest.table.on_event(&guest.shared, &mut guest.queues, token, &mut self.counts);
        if let Some(queue) = interrupt {
            self.counts.interrupts += 1;
            guest.interrupt(queue);
        }
    }

    fn on_doorbell(&mut self) {
        let Some(guest) = &mut self.guest else { return };
        // An empty counter is not an error: the signal has been read.
        let _ = rustix::io::read(&guest.doorbell, &mut [0; 8]);
        let version = guest.shared.load(layout::GUEST_VERSION_AT);
        if !guest.is_version_reported && ![0, layout::VERSION].contains(&version) {
            guest.is_version_reported = true;
            self.report(Event::OtherVersion(version));
        }
    }

    fn on_connect(&mut self) {
        let Ok((monitor, _)) = self.listener.accept() else { return };
        if self.guest.is_some() {
            return self.report(Event::Refused);
        }
        match self.new_guest(monitor) {
            Ok(guest) => {
                self.guest = Some(guest);
                self.counts.guests += 1;
                self.report(Event::Connected);
            }
            Err(error) => self.report(Event::Failed(error.to_string())),
        }
    }

    /// Makes new memory for a monitor that has connected, so that nothing of one guest reaches the next.
    fn new_guest(&self, monitor: UnixStream) -> io::Result<Guest> {
        monitor.set_nonblocking(true)?;
        let (shared, doorbell) = (Shared::new()?, new_eventfd()?);
        let interrupts = (0..layout::QUEUES).map(|_| new_eventfd()).collect::<io::Result<Vec<_>>>()?;
        shared.store(layout::VERSION_AT, layout::VERSION);
        shared.store(layout::STATUS_AT, layout::STATUS_SERVING);
        shared.store(layout::INCARNATION_AT, 1);
        shared.store(layout::MAGIC_AT, layout::MAGIC);
        ivshmem::send_setup(&monitor, shared.file(), doorbell.as_fd(), &interrupts)?;
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
            is_version_reported: false,
            is_broken: false,
        })
    }

    /// Takes over the VM of an earlier server, if there is one. Its old sockets are lost; new ones work.
    fn resume(&mut self) {
        let Some((path, record)) = self.record.as_deref().and_then(|path| Some((path, Record::read(path)?)))
        else {
            return;
        };
        match record.open().and_then(|found| self.take_over(found)) {
            Ok(guest) => {
                guest.interrupt(0);
                self.guest = Some(guest);
                self.counts.guests += 1;
                self.report(Event::Resumed);
            }
            Err(error) if is_gone(&error) => remove_file(path),
            Err(error) => self.report(Event::NotResumed(error.to_string())),
        }
    }

    fn take_over(&self, found: Found) -> io::Result<Guest> {
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

    /// Handles input of the monitor, which the protocol does not define, or its end.
    fn on_monitor(&mut self) {
        let has_ended = match self.guest.as_ref().map(|guest| &guest.monitor) {
            None => return,
            // A pidfd is readable once the process has ended.
            Some(Monitor::Process(_)) => true,
            Some(Monitor::Connection(connection)) => match rustix::io::read(connection, &mut [0; 64]) {
                Ok(bytes) => bytes == 0,
                Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
            },
        };
        if has_ended {
            self.disconnect_guest();
            self.record.as_deref().into_iter().for_each(remove_file);
        }
    }

    fn disconnect_guest(&mut self) {
        if let Some(mut guest) = self.guest.take() {
            let closed = guest.disconnect();
            self.report(Event::Disconnected(closed));
        }
    }
}

impl Guest {
    /// Closes the VM's sockets and sets the status that the guest reads. Returns the number of sockets.
    fn disconnect(&mut self) -> usize {
        let closed = self.table.len();
        self.table.clear();
        self.shared.store(layout::STATUS_AT, layout::STATUS_GONE);
        self.interrupt(0);
        closed
    }

    /// Interrupts the vCPU of a queue, or the first one where the device has no vector for the queue.
    fn interrupt(&self, queue: u32) {
        self.interrupts.get(queue as usize).or(self.interrupts.first()).into_iter().for_each(signal);
    }
}
