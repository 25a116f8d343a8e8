//! The control thread: listens on the sockets of all ports and runs their vhost-user sessions. It never waits
//! for a front-end.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll;
use rustix::time::Timespec;

use crate::config::{End, Error};
use crate::connection::{self, Connection};
use crate::event::Event;
use crate::port_session::PortSession;
use crate::port_state::Change;
use crate::shared::Shared;
use crate::socket::remove_stale_socket;
use crate::sys::signal;

/// Pause of a listener that cannot accept for want of descriptors or memory. The front-end stays in its
/// backlog, so without a pause epoll would report it again at once.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A request to the control thread.
pub(crate) enum Request {
    Open { port: usize, listener: Box<Listener>, reply: SyncSender<io::Result<()>> },
    Close { port: usize, reply: SyncSender<()> },
    Exit,
}

/// The queue of requests.
pub(crate) struct Inbox {
    requests: Mutex<VecDeque<Request>>,
    event: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Inbox { requests: Mutex::default(), event })
    }

    pub(crate) fn send(&self, request: Request) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
        signal(&self.event);
    }

    fn recv(&self) -> Option<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A port's listening socket and its connection, if there is one.
pub(crate) struct Listener {
    socket: ListenSocket,
    connection: Option<Connection>,
    session: PortSession,
    /// Kick events in the control's epoll set.
    watched: Vec<Arc<OwnedFd>>,
    /// A failure to accept was reported.
    accept_failed: bool,
}

impl Listener {
    /// Listens for a VM's front-end; `None` for an uplink and for classes.
    pub(crate) fn open(end: &End, session: PortSession) -> Result<Option<Listener>, Error> {
        let (path, listener) = match end {
            End::Uplink(_) | End::UplinkClass(..) | End::VmClass { .. } => return Ok(None),
            End::Socket(path) => (Some(path.clone()), listen(path)?),
            End::Listener(listener) => {
                let listener = listener.try_clone().map_err(Error::Start)?;
                listener.set_nonblocking(true).map_err(Error::Start)?;
                (None, listener)
            }
        };
        let socket = ListenSocket { path, listener };
        Ok(Some(Listener { socket, connection: None, session, watched: Vec::new(), accept_failed: false }))
    }

    fn disconnect(&mut self, epoll: &OwnedFd) {
        disconnect(&mut self.connection, &mut self.session, epoll);
    }

    /// Disconnects the VM for good. The socket goes first: a front-end that reconnects at once must be
    /// refused, because Cloud Hypervisor does not retry after a connection that ends without a reply.
    fn close(self, epoll: &OwnedFd) {
        let Listener { socket, mut connection, mut session, watched, .. } = self;
        let _ = epoll::delete(epoll, &socket.listener);
        drop(socket);
        disconnect(&mut connection, &mut session, epoll);
        for kick in watched {
            let _ = epoll::delete(epoll, &*kick);
        }
    }
}

fn disconnect(connection: &mut Option<Connection>, session: &mut PortSession, epoll: &OwnedFd) {
    let Some(mut connection) = connection.take() else { return };
    let _ = epoll::delete(epoll, connection.as_fd());
    connection.end(session);
    session.end(Change::FrontEndGone);
}

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

pub(crate) struct Control {
    epoll: OwnedFd,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    /// By port; uplinks have none.
    listeners: BTreeMap<usize, Listener>,
    offered_features: u64,
    /// Listeners that pause, and until when.
    paused: Option<(std::time::Instant, Vec<usize>)>,
}

/// The epoll data of the control: the port in the upper bits, the source in the lower two.
const LISTENER: u64 = 0;
const CONNECTION: u64 = 1;
const KICK: u64 = 2;
/// Requests, or with [`BROKEN_PORT`] reports of planes.
const INBOX: u64 = 3;
const BROKEN_PORT: usize = 1;

fn data(port: usize, source: u64) -> epoll::EventData {
    epoll::EventData::new_u64((port as u64) << 2 | source)
}

impl Control {
    /// The control of a switch without ports, which offers these features.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        inbox: &Arc<Inbox>,
        offered_features: u64,
    ) -> io::Result<Control> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &inbox.event, data(0, INBOX), flags)?;
        epoll::add(&epoll, &shared.broken_event, data(BROKEN_PORT, INBOX), flags)?;
        let (shared, inbox, listeners) = (Arc::clone(shared), Arc::clone(inbox), BTreeMap::new());
        Ok(Control { epoll, shared, inbox, listeners, offered_features, paused: None })
    }

    pub(crate) fn add(&mut self, port: usize, listener: Listener) -> io::Result<()> {
        let flags = epoll::EventFlags::IN;
        let added = epoll::add(&self.epoll, &listener.socket.listener, data(port, LISTENER), flags);
        // Kept even if this failed: its drop removes the socket.
        self.listeners.insert(port, listener);
        Ok(added?)
    }

    /// Removes a port: its VM is disconnected.
    fn remove(&mut self, port: usize) {
        if let Some(listener) = self.listeners.remove(&port) {
            listener.close(&self.epoll);
        }
    }

    /// Returns whether the thread must end.
    fn handle_requests(&mut self) -> bool {
        while let Some(request) = self.inbox.recv() {
            match request {
                Request::Open { port, listener, reply } => drop(reply.try_send(self.add(port, *listener))),
                Request::Close { port, reply } => {
                    self.remove(port);
                    // The sender may have timed out.
                    let _ = reply.try_send(());
                }
                Request::Exit => return true,
            }
        }
        false
    }

    pub(crate) fn run(mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        loop {
            let timeout = self.resume_accept();
            let happened = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
                Ok((happened, _)) => happened,
                Err(rustix::io::Errno::INTR) => continue,
                // Any other error is a bug of this program.
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
                            listener.session.on_kick();
                        }
                    }
                    _ if port == BROKEN_PORT => {
                        self.shared.pass_on_reports();
                        continue;
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

    /// Accepts a front-end. A port has one at a time.
    fn accept(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let stream = match listener.socket.listener.accept() {
            Ok((stream, _)) => stream,
            // The front-end gave up.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.pause_accept(port, &error),
        };
        listener.accept_failed = false;
        if let Some(before) = &listener.connection {
            if !before.has_hung_up() {
                return;
            }
            // Its end is known in another event, which may come after that of its successor.
            listener.disconnect(&self.epoll);
            listener.session.notice(Event::Disconnected(None));
        }
        let Ok(connection) = Connection::new(stream, self.offered_features) else { return };
        if epoll::add(&self.epoll, &connection, data(port, CONNECTION), epoll::EventFlags::IN).is_ok() {
            listener.connection = Some(connection);
            listener.session.life().apply(Change::FrontEndConnected);
            listener.session.notice(Event::Connected);
        }
    }

    fn pause_accept(&mut self, port: usize, error: &io::Error) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let (socket, none) = (&listener.socket.listener, epoll::EventFlags::empty());
        // This fails only if the listener is not in the set; then it reports nothing either.
        let _ = epoll::modify(&self.epoll, socket, data(port, LISTENER), none);
        if !std::mem::replace(&mut listener.accept_failed, true) {
            listener.session.notice(Event::Unaccepted(error.to_string()));
        }
        let until = std::time::Instant::now() + ACCEPT_PAUSE;
        self.paused.get_or_insert_with(|| (until, Vec::new())).1.push(port);
    }

    /// Resumes listeners whose pause is over. Returns how long the others still pause.
    fn resume_accept(&mut self) -> Option<Timespec> {
        let left = self.paused.as_ref()?.0.saturating_duration_since(std::time::Instant::now());
        if !left.is_zero() {
            return Some(Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() });
        }
        for port in self.paused.take()?.1 {
            if let Some(listener) = self.listeners.get(&port) {
                let socket = &listener.socket.listener;
                let _ = epoll::modify(&self.epoll, socket, data(port, LISTENER), epoll::EventFlags::IN);
            }
        }
        None
    }

    /// Reads from a front-end.
    fn read(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let Some(connection) = &mut listener.connection else { return };
        let Err(error) = connection.read(&mut listener.session) else { return };
        let reason = match error {
            connection::Error::Closed => None,
            error => Some(with_sources(&error)),
        };
        listener.disconnect(&self.epoll);
        listener.session.notice(Event::Disconnected(reason));
    }

    /// Watches the kick events that the port's session wants to see, and no others: in a running port they
    /// are the plane's alone.
    fn watch_kicks(&mut self, port: usize) {
        let Some(listener) = self.listeners.get_mut(&port) else { return };
        let Listener { session, watched, .. } = listener;
        if session.watched_kicks().map(Arc::as_ptr).eq(watched.iter().map(Arc::as_ptr)) {
            return;
        }
        for kick in watched.drain(..) {
            let _ = epoll::delete(&self.epoll, &*kick);
        }
        for kick in session.watched_kicks() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &**kick, data(port, KICK), flags).is_ok() {
                watched.push(Arc::clone(kick));
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

/// Listens at `path`. A socket that a killed switch left behind is replaced.
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

/// An error and its sources in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
