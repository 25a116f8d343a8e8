//! Ports that come and go while a plane works.
//!
//! Everything that takes memory is made before and freed after, in the thread that asks: the plane itself
//! moves a few words and tells the discipline, between two packets.

use std::os::fd::AsFd;

use punctual_net::{Discipline, InterfaceId};
use punctual_sched::ParamError;
use rustix::event::epoll;

use super::Plane;
use crate::error::RingError;
use crate::limits::IN_FLIGHT_MAX;
use crate::mailbox::{Attach, Attached, Command};
use crate::session::RX;
use crate::stats::PortStats;

/// Ports that are looked at before every decision; of the others, those of [`ROTATION_PORTS`].
const ALWAYS_POLLED_MAX: usize = 8;

impl<D: Discipline> Plane<D> {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::StartTx { port, ring } => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(port as u64);
                let added = epoll::add(&self.epoll, ring.kick.as_fd(), data, flags);
                self.ports[port].send = Some(ring);
                if added.is_err() {
                    // Not an eventfd: nobody would ever hear this driver.
                    self.break_port(port, RingError::BadLayout);
                }
            }
            Command::SetRx { port, ring, reply } => {
                let old = std::mem::replace(&mut self.rx_rings[port], ring);
                drop(reply.try_send(old));
            }
            Command::SetCall { port, queue: RX, call } => {
                if let Some(Some(ring)) = self.rx_rings.get_mut(port) {
                    ring.set_call(call);
                }
            }
            Command::SetCall { port, call, .. } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.set_call(call);
                }
            }
            Command::SetErr { port, err } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.err = err;
                }
            }
            Command::StopTx { port, reply } => drop(reply.try_send(self.stop_tx(port))),
            Command::AttachPort { attach, reply } => drop(reply.try_send(self.attach(*attach))),
            Command::DetachPort { port, none, reply } => drop(reply.try_send(self.detach(port, *none))),
            Command::Count { from, mut into, reply } => {
                for (port, place) in self.ports.iter_mut().skip(from).zip(&mut into) {
                    place.copy_from(&port.stats);
                    place.queued = port.queued();
                }
                drop(reply.try_send((into, self.stats())));
            }
            Command::Exit => {}
        }
    }

    /// Stops a port's send ring. What was taken from it and not given back is forgotten; the driver's ring
    /// still has it, but for a frame that has reached some of its receivers: no one gets it twice.
    pub(super) fn stop_tx(&mut self, port: usize) -> Option<u16> {
        let local = &mut self.ports[port];
        let mut ring = local.send.take()?;
        let first = &local.slots[local.oldest as usize % IN_FLIGHT_MAX];
        if local.oldest != local.next && first.partly_delivered {
            // A broken ring's driver resets it.
            let _ = ring.push_used(&first.chain);
        }
        let _ = ring.publish_and_signal();
        let _ = epoll::delete(&self.epoll, ring.kick.as_fd());
        local.oldest = local.next;
        Some(ring.vring_base())
    }

    /// A port comes, at the end or in the place of one that is gone.
    pub(super) fn attach(&mut self, mut attach: Attach) -> Attached {
        let is_free = self.checker.as_ref().is_none_or(|checker| checker.has_no_packets(attach.port));
        let done = if is_free { self.take_place(&mut attach) } else { Ok(false) };
        Attached { done, _rest: attach }
    }

    pub(super) fn take_place(&mut self, attach: &mut Attach) -> Result<bool, ParamError> {
        let (port, params) = (attach.port, &attach.params);
        self.now = self.shared.now();
        let Some(mut local) = attach.local.take() else { return Ok(false) };
        if let Some(old) = self.ports.get_mut(port) {
            if !self.discipline.replace(self.now, InterfaceId(port as u32), params)? {
                return Ok(false);
            }
            // Numbers go on, so that packets of the old port are not taken for those of the new one.
            (local.oldest, local.next) = (old.next, old.next);
            local.incarnation = old.incarnation.wrapping_add(1);
            attach.local = Some(std::mem::replace(old, local));
        } else {
            self.discipline.attach(self.now, params)?;
            self.ports.push(local);
        }
        self.attached(attach);
        Ok(true)
    }

    pub(super) fn attached(&mut self, attach: &mut Attach) {
        std::mem::swap(&mut self.vlans, &mut attach.vlans);
        if let Some(checker) = &mut self.checker {
            checker.attach(attach.port, &attach.params);
        }
        if attach.is_own {
            self.add_served(attach.port);
        }
    }

    /// A port without rings goes. Returns what was counted of it, in exchange for `none`; what of it is on
    /// its way counts as stopped.
    pub(super) fn detach(&mut self, port: usize, none: PortStats) -> PortStats {
        self.stop_tx(port);
        self.served.retain(|own| *own != port);
        self.rank_ports();
        let Some(local) = self.ports.get_mut(port) else { return none };
        let mut stats = std::mem::replace(&mut local.stats, none);
        let ended = stats.delivered.packets + stats.drops.total();
        stats.drops.stopped += stats.sent.packets.saturating_sub(ended);
        stats
    }

    /// Serves a port: it looks at its send ring, with those of its priority after those that were there.
    pub(super) fn add_served(&mut self, port: usize) {
        let urgency = self.ports[port].urgency;
        let at = self.served.partition_point(|own| self.ports[*own].urgency <= urgency);
        self.served.insert(at, port);
        self.rank_ports();
    }

    /// How many of its ports are looked at before every decision?
    pub(super) fn rank_ports(&mut self) {
        let urgency = |port: &usize| self.ports[*port].urgency;
        let most_urgent =
            self.served.iter().take_while(|port| urgency(port) == urgency(&self.served[0])).count();
        let few = self.served.len() <= ALWAYS_POLLED_MAX;
        self.always_polled = if few { self.served.len() } else { most_urgent.min(ALWAYS_POLLED_MAX) };
        self.rotation = 0;
    }
}
