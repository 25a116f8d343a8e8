//! The connection to the process that enforces (`punctual-hold`), and what it says.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_hold::protocol::{Connection, HeldActor, HeldInterrupts, Report, Wanted};

use crate::descriptors::{Descriptors, Token};

/// How often to try to connect.
const RETRY: Duration = Duration::from_secs(1);
/// A process that is well says something each second.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What the enforcing process said last.
#[derive(Debug, Default)]
pub(crate) struct Enforcement {
    /// Why it cannot be reached, or can hold nothing.
    pub failure: Option<String>,
    /// What enforces, by its name in host files.
    pub backend: Option<String>,
    /// The VMs that are wanted, by their process.
    pub actors: BTreeMap<u32, HeldActor>,
    /// The devices whose interrupts go where a class says.
    pub interrupts: Vec<HeldInterrupts>,
    /// Its processor time, in ns; `None` while it is not there.
    pub cpu_ns: Option<u64>,
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    connection: Option<Connection>,
    /// What was sent last over this connection.
    sent: Option<Wanted>,
    next_try: Instant,
    /// When it said something last, or was connected to.
    heard: Instant,
}

impl Link {
    /// To the process whose socket is below `run`; not connected yet.
    pub(crate) fn new(run: &Path) -> Link {
        let path = punctual_hold::socket(run);
        let now = Instant::now();
        Link { path, connection: None, sent: None, next_try: now, heard: now }
    }

    /// Is it connected?
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The enforcing process, while it is connected.
    pub(crate) fn process(&self) -> Option<u32> {
        let connection = self.connection.as_ref()?;
        let peer = rustix::net::sockopt::socket_peercred(connection).ok()?;
        u32::try_from(peer.pid.as_raw_pid()).ok()
    }

    /// Is it connected, or about to try?
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.is_connected() || now >= self.next_try
    }

    /// Has the process said nothing for long, although it is connected?
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.is_connected() && now.saturating_duration_since(self.heard) > SILENCE_MAX
    }

    /// Says what is wanted, if that is new. Connects if need be.
    ///
    /// # Errors
    /// Why the process cannot be reached.
    pub(crate) fn want(
        &mut self,
        wanted: Wanted,
        descriptors: &Descriptors,
        now: Instant,
    ) -> Result<(), String> {
        if self.connection.is_none() {
            self.next_try = now + RETRY;
            let connection = self.connect(descriptors).map_err(|error| {
                let path = self.path.display();
                format!("the enforcing process is not at {path} ({error}): start punctual-enforce.socket")
            })?;
            self.connection = Some(connection);
            self.heard = now;
        }
        if self.sent.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let sent = connection.send(&wanted);
        self.sent = Some(wanted);
        self.settle(sent, descriptors).map_err(|error| format!("the enforcing process is gone: {error}"))
    }

    fn connect(&self, descriptors: &Descriptors) -> io::Result<Connection> {
        let connection = Connection::new(UnixStream::connect(&self.path)?)?;
        descriptors.add(&connection, Token::Enforcer)?;
        Ok(connection)
    }

    /// Says that nothing is wanted, and ends the connection.
    pub(crate) fn end(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // One that is gone holds nothing.
            let _ = connection.send(&Wanted::default());
        }
        self.sent = None;
    }

    /// Sends what is left, and takes the reports that came.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn serve(&mut self, descriptors: &Descriptors) -> Result<Vec<Report>, String> {
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let served = connection.flush().and_then(|()| connection.receive());
        let gone = |error| format!("the enforcing process is gone: {error}");
        let (done, reports) = match served {
            Ok(reports) => {
                if !reports.is_empty() {
                    self.heard = Instant::now();
                }
                (Ok(()), reports)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        self.settle(done, descriptors).map(|()| reports).map_err(gone)
    }

    fn settle(&mut self, done: io::Result<()>, descriptors: &Descriptors) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let has_unsent = connection.has_unsent();
        let set = done.and_then(|()| descriptors.modify(connection, Token::Enforcer, true, has_unsent));
        if set.is_err() {
            self.connection = None;
            self.sent = None;
        }
        set
    }
}
