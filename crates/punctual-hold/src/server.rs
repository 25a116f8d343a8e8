//! The socket at which the service says what it wants, and the loop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_enforce::journal::Restored;
use punctual_enforce::session::Failed;
use punctual_linux::os::signal::{Request, Requests};
use punctual_linux::os::socket::{inherited_listener, peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::holder::{Holder, Process};
use crate::protocol::{Connection, Wanted};

/// Where the service finds this process, below the runtime directory.
pub const SOCKET: &str = "enforce";
/// What a service that is gone wanted is held for so long.
pub const GRACE: Duration = Duration::from_secs(60);
/// How often the service is told how things are.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often the session is looked after.
const TICK: Duration = Duration::from_millis(50);
/// How long a wait lasts when nothing is held.
const IDLE: Duration = Duration::from_secs(1);

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory `/run`: the socket is `punctual/enforce` in it, unless systemd gave one.
    pub run: PathBuf,
    /// This program, for the guardian.
    pub program: PathBuf,
    /// Ends this process, when the guardian asks for that.
    pub end: fn() -> !,
    /// How long what a service wanted is held when it is gone; normally [`GRACE`].
    pub grace: Duration,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another one runs.
    #[error("another `punctual enforce` has its socket in {}", .0.display())]
    Another(PathBuf),
    /// The socket cannot be made.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What cannot be done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something of the system fails.
    #[error("cannot go on: {0}")]
    System(#[from] io::Error),
    /// Enforcement did not end as it should.
    #[error(transparent)]
    Session(#[from] Failed),
}

/// The socket of the server whose runtime directory is below `run` (normally `/run`).
pub fn socket(run: &Path) -> PathBuf {
    run.join("punctual").join(SOCKET)
}

/// A server that is ready to run.
pub struct Server {
    listener: UnixListener,
    /// The socket's file, where this process made it.
    own: Option<OwnSocket>,
    signals: Requests,
    holder: Holder,
    client: Option<Connection>,
    /// Since when there is no client.
    alone: Instant,
    next_report: Instant,
    grace: Duration,
}

impl Server {
    /// Takes the socket that systemd gave, or makes it. It blocks SIGHUP, SIGTERM and SIGINT in this thread.
    ///
    /// # Errors
    /// Another one runs, or the socket cannot be made.
    pub fn open(options: &Options) -> Result<Server, Error> {
        let signals = Requests::block()?;
        let (listener, own) = match inherited_listener()? {
            Some(listener) => (listener, None),
            None => {
                let (listener, own) = listen(&options.run)?;
                (listener, Some(own))
            }
        };
        listener.set_nonblocking(true)?;
        let process = Process { program: options.program.clone(), end: options.end };
        let now = Instant::now();
        Ok(Server {
            listener,
            own,
            signals,
            holder: Holder::new(process),
            client: None,
            alone: now,
            next_report: now,
            grace: options.grace,
        })
    }

    /// Runs until SIGTERM or SIGINT. One whose socket is systemd's also ends when nothing is held for a
    /// service that is gone. Returns what was put back.
    ///
    /// # Errors
    /// The system takes no more orders, or something could not be put back at all.
    pub fn run(mut self) -> Result<Option<Restored>, Error> {
        let mut has_more = false;
        loop {
            let wait = match (has_more, self.holder.is_running()) {
                (true, _) => Duration::ZERO,
                (false, true) => TICK,
                (false, false) => IDLE,
            };
            self.wait(wait)?;
            while let Some(request) = self.signals.next()? {
                if request == Request::End {
                    return Ok(self.holder.end()?);
                }
            }
            self.accept();
            self.receive();
            let now = Instant::now();
            if self.client.is_none() && now.duration_since(self.alone) >= self.grace {
                self.holder.want(Wanted::default());
                if self.own.is_none() && !self.holder.is_running() {
                    return Ok(None);
                }
            }
            has_more = self.holder.step(now);
            self.tell(now);
        }
    }

    /// Waits until there is something to do, at most for so long.
    fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut descriptors =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        if let Some(client) = &self.client {
            let output = if client.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            descriptors.push(PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN | output));
        }
        match poll(&mut descriptors, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A service that connects takes the place of the one before, which it has succeeded.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if may_ask(&stream)
                && let Ok(client) = Connection::new(stream)
            {
                self.client = Some(client);
                self.next_report = Instant::now();
            }
        }
    }

    fn receive(&mut self) {
        let Some(client) = &mut self.client else { return };
        match client.receive::<Wanted>() {
            // Each message is the whole.
            Ok(messages) => {
                if let Some(wanted) = messages.into_iter().next_back() {
                    self.holder.want(wanted);
                    self.next_report = Instant::now();
                }
            }
            Err(_) => self.forget_client(),
        }
    }

    fn tell(&mut self, now: Instant) {
        let is_due = self.holder.has_news() || now >= self.next_report;
        let Some(client) = self.client.as_mut().filter(|_| is_due) else { return };
        self.next_report = now + REPORT_INTERVAL;
        if client.send(&self.holder.report()).is_err() {
            self.forget_client();
        }
    }

    fn forget_client(&mut self) {
        self.client = None;
        self.alone = Instant::now();
    }
}

/// A socket's file that this process made, with the lock of its directory.
struct OwnSocket {
    path: PathBuf,
    /// Held for as long as the file is this process's.
    _lock: OwnedFd,
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Only root and this process's own user may say what is to be held.
fn may_ask(stream: &UnixStream) -> bool {
    peer(stream).is_ok_and(|peer| peer.user == 0 || peer.user == rustix::process::geteuid().as_raw())
}

/// Makes the socket; nobody else may have it.
fn listen(run: &Path) -> Result<(UnixListener, OwnSocket), Error> {
    let path = socket(run);
    let directory = run.join("punctual");
    let file = |what, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    };
    std::fs::create_dir_all(&directory).map_err(file("make the directory", &directory))?;
    let lock_path = directory.join("enforce.lock");
    let options = std::fs::File::options().create(true).truncate(false).write(true).open(&lock_path);
    let lock = OwnedFd::from(options.map_err(file("write to", &lock_path))?);
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Another(directory)),
        Err(error) => return Err(file("lock", &lock_path)(error.into())),
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(file("replace", &path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(file("make the socket", &path))?;
    let permissions = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, permissions).map_err(file("protect", &path))?;
    Ok((listener, OwnSocket { path, _lock: lock }))
}
