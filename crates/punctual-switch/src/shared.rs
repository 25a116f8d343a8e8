//! What all threads of a switch share: the life of each port, its RX ring where planes share it, the table of
//! addresses, and the clock.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_sched::Instant;

use crate::event::{Event, Notice};
use crate::limits::PLANE_TIMEOUT;
use crate::lock::PiMutex;
use crate::mailbox::{Command, Mailbox};
use crate::narrow::nanos;
use crate::port_state::PortLife;
use crate::ring::RxRing;
use crate::session::RX;
use crate::table::Table;

#[derive(Debug, Default)]
pub(crate) struct SharedPort {
    /// The RX ring, if there are several planes.
    pub(crate) rx: PiMutex<Option<Box<RxRing>>>,
    /// Its available buffers when it was last read.
    pub(crate) avail_len: AtomicU32,
    pub(crate) life: PortLife,
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
    /// The mailbox of the only plane, which then owns all RX rings.
    pub(crate) sole_plane: Option<Arc<Mailbox>>,
}

impl Shared {
    /// Reports an event of a port.
    pub(crate) fn notice(&self, port: usize, event: Event) {
        if let Some(notices) = &*self.notices.lock().unwrap_or_else(PoisonError::into_inner) {
            // Nobody may read the notices.
            let _ = notices.send(Notice { port, event });
        }
    }

    /// Ends the reports, whichever threads go on.
    pub(crate) fn end_notices(&self) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).take();
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
        let Some(mailbox) = &self.sole_plane else { return retire(self.swap_rx(port, ring)) };
        let (reply, answer) = sync_channel(1);
        mailbox.send(Command::SetRx { port, ring, reply });
        retire(answer.recv_timeout(PLANE_TIMEOUT).ok().flatten())
    }

    /// Sets the call event of a port's RX ring. Planes never call this.
    pub(crate) fn set_call(&self, port: usize, call: Option<Arc<OwnedFd>>) {
        match &self.sole_plane {
            Some(mailbox) => mailbox.send(Command::SetCall { port, queue: RX, call }),
            None => self.ports[port].rx.with(|ring| {
                if let Some(ring) = ring {
                    ring.set_call(call);
                }
            }),
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
pub(crate) fn retire(ring: Option<Box<RxRing>>) -> Option<u16> {
    let mut ring = ring?;
    // An error concerns a broken ring, which its driver resets.
    let _ = ring.publish_and_signal();
    Some(ring.vring_base())
}
