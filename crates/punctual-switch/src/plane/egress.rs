//! What the stages take.

use std::sync::atomic::Ordering;

use punctual_net::{Discipline, Fate, InterfaceId, Packet, Stage, Step};

use super::Plane;
use super::notify::NOTIFY_BATCH_MAX;
use crate::error::{DeliverError, RingError};
use crate::event::{Event, Notice};
use crate::limits::IN_FLIGHT_MAX;
use crate::port_queue::{Delivered, PortQueue, incarnation_of, number_of};
use crate::ring::Delivery;
use crate::session::{RX, TX};
use crate::shared::{SharedPort, retire};
use crate::sys::signal;
use crate::vlan::HeaderRewrite;

/// Steps between two looks at the clock, but for [`LONG_BYTES`] that are copied: less than a microsecond. A
/// look costs as much as a step.
const STEPS_PER_CLOCK_READ: u32 = 32;

/// A frame of so many bytes is told at once: its copy takes longer than telling.
const LONG_BYTES: u32 = 4096;

/// Buffers in a receive ring that planes share, as of the last look unless more than that are wanted.
#[inline]
fn avail_len_of(port: &SharedPort, wanted: usize) -> Result<u32, RingError> {
    let free = port.free.load(Ordering::Relaxed);
    if free as usize > wanted {
        return Ok(free);
    }
    let free = port.rx.with(|ring| ring.as_mut().map_or(Ok(0), |ring| ring.avail_len()))?.into();
    port.free.store(free, Ordering::Relaxed);
    Ok(free)
}

/// As [`PortQueue::deliver`], into a ring that planes share.
fn deliver_locked(
    port: &SharedPort,
    from: &mut PortQueue,
    number: u32,
    rewrite: Option<&HeaderRewrite>,
) -> Delivered {
    port.rx.with(|place| {
        let (done, given) = from.deliver(place, number, rewrite);
        let free = place.as_ref().map_or(0, |ring| ring.avail_len_cached());
        port.free.store(free.into(), Ordering::Relaxed);
        if given == Ok(true) {
            // Another plane may show the receiver this frame. The sender first: if the switch dies between,
            // the frame is lost rather than sent again by the next one.
            let _ = from.send.as_mut().map(|send| send.publish());
        }
        (done, given)
    })
}

impl<D: Discipline> Plane<D> {
    /// Does what a stage takes.
    #[inline(always)]
    pub(super) fn run_step(&mut self, step: &Step) {
        let port = step.packet.source.index();
        if self.ports[port].urgency > self.pending.urgency {
            // What is more urgent does not wait.
            self.notify();
        }
        if let Some(checker) = &mut self.checker {
            checker.starts(step);
        }
        match step.stage {
            Stage::Tx => self.ports[port].tx_backlog -= 1,
            Stage::Softnet => self.report_buffers(step.packet.destination),
            Stage::Rx => self.deliver(&step.packet),
        }
        self.steps_since_clock += 1;
        let is_long = step.stage == Stage::Rx && step.packet.bytes >= LONG_BYTES;
        if is_long || self.steps_since_clock >= STEPS_PER_CLOCK_READ {
            self.read_clock();
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
                if self.pending.deliveries.len() >= NOTIFY_BATCH_MAX || step.packet.bytes >= LONG_BYTES {
                    self.notify();
                }
            }
        }
    }

    /// Tells the discipline how many buffers a receiver has.
    #[inline]
    pub(super) fn report_buffers(&mut self, receiver: InterfaceId) {
        let port = receiver.index();
        let wanted = self.discipline.waiting(Stage::Rx);
        let free = match self.rx_rings.get_mut(port) {
            Some(Some(ring)) if usize::from(ring.avail_len_cached()) > wanted => {
                Ok(ring.avail_len_cached().into())
            }
            // The driver may have added some, of which it does not tell.
            Some(ring) => ring.as_mut().map_or(Ok(0), |ring| ring.avail_len().map(u32::from)),
            None => avail_len_of(&self.shared.ports[port], wanted),
        };
        let free = free.unwrap_or_else(|broken| {
            self.break_port(port, broken);
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
        let is_queued = local.contains(number);
        let at = number as usize % IN_FLIGHT_MAX;
        if !is_queued || local.send.is_none() {
            local.stats.drops.stopped += 1;
            return;
        }
        let rewrite = self.vlans.as_ref().and_then(|filter| {
            let tag = local.tags.get(at)?;
            filter.rewrite(receiver, tag.vlan, &tag.ethernet)
        });
        let came = local.slots[at].arrived;
        let (done, given) = match self.rx_rings.get_mut(receiver) {
            Some(place) => local.deliver(place, number, rewrite.as_ref()),
            None => deliver_locked(&self.shared.ports[receiver], local, number, rewrite.as_ref()),
        };
        let Ok(Delivery::Delivered { .. }) = done else {
            self.delivery_failed(source, receiver, done);
            return self.drop_copy(source, number);
        };
        self.pending.deliveries.push((source, came));
        self.pending.urgency = self.pending.urgency.min(local.urgency);
        local.stats.delivered.add(packet.bytes);
        let to = &mut self.ports[receiver];
        to.stats.received.add(packet.bytes);
        if !std::mem::replace(&mut to.pending[RX], true) {
            self.pending.ports[RX].push(receiver);
        }
        self.after_return(source, given);
    }

    /// A frame did not reach its receiver.
    #[cold]
    pub(super) fn delivery_failed(
        &mut self,
        source: usize,
        receiver: usize,
        done: Result<Delivery, DeliverError>,
    ) {
        let drops = &mut self.ports[source].stats.drops;
        match done {
            Ok(Delivery::Delivered { .. }) => {}
            Ok(Delivery::NoBuffers) => drops.destination_ring += 1,
            Ok(Delivery::Offload) => drops.offload += 1,
            Err(DeliverError::Sender(broken)) => {
                drops.malformed += 1;
                self.break_port(source, broken);
            }
            Err(DeliverError::Receiver(broken)) => {
                drops.destination_ring += 1;
                self.break_port(receiver, broken);
            }
        }
    }

    /// A copy of a port's frame is dropped.
    #[cold]
    pub(super) fn drop_copy(&mut self, port: usize, number: u32) {
        let local = &mut self.ports[port];
        if !local.contains(number) {
            return;
        }
        let slot = &mut local.slots[number as usize % IN_FLIGHT_MAX];
        slot.copies = slot.copies.saturating_sub(1);
        let given = local.return_finished();
        self.after_return(port, given);
    }

    /// Frames were given back to a port's driver, or its ring is broken.
    #[inline]
    pub(super) fn after_return(&mut self, port: usize, given: Result<bool, RingError>) {
        match given {
            Ok(true) => self.queue_notify(port, TX),
            Ok(false) => {}
            Err(broken) => self.break_port(port, broken),
        }
    }

    /// A port's ring is broken: it is out of use until its driver resets it.
    #[cold]
    pub(super) fn break_port(&mut self, port: usize, broken: RingError) {
        if let Some(err) = self.ports[port].send.as_ref().and_then(|ring| ring.err.as_ref()) {
            signal(err);
        }
        self.stop_tx(port);
        retire(match self.rx_rings.get_mut(port) {
            Some(place) => place.take(),
            None => self.shared.swap_rx(port, None),
        });
        if !self.shared.ports[port].broken.swap(true, Ordering::AcqRel) {
            // Without a reader there is nobody to tell.
            let _ = self.notices.send(Notice { port, event: Event::Broken(broken) });
        }
    }
}
