//! The queue of commands to a plane.

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

pub(crate) enum Command {
    /// Serve a port's TX ring.
    StartTx {
        port: usize,
        ring: Box<TxRing>,
    },
    /// Stop serving it; the reply is its vring base.
    StopTx {
        port: usize,
        reply: SyncSender<Option<u16>>,
    },
    /// Set or remove a port's RX ring; the reply is the old one.
    SetRx {
        port: usize,
        ring: Option<Box<RxRing>>,
        reply: SyncSender<Option<Box<RxRing>>>,
    },
    /// Replace a ring's call event.
    SetCall {
        port: usize,
        queue: usize,
        call: Option<Arc<OwnedFd>>,
    },
    /// Replace a TX ring's err event.
    SetErr {
        port: usize,
        err: Option<Arc<OwnedFd>>,
    },
    AttachPort {
        attach: Box<Attach>,
        reply: SyncSender<Attached>,
    },
    /// Detach a port whose rings have stopped; the reply is its counters, in exchange for `zero`.
    DetachPort {
        port: usize,
        zero: Box<PortStats>,
        reply: SyncSender<PortStats>,
    },
    /// Copy the counters of ports `from` on into memory of the sender.
    Count {
        from: usize,
        into: Vec<PortStats>,
        reply: SyncSender<(Vec<PortStats>, PlaneStats)>,
    },
    /// End the thread.
    Exit,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    /// Read without the lock by a plane that is busy.
    has_commands: AtomicBool,
    event: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { commands: Mutex::default(), has_commands: AtomicBool::new(false), event })
    }

    /// The event that [`Mailbox::send`] signals.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.has_commands.store(true, Ordering::Release);
        signal(&self.event);
    }

    pub(crate) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Relaxed)
    }

    /// The next command. `None` also while a sender holds the lock: a plane never waits for one.
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

/// A port that a plane attaches.
pub(crate) struct Attach {
    pub(crate) port: usize,
    pub(crate) params: InterfaceParams,
    pub(crate) is_served: bool,
    /// Before: the new queue. After: the queue of the removed port with this number.
    pub(crate) queue: Option<PortQueue>,
    /// The VLANs of all ports, this one included.
    pub(crate) vlans: Option<Arc<Filter>>,
}

impl Attach {
    pub(crate) fn new(
        port: usize,
        params: InterfaceParams,
        is_served: bool,
        vlans: Option<Arc<Filter>>,
    ) -> Attach {
        let queue = Some(PortQueue::new(&params, is_served, vlans.is_some()));
        Attach { port, params, is_served, queue, vlans }
    }
}

pub(crate) struct Attached {
    /// `Ok(false)`: packets of the removed port with this number are still in the discipline.
    pub(crate) done: Result<bool, ParamError>,
    /// Memory that the receiver of the reply frees.
    pub(crate) _rest: Attach,
}
