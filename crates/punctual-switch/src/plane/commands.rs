//! Commands from other threads: rings start and stop, ports are attached and detached, counters are read.
//!
//! The sending thread allocates before and frees after. The plane only moves a few words and calls the
//! discipline, between two packets.

use std::os::fd::AsFd;

use punctual_net::{Discipline, InterfaceId};
use punctual_sched::ParamError;
use rustix::event::epoll;

use super::Plane;
use super::polled::PolledRing;
use crate::error::RingError;
use crate::limits::IN_FLIGHT_MAX;
use crate::mailbox::{Answer, Attach, Attached, Command, Question, Spent};
use crate::narrow::to_u32;
use crate::ring::TxRing;
use crate::session::RX;
use crate::stats::PortStats;

/// If the plane serves no more ports, it polls all of them before every decision; otherwise as many of the
/// most urgent ones.
const ALWAYS_POLLED_MAX: usize = 8;

impl<D: Discipline> Plane<D> {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::StartTx { port, ring } => self.start_tx(port, ring),
            Command::SetCall { port, queue, call } => {
                let former = match queue {
                    RX => self.rx_rings.get_mut(port).and_then(|rx| rx.as_mut()?.set_call(call)),
                    _ => self.ports[port].tx.as_mut().and_then(|tx| tx.set_call(call)),
                };
                former.into_iter().for_each(|event| self.shared.discard(Spent::Event(event)));
            }
            Command::SetErr { port, err } => {
                let ring = self.ports[port].tx.as_mut();
                let former = ring.and_then(|ring| std::mem::replace(&mut ring.err, err));
                former.into_iter().for_each(|event| self.shared.discard(Spent::Event(event)));
            }
            Command::Ask { ticket, question } => {
                let answer = self.answer(question);
                if let Some(late) = self.mailbox.answer(ticket, answer) {
                    self.shared.discard(Spent::Answer(late));
                }
            }
            Command::Exit => {}
        }
    }

    fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::StopTx { port } => Answer::TxStopped(self.stop_tx(port)),
            Question::SetRx { port, ring } => Answer::Rx(std::mem::replace(&mut self.rx_rings[port], ring)),
            Question::Attach(attach) => Answer::Attached(self.attach(attach)),
            Question::Detach { port, zero } => Answer::Detached(self.detach(port, zero)),
            Question::Count { from, mut into } => {
                for (port, sums) in self.ports.iter_mut().skip(from).zip(&mut into) {
                    sums.copy_from(&port.stats);
                    sums.queued = port.queued();
                }
                Answer::Counted(into, self.stats())
            }
        }
    }

    fn start_tx(&mut self, port: usize, ring: Box<TxRing>) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(port as u64);
        let added = epoll::add(&self.epoll, ring.kick.as_fd(), data, flags);
        debug_assert!(self.ports[port].tx.is_none(), "the session stops a ring before it starts it again");
        self.ports[port].tx = Some(ring);
        self.set_polled_ring(port);
        if added.is_err() {
            // Not an eventfd: no kick would ever arrive.
            self.break_port(port, RingError::BadLayout);
        }
    }

    /// Stops a port's TX ring and returns its vring base. The plane forgets the frames that it popped and did
    /// not return: they are still available in the ring. The exception is a frame that reached some of its
    /// receivers, or all of them before an older frame. It is returned, so that none of them gets it twice,
    /// and with it the older frames, which are lost.
    pub(super) fn stop_tx(&mut self, port: usize) -> Option<u16> {
        let queue = &mut self.ports[port];
        let mut ring = queue.tx.take()?;
        // Before the ring: it is not this thread that unmaps its memory.
        if let Some(polled) = self.served.get_mut(queue.place) {
            polled.set_ring(queue);
        }
        let inside = queue.next.wrapping_sub(queue.oldest) as usize;
        let slot = |age: usize| &queue.slots[(queue.oldest as usize).wrapping_add(age) % IN_FLIGHT_MAX];
        let to_return = (0..inside).rposition(|age| slot(age).is_partly_delivered).map_or(0, |last| last + 1);
        (0..to_return).for_each(|age| ring.push_used(&slot(age).chain));
        ring.publish_and_signal();
        let _ = epoll::delete(&self.epoll, ring.kick.as_fd());
        queue.oldest = queue.next;
        let base = ring.vring_base();
        self.update_polled(port);
        self.shared.discard(Spent::Tx(ring));
        Some(base)
    }

    /// Attaches a port, at the end or with the number of a removed one.
    fn attach(&mut self, mut attach: Box<Attach>) -> Attached {
        let is_free = self.checker.as_ref().is_none_or(|checker| checker.has_no_packets(attach.port));
        let done = if is_free { self.try_attach(&mut attach) } else { Ok(false) };
        Attached { done, _rest: attach }
    }

    /// `Ok(false)`: packets of the removed port are still in the discipline.
    fn try_attach(&mut self, attach: &mut Attach) -> Result<bool, ParamError> {
        let (port, params) = (attach.port, &attach.params);
        self.now = self.shared.now();
        if self.ports.get(port).is_some_and(|old| old.tx_backlog > 0) {
            // Some may be those of a class.
            return Ok(false);
        }
        let Some(mut queue) = attach.queue.take() else { return Ok(false) };
        queue.source = InterfaceId(to_u32(port));
        if let Some(old) = self.ports.get_mut(port) {
            if !self.discipline.replace(self.now, InterfaceId(to_u32(port)), params)? {
                return Ok(false);
            }
            // Frame numbers continue, so that packets of the old port do not match frames of the new one.
            (queue.oldest, queue.next) = (old.next, old.next);
            queue.incarnation = old.incarnation.wrapping_add(1);
            attach.queue = Some(std::mem::replace(old, queue));
        } else {
            debug_assert_eq!(port, self.ports.len(), "port numbers have no gaps");
            self.discipline.attach(self.now, params)?;
            self.ports.push(queue);
        }
        std::mem::swap(&mut self.vlans, &mut attach.vlans);
        if let Some(checker) = &mut self.checker {
            checker.attach(port, &attach.params);
        }
        if attach.is_served {
            self.add_served(port);
        }
        if let Some(class) = attach.class {
            self.set_class(class, port);
        }
        Ok(true)
    }

    /// Detaches a port. Returns its counters in exchange for `stats`, which are zero; its packets in flight
    /// count as stopped.
    fn detach(&mut self, port: usize, mut stats: Box<PortStats>) -> Box<PortStats> {
        self.stop_tx(port);
        self.served.retain(|served| served.port != port);
        self.number_served();
        if let Some(home) = self.ports.get(port).map(|queue| queue.home).filter(|home| *home != port) {
            self.ports[home].remove_class(port);
        }
        let Some(queue) = self.ports.get_mut(port) else { return stats };
        queue.place = usize::MAX;
        std::mem::swap(&mut *stats, &mut queue.stats);
        let ended = stats.delivered.packets + stats.drops.total();
        stats.drops.stopped += stats.sent.packets.saturating_sub(ended);
        stats
    }

    /// Polls a port from now on, after the other ports of its priority.
    pub(super) fn add_served(&mut self, port: usize) {
        debug_assert!(self.served.iter().all(|served| served.port != port));
        let urgency = self.ports[port].polled_urgency;
        let at = self.served.partition_point(|served| self.ports[served.port].polled_urgency <= urgency);
        self.served.insert(at, PolledRing::new(port));
        self.number_served();
        self.set_polled_ring(port);
    }

    /// Frames of the port `home` with this PCP are those of the interface `class` from now on.
    pub(crate) fn set_class(&mut self, (home, pcp): (usize, u8), class: usize) {
        let urgency = self.ports[class].own_urgency;
        let queue = &mut self.ports[home];
        queue.add_class(pcp, class, urgency);
        if queue.place < self.served.len() {
            // Its place depends on its most urgent class.
            self.served.retain(|served| served.port != home);
            self.add_served(home);
        }
    }

    /// Tells the ports their places, and selects those that are polled always.
    fn number_served(&mut self) {
        for (place, served) in self.served.iter().enumerate() {
            self.ports[served.port].place = place;
        }
        let urgency = |served: &PolledRing| self.ports[served.port].polled_urgency;
        let most_urgent =
            self.served.iter().take_while(|served| urgency(served) == urgency(&self.served[0])).count();
        let few = self.served.len() <= ALWAYS_POLLED_MAX;
        self.always_polled = if few { self.served.len() } else { most_urgent.min(ALWAYS_POLLED_MAX) };
        self.rotation = 0;
    }

    /// The TX ring of a port has started or stopped.
    fn set_polled_ring(&mut self, port: usize) {
        let queue = &self.ports[port];
        if let Some(polled) = self.served.get_mut(queue.place) {
            polled.set_ring(queue);
        }
    }

    /// A port has taken, passed on or returned frames.
    #[inline]
    pub(super) fn update_polled(&mut self, port: usize) {
        let queue = &self.ports[port];
        if let Some(polled) = self.served.get_mut(queue.place) {
            polled.update(queue);
        }
    }
}
