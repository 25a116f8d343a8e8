//! What the stages take.

use std::sync::atomic::Ordering;

use punctual_net::{Discipline, Fate, InterfaceId, Packet, Stage, Step};

use super::Plane;
use super::notify::TOLD_MAX;
use crate::error::{Broken, Culprit};
use crate::event::{Event, Notice};
use crate::limits::IN_FLIGHT_MAX;
use crate::port_queue::{Delivered, Local, incarnation_of, number_of};
use crate::ring::Delivery;
use crate::session::{RECEIVE, SEND};
use crate::shared::{SharedPort, ended};
use crate::sys::ring_bell;
use crate::vlan::Front;

/// Steps between two looks at the clock, but for [`LONG_BYTES`] that are copied: less than a microsecond. A
/// look costs as much as a step.
const STEPS_PER_LOOK_AT_CLOCK: u32 = 32;

/// A frame of so many bytes is told at once: its copy takes longer than telling.
const LONG_BYTES: u32 = 4096;

/// Buffers in a receive ring that planes share, as of the last look unless more than that are wanted.
#[inline]
fn free_of(port: &SharedPort, wanted: usize) -> Result<u32, Broken> {
    let free = port.free.load(Ordering::Relaxed);
    if free as usize > wanted {
        return Ok(free);
    }
    let free = port.receive.with(|ring| ring.as_mut().map_or(Ok(0), |ring| ring.free()))?.into();
    port.free.store(free, Ordering::Relaxed);
    Ok(free)
}

/// As [`Local::deliver`], into a ring that planes share.
fn deliver_locked(port: &SharedPort, from: &mut Local, number: u32, front: Option<&Front>) -> Delivered {
    port.receive.with(|place| {
        let (done, given) = from.deliver(place, number, front);
        let free = place.as_ref().map_or(0, |ring| ring.free_at_least());
        port.free.store(free.into(), Ordering::Relaxed);
        if given == Ok(true) {
            // Another plane may show the receiver this frame. The sender first: if the switch dies between,
            // the frame is lost rather than sent again by the next one.
            let _ = from.send.as_mut().map(|send| send.show());
        }
        (done, given)
    })
}

impl<D: Discipline> Plane<D> {
    /// Does what a stage takes.
    #[inline(always)]
    pub(super) fn carry(&mut self, step: &Step) {
        let port = step.packet.source.index();
        if self.ports[port].urgency > self.untold.urgency {
            // What is more urgent does not wait.
            self.tell();
        }
        if let Some(checker) = &mut self.checker {
            checker.starts(step);
        }
        match step.stage {
            Stage::Tx => self.ports[port].in_tx -= 1,
            Stage::Softnet => self.count_buffers(step.packet.destination),
            Stage::Rx => self.deliver(&step.packet),
        }
        self.steps += 1;
        let is_long = step.stage == Stage::Rx && step.packet.bytes >= LONG_BYTES;
        if is_long || self.steps >= STEPS_PER_LOOK_AT_CLOCK {
            self.look_at_clock();
        }
        let fate = self.discipline.complete(self.now);
        self.stats.carried[step.stage as usize] += 1;
        if let Some(checker) = &mut self.checker {
            checker.ends(step, fate);
        }
        match fate {
            Fate::Queued(_) => {}
            Fate::Dropped(reason) => {
                self.ports[port].stats.drops.count(reason);
                self.drop_copy(port, number_of(&step.packet));
            }
            Fate::Delivered => {
                if self.untold.deliveries.len() >= TOLD_MAX || step.packet.bytes >= LONG_BYTES {
                    self.tell();
                }
            }
        }
    }

    /// Tells the discipline how many buffers a receiver has.
    #[inline]
    pub(super) fn count_buffers(&mut self, receiver: InterfaceId) {
        let port = receiver.index();
        let wanted = self.discipline.waiting(Stage::Rx);
        let free = match self.receivers.get_mut(port) {
            Some(Some(ring)) if usize::from(ring.free_at_least()) > wanted => Ok(ring.free_at_least().into()),
            // The driver may have added some, of which it does not tell.
            Some(ring) => ring.as_mut().map_or(Ok(0), |ring| ring.free().map(u32::from)),
            None => free_of(&self.shared.ports[port], wanted),
        };
        let free = free.unwrap_or_else(|broken| {
            self.broke(port, broken);
            0
        });
        let slots = self.ports[port].ring_slots;
        self.discipline.set_unread(receiver, slots.saturating_sub(free));
    }

    /// Copies a frame to its receiver, and gives it back to its sender if that was the last one.
    #[inline(always)]
    pub(super) fn deliver(&mut self, packet: &Packet) {
        let (source, receiver) = (packet.source.index(), packet.destination.index());
        let number = number_of(packet);
        if self.ports[receiver].incarnation != incarnation_of(packet) {
            // The port to which it was sent is gone, and this is another one.
            self.ports[source].stats.drops.destination_ring += 1;
            return self.drop_copy(source, number);
        }
        let local = &mut self.ports[source];
        let is_here = local.has(number);
        let at = number as usize % IN_FLIGHT_MAX;
        if !is_here || local.send.is_none() {
            local.stats.drops.stopped += 1;
            return;
        }
        let front = self.vlans.as_ref().and_then(|filter| {
            let tag = local.tags.get(at)?;
            filter.front(receiver, tag.vlan, &tag.start)
        });
        let came = local.slots[at].came;
        let (done, given) = match self.receivers.get_mut(receiver) {
            Some(place) => local.deliver(place, number, front.as_ref()),
            None => deliver_locked(&self.shared.ports[receiver], local, number, front.as_ref()),
        };
        let Ok(Delivery::Done { .. }) = done else {
            self.not_delivered(source, receiver, done);
            return self.drop_copy(source, number);
        };
        self.untold.deliveries.push((source, came));
        self.untold.urgency = self.untold.urgency.min(local.urgency);
        local.stats.delivered.add(packet.bytes);
        let to = &mut self.ports[receiver];
        to.stats.received.add(packet.bytes);
        if !std::mem::replace(&mut to.untold[RECEIVE], true) {
            self.untold.ports[RECEIVE].push(receiver);
        }
        self.note(source, given);
    }

    /// A frame did not reach its receiver.
    #[cold]
    pub(super) fn not_delivered(&mut self, source: usize, receiver: usize, done: Result<Delivery, Culprit>) {
        let drops = &mut self.ports[source].stats.drops;
        match done {
            Ok(Delivery::Done { .. }) => {}
            Ok(Delivery::NoRoom) => drops.destination_ring += 1,
            Ok(Delivery::Offload) => drops.offload += 1,
            Err(Culprit::Sender(broken)) => {
                drops.malformed += 1;
                self.broke(source, broken);
            }
            Err(Culprit::Receiver(broken)) => {
                drops.destination_ring += 1;
                self.broke(receiver, broken);
            }
        }
    }

    /// A copy of a port's frame is dropped.
    #[cold]
    pub(super) fn drop_copy(&mut self, port: usize, number: u32) {
        let local = &mut self.ports[port];
        if !local.has(number) {
            return;
        }
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        slot.copies = slot.copies.saturating_sub(1);
        let given = local.give_back();
        self.note(port, given);
    }

    /// Frames were given back to a port's driver, or its ring is broken.
    #[inline]
    pub(super) fn note(&mut self, port: usize, given: Result<bool, Broken>) {
        match given {
            Ok(true) => self.tell_later(port, SEND),
            Ok(false) => {}
            Err(broken) => self.broke(port, broken),
        }
    }

    /// A port's ring is broken: it is out of use until its driver resets it.
    #[cold]
    pub(super) fn broke(&mut self, port: usize, broken: Broken) {
        if let Some(error) = self.ports[port].send.as_ref().and_then(|ring| ring.error.as_ref()) {
            ring_bell(error);
        }
        self.stop(port);
        ended(match self.receivers.get_mut(port) {
            Some(place) => place.take(),
            None => self.shared.exchange(port, None),
        });
        if !self.shared.ports[port].broken.swap(true, Ordering::AcqRel) {
            // Without a reader there is nobody to tell.
            let _ = self.notices.send(Notice { port, event: Event::Broken(broken) });
        }
    }
}
