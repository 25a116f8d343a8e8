//! The queue of commands to a plane, and its answers.
//!
//! A plane allocates and frees nothing here, and takes only locks that inherit priorities, each for a few
//! words. The sender of a command allocates before. What a plane no longer needs goes to [`Spent`], which
//! other threads free ([`Shared::free_spent`](crate::shared::Shared::free_spent)).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use punctual_net::InterfaceParams;
use punctual_sched::ParamError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::limits::PORTS_MAX;
use crate::lock::PiMutex;
use crate::port_queue::{Membership, PortQueue};
use crate::ring::{RxRing, TxRing};
use crate::stats::{PlaneStats, PortStats};
use crate::sys::{eventfd, signal};
use crate::vlan::Filter;

/// Room for commands, so that the queue never grows with its lock held: a few for each port.
const COMMANDS_RESERVED: usize = 8 * PORTS_MAX;

/// Pause of a thread that waits until another one has its answer.
const TURN_PAUSE: Duration = Duration::from_micros(200);

pub(crate) enum Command {
    /// Serve a port's TX ring.
    StartTx {
        port: usize,
        ring: Box<TxRing>,
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
    Ask {
        ticket: u64,
        question: Question,
    },
    /// End the thread.
    Exit,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

/// A command with an answer.
pub(crate) enum Question {
    /// Stop serving a port's TX ring.
    StopTx {
        port: usize,
    },
    /// Set or remove a port's RX ring.
    SetRx {
        port: usize,
        ring: Option<Box<RxRing>>,
    },
    Attach(Box<Attach>),
    /// Detach a port whose rings have stopped, and swap its counters with `zero`.
    Detach {
        port: usize,
        zero: Box<PortStats>,
    },
    /// Copy the counters of ports `from` on into memory of the sender.
    Count {
        from: usize,
        into: Vec<PortStats>,
    },
}

pub(crate) enum Answer {
    /// The vring base of the TX ring.
    TxStopped(Option<u16>),
    /// The old RX ring.
    Rx(Option<Box<RxRing>>),
    Attached(Attached),
    Detached(Box<PortStats>),
    Counted(Vec<PortStats>, PlaneStats),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

/// What a plane no longer needs.
#[derive(Debug)]
#[expect(dead_code, reason = "kept to be freed")]
pub(crate) enum Spent {
    Tx(Box<TxRing>),
    Rx(Box<RxRing>),
    Event(Arc<OwnedFd>),
    /// An answer that came too late.
    Answer(Answer),
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    commands: PiMutex<VecDeque<Command>>,
    /// Read without the lock by a plane that is busy.
    has_commands: AtomicBool,
    event: OwnedFd,
    /// The last ticket. The thread that holds it is the only one with a question.
    turn: Mutex<u64>,
    answer: PiMutex<Option<(u64, Answer)>>,
    answered: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Mailbox {
            commands: PiMutex::new(VecDeque::with_capacity(COMMANDS_RESERVED)),
            has_commands: AtomicBool::new(false),
            event: eventfd()?,
            turn: Mutex::new(0),
            answer: PiMutex::default(),
            answered: eventfd()?,
        })
    }

    /// The event that [`Mailbox::send`] signals.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.with(|commands| commands.push_back(command));
        self.has_commands.store(true, Ordering::Release);
        signal(&self.event);
    }

    /// Asks the plane. `None`: it does not answer within `limit`. Planes never call this.
    pub(crate) fn ask(&self, question: Question, limit: Duration) -> Option<Answer> {
        let until = Instant::now() + limit;
        let mut turn = self.turn(until)?;
        *turn += 1;
        self.send(Command::Ask { ticket: *turn, question });
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // An event of an earlier answer, or a signal, ends the wait as well.
            let _ = poll(
                &mut [PollFd::new(&self.answered, PollFlags::IN)],
                Timespec::try_from(left).ok().as_ref(),
            );
            let _ = rustix::io::read(&self.answered, &mut [0; 8]);
            match self.answer.with(Option::take) {
                Some((ticket, answer)) if ticket == *turn => return Some(answer),
                _ if left.is_zero() => return None,
                // An answer to a thread that has given up.
                _ => {}
            }
        }
    }

    /// Waits until no other thread has a question.
    fn turn(&self, until: Instant) -> Option<MutexGuard<'_, u64>> {
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_PAUSE),
            }
        }
    }

    /// Answers a question. Returns the answer to an earlier one that nobody took.
    pub(crate) fn answer(&self, ticket: u64, answer: Answer) -> Option<Answer> {
        let late = self.answer.with(|place| place.replace((ticket, answer)));
        signal(&self.answered);
        late.map(|(_, answer)| answer)
    }

    pub(crate) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Relaxed)
    }

    /// The next command.
    pub(crate) fn try_recv(&self) -> Option<Command> {
        if !self.has_commands.load(Ordering::Acquire) {
            return None;
        }
        self.commands.with(|commands| {
            let command = commands.pop_front();
            // With the lock held: a sender stores after it has let the lock go.
            self.has_commands.store(!commands.is_empty(), Ordering::Relaxed);
            command
        })
    }
}

/// A port that a plane attaches.
pub(crate) struct Attach {
    pub(crate) port: usize,
    pub(crate) params: InterfaceParams,
    pub(crate) is_served: bool,
    /// The port and the PCP, for a class of a VM.
    pub(crate) class: Option<(usize, u8)>,
    /// Before: the new queue. After: the queue of the removed port with this number.
    pub(crate) queue: Option<PortQueue>,
    /// Before: the VLANs of all ports, this one included. After: the former ones.
    pub(crate) vlans: Option<Arc<Filter>>,
}

impl Attach {
    pub(crate) fn new(
        (port, home): (usize, usize),
        params: InterfaceParams,
        is_served: bool,
        vlans: Option<Arc<Filter>>,
        membership: Membership,
    ) -> Attach {
        let mut queue = PortQueue::new(home, &params, is_served, vlans.is_some());
        queue.membership = membership;
        Attach { port, params, is_served, class: None, queue: Some(queue), vlans }
    }
}

pub(crate) struct Attached {
    /// `Ok(false)`: packets of the removed port with this number are still in the discipline.
    pub(crate) done: Result<bool, ParamError>,
    /// Memory that the asking thread frees.
    pub(crate) _rest: Box<Attach>,
}
