//! What all threads know.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use punctual_sched::Instant;

use crate::limits::PLANE_LIMIT;
use crate::lock::PiMutex;
use crate::mailbox::{Command, Mailbox};
use crate::ring::RxRing;
use crate::session::RX;
use crate::table::Table;

/// What all threads know of a port.
#[derive(Debug, Default)]
pub(crate) struct SharedPort {
    /// The ring with which its VM receives, unless there is only one plane.
    pub(crate) rx: PiMutex<Option<Box<RxRing>>>,
    /// Buffers in it as of the last look.
    pub(crate) free: AtomicU32,
    /// Is a ring broken? Nothing starts until the driver resets the port.
    pub(crate) broken: AtomicBool,
}

/// What all threads know.
#[derive(Debug)]
pub(crate) struct Shared {
    /// As many as there may be.
    pub(crate) ports: Vec<SharedPort>,
    /// Ports from here on were never in use.
    pub(crate) ports_used: AtomicUsize,
    pub(crate) table: Table,
    /// The most bytes behind a frame's addresses, type and tag.
    pub(crate) mtu: u32,
    pub(crate) start: std::time::Instant,
    /// The way to the plane if there is only one: then the receive rings are its own.
    pub(crate) sole_plane: Option<Arc<Mailbox>>,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    /// A port's receive ring is there, or gone. Returns where the old one goes on. Planes never ask for this.
    pub(crate) fn set_rx(&self, port: usize, ring: Option<RxRing>) -> Option<u16> {
        let ring = ring.map(Box::new);
        let Some(mailbox) = &self.sole_plane else { return retire(self.swap_rx(port, ring)) };
        let (reply, answer) = sync_channel(1);
        mailbox.send(Command::SetRx { port, ring, reply });
        retire(answer.recv_timeout(PLANE_LIMIT).ok().flatten())
    }

    /// A port's receive ring tells its driver here from now on. Planes never ask for this.
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

    /// Puts a receive ring into its place among those that planes share. Returns the old one.
    pub(crate) fn swap_rx(&self, port: usize, mut ring: Option<Box<RxRing>>) -> Option<Box<RxRing>> {
        let free = ring.as_mut().and_then(|ring| ring.avail_len().ok()).unwrap_or_default();
        self.ports[port].rx.with(|place| {
            self.ports[port].free.store(free.into(), Ordering::Relaxed);
            std::mem::replace(place, ring)
        })
    }
}

/// A receive ring that is not used any more. Returns where it goes on.
pub(crate) fn retire(ring: Option<Box<RxRing>>) -> Option<u16> {
    let mut ring = ring?;
    // A broken ring's driver resets it.
    let _ = ring.publish_and_signal();
    Some(ring.vring_base())
}
