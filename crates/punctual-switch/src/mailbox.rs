//! The way to a plane.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_net::InterfaceParams;
use punctual_sched::ParamError;

use crate::port_queue::PortQueue;
use crate::ring::{RxRing, TxRing};
use crate::stats::{PlaneStats, PortStats};
use crate::sys::signal;
use crate::vlan::Filter;

/// What a plane is asked to do.
pub(crate) enum Command {
    /// Serve a port's send ring.
    StartTx { port: usize, ring: Box<TxRing> },
    /// A port's receive ring is there, or gone; the old one.
    SetRx { port: usize, ring: Option<Box<RxRing>>, reply: SyncSender<Option<Box<RxRing>>> },
    /// A ring's driver hears here from now on.
    SetCall { port: usize, queue: usize, call: Option<Arc<OwnedFd>> },
    /// The monitor hears of a broken send ring here from now on.
    SetErr { port: usize, err: Option<Arc<OwnedFd>> },
    /// No more; where the ring goes on.
    StopTx { port: usize, reply: SyncSender<Option<u16>> },
    /// A port comes.
    AttachPort { attach: Box<Attach>, reply: SyncSender<Attached> },
    /// A port that has no rings any more goes.
    DetachPort { port: usize, none: Box<PortStats>, reply: SyncSender<PortStats> },
    /// What was counted so far, of ports `from` on into places that are there.
    Count { from: usize, into: Vec<PortStats>, reply: SyncSender<(Vec<PortStats>, PlaneStats)> },
    /// It is over.
    Exit,
}

/// The way to a plane.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) commands: Mutex<VecDeque<Command>>,
    pub(crate) has_commands: AtomicBool,
    pub(crate) event: OwnedFd,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { commands: Mutex::default(), has_commands: AtomicBool::new(false), event })
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.has_commands.store(true, Ordering::Release);
        signal(&self.event);
    }

    /// A command, unless there is none or its sender is still at it.
    pub(crate) fn try_recv(&self) -> Option<Command> {
        if !self.has_commands.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.try_lock().ok()?;
        let command = commands.pop_front();
        self.has_commands.store(!commands.is_empty(), Ordering::Relaxed);
        command
    }
}

/// A port that comes, as one plane knows it.
pub(crate) struct Attach {
    pub(crate) port: usize,
    pub(crate) params: InterfaceParams,
    pub(crate) is_own: bool,
    /// In exchange, the one that was there.
    pub(crate) local: Option<PortQueue>,
    pub(crate) vlans: Option<Arc<Filter>>,
}

impl Attach {
    /// A port, and the VLANs of all ports with it. Does the plane serve it?
    pub(crate) fn new(
        port: usize,
        params: InterfaceParams,
        is_own: bool,
        vlans: Option<Arc<Filter>>,
    ) -> Attach {
        let local = Some(PortQueue::new(&params, is_own, vlans.is_some()));
        Attach { port, params, is_own, local, vlans }
    }
}

/// What became of it.
pub(crate) struct Attached {
    /// `Ok(false)`: packets of the port that was there before are still on their way.
    pub(crate) done: Result<bool, ParamError>,
    /// Memory that the plane does not need any more, and does not free itself.
    pub(crate) _rest: Attach,
}
