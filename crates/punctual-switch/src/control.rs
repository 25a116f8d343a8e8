//! The thread that talks with the VMs' monitors.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll;
use rustix::time::Timespec;

use crate::config::{Config, End, Error};
use crate::connection::{self, Connection};
use crate::event::{Event, Notice};
use crate::features;
use crate::mailbox::Mailbox;
use crate::port_session::{PortSession, rings};
use crate::shared::Shared;
use crate::socket::remove_stale_socket;
use crate::sys::signal;

/// A listener that cannot accept, for want of descriptors or memory, is left alone for this long: its monitor
/// waits, so without a pause the control would be told of it again at once, for ever.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// What the control is asked to do.
pub(crate) enum Request {
    /// Listen at another port.
    Open { port: usize, listener: Box<Listener>, reply: SyncSender<io::Result<()>> },
    /// No more at this one.
    Close { port: usize, reply: SyncSender<()> },
    /// It is over.
    End,
}

/// The way to the control.
pub(crate) struct Inbox {
    requests: Mutex<VecDeque<Request>>,
    pub(crate) bell: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Inbox { requests: Mutex::default(), bell })
    }

    pub(crate) fn send(&self, request: Request) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
        signal(&self.bell);
    }

    pub(crate) fn take(&self) -> Option<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A port as the control sees it.
pub(crate) struct Listener {
    socket: ListenSocket,
    connection: Option<Connection>,
    rings: PortSession,
    /// Bells that the control hears.
    watched: Vec<Arc<OwnedFd>>,
    /// Was it said that no monitor can be accepted?
    accept_failed: bool,
}

impl Listener {
    /// Listens for a VM's monitor; `None` at an uplink.
    pub(crate) fn open(end: &End, rings: PortSession) -> Result<Option<Listener>, Error> {
        let (path, listener) = match end {
            End::Uplink(_) => return Ok(None),
            End::Socket(path) => (Some(path.clone()), listen(path)?),
            End::Listener(listener) => {
                let listener = listener.try_clone().map_err(Error::Start)?;
                listener.set_nonblocking(true).map_err(Error::Start)?;
                (None, listener)
            }
        };
        let socket = ListenSocket { path, listener };
        Ok(Some(Listener { socket, connection: None, rings, watched: Vec::new(), accept_failed: false }))
    }

    fn disconnect(&mut self, epoll: &OwnedFd) {
        disconnect(&mut self.connection, &mut self.rings, epoll);
    }

    /// Disconnects the VM for good. The socket goes first: a monitor that connects again at once must be
    /// refused, for some (Cloud Hypervisor's) do not try again after a connection that ends unheard.
    fn close(self, epoll: &OwnedFd) {
        let Listener { socket, mut connection, mut rings, watched, .. } = self;
        let _ = epoll::delete(epoll, &socket.listener);
        drop(socket);
        disconnect(&mut connection, &mut rings, epoll);
        for bell in watched {
            let _ = epoll::delete(epoll, &*bell);
        }
    }
}

fn disconnect(connection: &mut Option<Connection>, rings: &mut PortSession, epoll: &OwnedFd) {
    let Some(mut connection) = connection.take() else { return };
    let _ = epoll::delete(epoll, connection.as_fd());
    connection.end(rings);
    rings.shared.table.forget(rings.port);
}

/// Where a port's monitor connects.
struct ListenSocket {
    /// The socket's file, if it is removed at the end.
    path: Option<PathBuf>,
    listener: UnixListener,
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The thread that talks with the VMs' monitors.
pub(crate) struct Control {
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    /// By port; uplinks have none.
    listeners: BTreeMap<usize, Listener>,
    /// Features.
    offered: u64,
    /// Ports whose listeners are left alone until then.
    paused: Option<(std::time::Instant, Vec<usize>)>,
}

/// What an event of the control's epoll is about: the port in the upper bits, one of these below.
const LISTENER: u64 = 0;

const CONNECTION: u64 = 1;

const KICK: u64 = 2;

const INBOX: u64 = 3;

fn data(port: usize, what: u64) -> epoll::EventData {
    epoll::EventData::new_u64((port as u64) << 2 | what)
}

impl Control {
    pub(crate) fn new(
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
        let (inbox, listeners) = (Arc::clone(inbox), BTreeMap::new());
        let mut control = Control { epoll, inbox, listeners, offered, paused: None };
        for (port, of) in config.ports.iter().enumerate() {
            let rings = rings(port, of.plane, shared, mailboxes, notices);
            if let Some(listener) = Listener::open(&of.end, rings)? {
                control.add(port, listener).map_err(Error::Start)?;
            }
        }
        Ok(control)
    }

    /// Another port, whose socket is listened at.
    fn add(&mut self, port: usize, listener: Listener) -> io::Result<()> {
        let added =
            epoll::add(&self.epoll, &listener.socket.listener, data(port, LISTENER), epoll::EventFlags::IN);
        // Its drop removes what it made.
        self.listeners.insert(port, listener);
        Ok(added?)
    }

    /// A port goes: its VM is disconnected.
    fn remove(&mut self, port: usize) {
        if let Some(listener) = self.listeners.remove(&port) {
            listener.close(&self.epoll);
        }
    }

    /// Does what is in the inbox. Is it the end?
    fn handle_requests(&mut self) -> bool {
        while let Some(request) = self.inbox.take() {
            match request {
                Request::Open { port, listener, reply } => drop(reply.try_send(self.add(port, *listener))),
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

    pub(crate) fn run(mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        loop {
            // An error other than an interruption would be one of this program; then it waits no more.
            let timeout = self.resume_accept();
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
                    KICK => {
                        if let Some(listener) = self.listeners.get_mut(&port) {
                            listener.rings.on_kick();
                        }
                    }
                    _ => {
                        if self.handle_requests() {
                            return;
                        }
                        continue;
                    }
                }
                self.watch_kicks(port);
            }
        }
    }

    /// A monitor connects. A port has one at a time.
    fn accept(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let stream = match listener.socket.listener.accept() {
            Ok((stream, _)) => stream,
            // The monitor gave up.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.pause_accept(port, &error),
        };
        listener.accept_failed = false;
        if listener.connection.is_some() {
            return;
        }
        let Ok(connection) = Connection::new(stream, self.offered) else { return };
        if epoll::add(&self.epoll, &connection, data(port, CONNECTION), epoll::EventFlags::IN).is_ok() {
            listener.connection = Some(connection);
            listener.rings.notice(Event::Connected);
        }
    }

    /// The listener of this port is left alone for a while.
    fn pause_accept(&mut self, port: usize, error: &io::Error) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        // It can fail only if the listener is gone from the set, and then nothing is watched of it either.
        let _ = epoll::modify(
            &self.epoll,
            &listener.socket.listener,
            data(port, LISTENER),
            epoll::EventFlags::empty(),
        );
        if !std::mem::replace(&mut listener.accept_failed, true) {
            listener.rings.notice(Event::Unaccepted(error.to_string()));
        }
        let until = std::time::Instant::now() + ACCEPT_PAUSE;
        self.paused.get_or_insert_with(|| (until, Vec::new())).1.push(port);
    }

    /// Hears listeners again whose pause is over. Returns how long the pause of others goes on.
    fn resume_accept(&mut self) -> Option<Timespec> {
        let left = self.paused.as_ref()?.0.saturating_duration_since(std::time::Instant::now());
        if !left.is_zero() {
            return Some(Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() });
        }
        for port in self.paused.take()?.1 {
            if let Some(listener) = self.listeners.get(&port) {
                let listener = &listener.socket.listener;
                let _ = epoll::modify(&self.epoll, listener, data(port, LISTENER), epoll::EventFlags::IN);
            }
        }
        None
    }

    /// A monitor says something, or leaves.
    fn read(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let Some(connection) = &mut listener.connection else { return };
        let Err(error) = connection.read(&mut listener.rings) else { return };
        let reason = match error {
            connection::Error::Closed => None,
            error => Some(with_sources(&error)),
        };
        listener.disconnect(&self.epoll);
        listener.rings.notice(Event::Disconnected(reason));
    }

    /// Hears the bells of rings in which nothing was seen yet, and no others.
    fn watch_kicks(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        if !std::mem::take(&mut listener.rings.changed) {
            return;
        }
        for bell in listener.watched.drain(..) {
            let _ = epoll::delete(&self.epoll, &*bell);
        }
        for setup in listener.rings.unproven.iter().flatten() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &*setup.kick, data(port, KICK), flags).is_ok() {
                listener.watched.push(Arc::clone(&setup.kick));
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let listeners = std::mem::take(&mut self.listeners);
        listeners.into_values().for_each(|listener| listener.close(&self.epoll));
    }
}

/// A listener at `path`. A socket that a switch left behind is replaced.
fn listen(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket { path: path.to_owned(), source };
    remove_stale_socket(path).map_err(|error| match error.kind() {
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
