//! What all threads of a switch share: the life of each port, its RX ring where planes share it, the table of
//! addresses, and the clock.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_sched::Instant;

use crate::error::RingError;
use crate::event::{Event, Notice};
use crate::limits::{PLANE_TIMEOUT, PORTS_MAX};
use crate::lock::PiMutex;
use crate::mailbox::{Answer, Command, Mailbox, Question, Spent};
use crate::narrow::nanos;
use crate::port_state::PortLife;
use crate::ring::RxRing;
use crate::session::RX;
use crate::sys::signal;
use crate::table::Table;

/// Room for what planes no longer need: both rings of every port and their events, twice.
pub(crate) const SPENT_MAX: usize = 8 * PORTS_MAX;

#[derive(Debug, Default)]
pub(crate) struct SharedPort {
    /// The RX ring, if there are several planes.
    pub(crate) rx: PiMutex<Option<Box<RxRing>>>,
    /// Its available buffers when it was last read.
    pub(crate) avail_len: AtomicU32,
    pub(crate) life: PortLife,
    /// The [`RingError::code`] of a plane's report that is not passed on; 0: none.
    broken: AtomicU8,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// [`PORTS_MAX`](crate::limits::PORTS_MAX) of them.
    pub(crate) ports: Vec<SharedPort>,
    /// No port has had this number or a higher one.
    pub(crate) ports_used: AtomicUsize,
    pub(crate) table: Table,
    /// Bytes behind a frame's addresses, type and tag, at most.
    pub(crate) mtu: u32,
    pub(crate) start: std::time::Instant,
    /// Where events of ports are reported. `None`: nobody wants them, or the switch has ended.
    pub(crate) notices: Mutex<Option<Sender<Notice>>>,
    /// A plane signals it when it has reported a broken ring.
    pub(crate) broken_event: OwnedFd,
    /// What planes no longer need.
    pub(crate) spent: PiMutex<Vec<Spent>>,
    /// The mailbox of the only plane, which then owns all RX rings.
    pub(crate) sole_plane: Option<Arc<Mailbox>>,
}

impl Shared {
    /// Reports an event of a port, behind what a plane has reported of it. Planes never call this: it
    /// allocates, and the lock inherits no priority.
    pub(crate) fn notice(&self, port: usize, event: Event) {
        self.pass_on_broken(port);
        self.send_notice(port, event);
    }

    /// Reports a broken ring, from a plane. The control thread passes it on.
    pub(crate) fn report_broken(&self, port: usize, error: RingError) {
        self.ports[port].broken.store(error.code(), Ordering::Release);
        signal(&self.broken_event);
    }

    /// Passes on what planes have reported, and frees what they no longer need.
    pub(crate) fn pass_on_reports(&self) {
        self.free_spent();
        (0..self.ports_used()).for_each(|port| self.pass_on_broken(port));
    }

    fn pass_on_broken(&self, port: usize) {
        let code = self.ports[port].broken.swap(0, Ordering::AcqRel);
        if let Some(error) = RingError::from_code(code) {
            self.send_notice(port, Event::Broken(error));
        }
    }

    fn send_notice(&self, port: usize, event: Event) {
        if let Some(notices) = &*self.notices.lock().unwrap_or_else(PoisonError::into_inner) {
            // Nobody may read the notices.
            let _ = notices.send(Notice { port, event });
        }
    }

    /// Ends the reports, whichever threads go on.
    pub(crate) fn end_notices(&self) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Takes what a plane no longer needs. Nothing is freed unless other threads have freed nothing for long.
    pub(crate) fn discard(&self, spent: Spent) {
        let left = self.spent.with(|all| {
            if all.len() < all.capacity() {
                all.push(spent);
                return None;
            }
            Some(spent)
        });
        drop(left);
    }

    /// Frees what planes no longer need. Planes never call this.
    pub(crate) fn free_spent(&self) {
        if self.spent.with(|all| all.is_empty()) {
            return;
        }
        let empty = Vec::with_capacity(SPENT_MAX);
        let all = self.spent.with(|all| std::mem::replace(all, empty));
        drop(all);
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(nanos(self.start.elapsed()))
    }

    pub(crate) fn ports_used(&self) -> usize {
        self.ports_used.load(Ordering::Acquire)
    }

    /// Extends the port numbers in use to this one.
    pub(crate) fn use_port(&self, number: usize) {
        self.ports_used.fetch_max(number + 1, Ordering::AcqRel);
    }

    /// Sets or removes a port's RX ring. Returns the vring base of the old one. Planes never call this: it
    /// may wait for a plane.
    pub(crate) fn set_rx(&self, port: usize, ring: Option<RxRing>) -> Option<u16> {
        let ring = ring.map(Box::new);
        let old = match &self.sole_plane {
            None => self.swap_rx(port, ring),
            Some(mailbox) => match mailbox.ask(Question::SetRx { port, ring }, PLANE_TIMEOUT) {
                Some(Answer::Rx(old)) => old,
                _ => None,
            },
        };
        let base = retire(old, drop);
        self.free_spent();
        base
    }

    /// Sets the call event of a port's RX ring. Planes never call this.
    pub(crate) fn set_call(&self, port: usize, call: Option<Arc<OwnedFd>>) {
        match &self.sole_plane {
            Some(mailbox) => mailbox.send(Command::SetCall { port, queue: RX, call }),
            None => {
                let former = self.ports[port].rx.with(|ring| ring.as_mut()?.set_call(call));
                drop(former);
            }
        }
    }

    /// Replaces an RX ring that planes share. Returns the old one.
    pub(crate) fn swap_rx(&self, port: usize, mut ring: Option<Box<RxRing>>) -> Option<Box<RxRing>> {
        let avail = ring.as_mut().and_then(|ring| ring.avail_len().ok()).unwrap_or_default();
        self.ports[port].rx.with(|rx| {
            self.ports[port].avail_len.store(avail.into(), Ordering::Relaxed);
            std::mem::replace(rx, ring)
        })
    }
}

/// Publishes what an RX ring has received before it goes out of use. Returns its vring base.
pub(crate) fn retire(ring: Option<Box<RxRing>>, discard: impl FnOnce(Spent)) -> Option<u16> {
    let mut ring = ring?;
    ring.publish_and_signal();
    let base = ring.vring_base();
    discard(Spent::Rx(ring));
    Some(base)
}
