//! Ports that come and go while a plane works.
//!
//! Everything that takes memory is made before and freed after, in the thread that asks: the plane itself
//! moves a few words and tells the discipline, between two packets.

use std::os::fd::AsFd;

use punctual_net::{Discipline, InterfaceId};
use punctual_sched::ParamError;
use rustix::event::epoll;

use super::Plane;
use crate::error::Broken;
use crate::limits::IN_FLIGHT_MAX;
use crate::mailbox::{Attach, Attached, Command};
use crate::session::RECEIVE;
use crate::stats::PortStats;

/// Ports that are looked at before every decision; of the others, those of [`ROTATION`].
const ALWAYS_MAX: usize = 8;

impl<D: Discipline> Plane<D> {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Start { port, ring } => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let data = epoll::EventData::new_u64(port as u64);
                let added = epoll::add(&self.epoll, ring.kick.as_fd(), data, flags);
                self.ports[port].send = Some(ring);
                if added.is_err() {
                    // Not an eventfd: nobody would ever hear this driver.
                    self.broke(port, Broken::Place);
                }
            }
            Command::Receive { port, ring, reply } => {
                let old = std::mem::replace(&mut self.receivers[port], ring);
                drop(reply.try_send(old));
            }
            Command::Call { port, queue: RECEIVE, call } => {
                if let Some(Some(ring)) = self.receivers.get_mut(port) {
                    ring.set_call(call);
                }
            }
            Command::Call { port, call, .. } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.set_call(call);
                }
            }
            Command::Error { port, error } => {
                if let Some(ring) = &mut self.ports[port].send {
                    ring.error = error;
                }
            }
            Command::Stop { port, reply } => drop(reply.try_send(self.stop(port))),
            Command::Attach { attach, reply } => drop(reply.try_send(self.attach(*attach))),
            Command::Detach { port, none, reply } => drop(reply.try_send(self.detach(port, *none))),
            Command::Count { from, mut into, reply } => {
                for (port, place) in self.ports.iter_mut().skip(from).zip(&mut into) {
                    place.copy_from(&port.stats);
                    place.queued = port.queued();
                }
                drop(reply.try_send((into, self.stats())));
            }
            Command::End => {}
        }
    }

    /// Stops a port's send ring. What was taken from it and not given back is forgotten; the driver's ring
    /// still has it, but for a frame that has reached some of its receivers: no one gets it twice.
    pub(super) fn stop(&mut self, port: usize) -> Option<u16> {
        let local = &mut self.ports[port];
        let mut ring = local.send.take()?;
        let first = &local.slots[local.first as usize % IN_FLIGHT_MAX];
        if local.first != local.next && first.reached {
            // A broken ring's driver resets it.
            let _ = ring.give_back(&first.chain);
        }
        let _ = ring.tell();
        let _ = epoll::delete(&self.epoll, ring.kick.as_fd());
        local.first = local.next;
        Some(ring.base())
    }

    /// A port comes, at the end or in the place of one that is gone.
    pub(super) fn attach(&mut self, mut attach: Attach) -> Attached {
        let is_free = self.checker.as_ref().is_none_or(|checker| checker.is_free(attach.port));
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
            (local.first, local.next) = (old.next, old.next);
            local.incarnation = old.incarnation.wrapping_add(1);
            attach.local = Some(std::mem::replace(old, local));
        } else {
            self.discipline.attach(self.now, params)?;
            self.ports.push(local);
        }
        self.came(attach);
        Ok(true)
    }

    pub(super) fn came(&mut self, attach: &mut Attach) {
        std::mem::swap(&mut self.vlans, &mut attach.vlans);
        if let Some(checker) = &mut self.checker {
            checker.attach(attach.port, &attach.params);
        }
        if attach.is_own {
            self.serve(attach.port);
        }
    }

    /// A port without rings goes. Returns what was counted of it, in exchange for `none`; what of it is on
    /// its way counts as stopped.
    pub(super) fn detach(&mut self, port: usize, none: PortStats) -> PortStats {
        self.stop(port);
        self.own.retain(|own| *own != port);
        self.count_urgent();
        let Some(local) = self.ports.get_mut(port) else { return none };
        let mut stats = std::mem::replace(&mut local.stats, none);
        let ended = stats.delivered.packets + stats.drops.total();
        stats.drops.stopped += stats.sent.packets.saturating_sub(ended);
        stats
    }

    /// Serves a port: it looks at its send ring, with those of its priority after those that were there.
    pub(super) fn serve(&mut self, port: usize) {
        let urgency = self.ports[port].urgency;
        let at = self.own.partition_point(|own| self.ports[*own].urgency <= urgency);
        self.own.insert(at, port);
        self.count_urgent();
    }

    /// How many of its ports are looked at before every decision?
    pub(super) fn count_urgent(&mut self) {
        let urgency = |port: &usize| self.ports[*port].urgency;
        let most_urgent = self.own.iter().take_while(|port| urgency(port) == urgency(&self.own[0])).count();
        let few = self.own.len() <= ALWAYS_MAX;
        self.always = if few { self.own.len() } else { most_urgent.min(ALWAYS_MAX) };
        self.turn = 0;
    }
}
