//! The work of the stages: buffers are counted, frames copied to their receivers, sender buffers returned.

use std::sync::atomic::Ordering;

use punctual_net::{Discipline, DropReason, Fate, InterfaceId, Packet, Stage, Step};
use punctual_sched::Instant;

use super::Plane;
use crate::error::{DeliverError, RingError};
use crate::limits::IN_FLIGHT_MAX;
use crate::port_queue::{Delivered, PortQueue, frame_number, incarnation, sender};
use crate::port_state::Change;
use crate::ring::Delivery;
use crate::session::{RX, TX};
use crate::shared::{Shared, SharedPort, retire};
use crate::sys::signal_peer;
use crate::vlan::HeaderRewrite;

/// Steps between two reads of the clock, unless a long frame is copied: less than a microsecond. A read costs
/// as much as a step.
const STEPS_PER_CLOCK_READ: u32 = 32;

/// A frame of this length is notified at once: its copy takes longer than the notification.
const LONG_BYTES: u32 = 4096;

/// Available buffers of an RX ring that planes share. The ring is read only if the last known number is not
/// more than `wanted`.
#[inline]
fn avail_len_of(port: &SharedPort, wanted: usize) -> Result<u32, RingError> {
    let avail = port.avail_len.load(Ordering::Relaxed);
    if avail as usize > wanted {
        return Ok(avail);
    }
    let avail = port.rx.with(|ring| ring.as_mut().map_or(Ok(0), |ring| ring.avail_len()))?.into();
    port.avail_len.store(avail, Ordering::Relaxed);
    Ok(avail)
}

/// As [`PortQueue::deliver`], into a ring that planes share. A broken one is removed.
fn deliver_locked(
    shared: &Shared,
    receiver: usize,
    from: &mut PortQueue,
    number: u32,
    rewrite: Option<&HeaderRewrite>,
) -> Delivered {
    let port = &shared.ports[receiver];
    let (delivered, broken) = port.rx.with(|rx| {
        let (done, returned) = from.deliver(rx, number, rewrite);
        let avail = rx.as_ref().map_or(0, |ring| ring.avail_len_cached());
        port.avail_len.store(avail.into(), Ordering::Relaxed);
        if returned {
            // Another plane may publish this frame to the receiver as soon as the lock is free. The sender's
            // used index goes first: if the switch dies in between, the frame is lost rather than sent again.
            from.tx.iter_mut().for_each(|tx| tx.publish());
        }
        let is_broken = matches!(done, Err(DeliverError::Receiver(_)));
        ((done, returned), if is_broken { rx.take() } else { None })
    });
    retire(broken, |ring| shared.discard(ring));
    delivered
}

impl<D: Discipline> Plane<D> {
    /// Does the work of a stage for a packet, or of all stages if it cuts through.
    #[inline(always)]
    pub(super) fn run_step(&mut self, step: &Step) {
        let port = sender(&step.packet);
        if self.ports[port].urgency > self.pending.urgency {
            // Something more urgent was delivered and must not wait for this step.
            self.notify_before(&step.packet);
        }
        if let Some(checker) = &mut self.checker {
            checker.starts(step);
        }
        let fate = match step.stage {
            Stage::Tx => {
                debug_assert!(self.ports[port].tx_backlog > 0, "TX of a packet that never arrived");
                self.ports[port].tx_backlog -= 1;
                if self.cuts_through {
                    self.report_buffers(step.packet.destination);
                    self.cut_through(step)
                } else {
                    self.complete(step)
                }
            }
            Stage::Softnet => {
                self.report_buffers(step.packet.destination);
                self.complete(step)
            }
            Stage::Rx => {
                self.deliver(&step.packet);
                self.complete(step)
            }
        };
        match fate {
            Fate::Queued(_) => {}
            Fate::Dropped(reason) => {
                self.inside -= 1;
                self.ports[step.packet.source.index()].stats.drops.count(reason);
                self.drop_copy(port, frame_number(&step.packet));
            }
            Fate::Delivered => {
                self.inside -= 1;
                if self.pending.is_full() || step.packet.bytes >= LONG_BYTES {
                    self.notify();
                }
            }
        }
        self.update_polled(port);
    }

    /// Does the work of all stages for a packet that has just arrived and passed the discipline, before any
    /// other frame of its port.
    #[inline(always)]
    pub(super) fn carry(&mut self, packet: &Packet, fate: Fate) {
        let port = packet.source.index();
        debug_assert_eq!(port, sender(packet), "frames of ports with classes do not pass");
        if self.ports[port].urgency > self.pending.urgency {
            self.notify();
        }
        if let Some(checker) = &mut self.checker {
            checker.passes(packet, fate);
        }
        self.stats.carried[Stage::Tx as usize] += 1;
        self.stats.carried[Stage::Softnet as usize] += 1;
        let number = frame_number(packet);
        self.ports[port].slots[number as usize % IN_FLIGHT_MAX].copies = 1;
        match fate {
            Fate::Delivered => {
                self.stats.carried[Stage::Rx as usize] += 1;
                self.deliver(packet);
                self.count_steps(3, packet.bytes >= LONG_BYTES);
                if self.pending.is_full() || packet.bytes >= LONG_BYTES {
                    self.notify();
                }
            }
            Fate::Dropped(reason) => {
                self.count_steps(2, false);
                self.ports[port].stats.drops.count(reason);
                self.drop_copy(port, number);
            }
            Fate::Queued(_) => debug_assert!(false, "it has passed all stages"),
        }
    }

    /// Completes a stage of a packet.
    #[inline(always)]
    fn complete(&mut self, step: &Step) -> Fate {
        self.count_steps(1, step.stage == Stage::Rx && step.packet.bytes >= LONG_BYTES);
        let fate = self.discipline.complete(self.now);
        self.stats.carried[step.stage as usize] += 1;
        if let Some(checker) = &mut self.checker {
            checker.ends(step, fate);
        }
        fate
    }

    /// Completes stage TX of a packet, and the others as well if it would be the next there.
    #[inline(always)]
    fn cut_through(&mut self, step: &Step) -> Fate {
        let fate = self.discipline.cut_through(self.now);
        self.stats.carried[Stage::Tx as usize] += 1;
        let passes_softnet = matches!(fate, Fate::Delivered | Fate::Dropped(DropReason::DestinationRing));
        self.stats.carried[Stage::Softnet as usize] += u64::from(passes_softnet);
        if let Some(checker) = &mut self.checker {
            checker.cuts_through(step, fate);
        }
        if fate == Fate::Delivered {
            self.stats.carried[Stage::Rx as usize] += 1;
            self.deliver(&step.packet);
            self.count_steps(3, step.packet.bytes >= LONG_BYTES);
        } else {
            self.count_steps(1, false);
        }
        fate
    }

    /// Reads the clock after enough steps, or a long one.
    #[inline(always)]
    fn count_steps(&mut self, steps: u32, is_long: bool) {
        self.steps_since_clock += steps;
        if is_long || self.steps_since_clock >= STEPS_PER_CLOCK_READ {
            self.read_clock();
        }
    }

    /// Reports to the discipline how many slots of the receiver's ring are occupied.
    #[inline]
    pub(super) fn report_buffers(&mut self, receiver: InterfaceId) {
        let port = receiver.index();
        let wanted = self.discipline.waiting(Stage::Rx);
        let avail = match self.rx_rings.get_mut(port) {
            Some(Some(ring)) if usize::from(ring.avail_len_cached()) > wanted => {
                Ok(ring.avail_len_cached().into())
            }
            // The driver adds buffers without a kick.
            Some(ring) => ring.as_mut().map_or(Ok(0), |ring| ring.avail_len().map(u32::from)),
            None => avail_len_of(&self.shared.ports[port], wanted),
        };
        let avail = avail.unwrap_or_else(|error| {
            self.break_port(port, error);
            0
        });
        let slots = self.ports[port].ring_slots;
        self.discipline.set_unread(receiver, slots.saturating_sub(avail));
    }

    /// Copies a frame to its receiver. The last copy returns the sender's buffers.
    #[inline(always)]
    fn deliver(&mut self, packet: &Packet) {
        let (port, receiver) = (sender(packet), packet.destination.index());
        let number = frame_number(packet);
        if self.ports[receiver].incarnation != incarnation(packet) {
            // The destination was removed, and another port has its number.
            self.ports[packet.source.index()].stats.drops.destination_ring += 1;
            return self.drop_copy(port, number);
        }
        let queue = &mut self.ports[port];
        let is_queued = queue.contains(number);
        let at = number as usize % IN_FLIGHT_MAX;
        if !is_queued || queue.tx.is_none() {
            self.ports[packet.source.index()].stats.drops.stopped += 1;
            return;
        }
        let rewrite = self.vlans.as_ref().and_then(|filter| {
            let tag = queue.tags.get(at)?;
            filter.rewrite(receiver, tag.vlan, &tag.ethernet)
        });
        let arrived = queue.slots[at].arrived;
        let (done, returned) = match self.rx_rings.get_mut(receiver) {
            Some(rx) => queue.deliver(rx, number, rewrite.as_ref()),
            None => deliver_locked(&self.shared, receiver, queue, number, rewrite.as_ref()),
        };
        let Ok(Delivery::Delivered { .. }) = done else {
            self.delivery_failed((packet.source.index(), port), receiver, done);
            return self.drop_copy(port, number);
        };
        if queue.has_classes {
            self.count_of_class(packet, arrived);
        } else {
            self.pending.delivered(port, arrived, queue.urgency);
            queue.stats.delivered.add(packet.bytes);
        }
        let to = &mut self.ports[receiver];
        to.stats.received.add(packet.bytes);
        if !std::mem::replace(&mut to.is_pending[RX], true) {
            self.pending.ports[RX].push(receiver);
        }
        if returned {
            self.queue_notify(port, TX);
        }
    }

    /// Notifies before a less urgent packet is carried. Of a port with classes the packet's own counts.
    #[inline(never)]
    fn notify_before(&mut self, packet: &Packet) {
        if self.ports[packet.source.index()].own_urgency > self.pending.urgency {
            self.notify();
        }
    }

    /// Counts a delivery from a port with classes, as that of the packet's.
    #[inline(never)]
    fn count_of_class(&mut self, packet: &Packet, arrived: Instant) {
        let class = packet.source.index();
        self.pending.delivered(class, arrived, self.ports[class].own_urgency);
        self.ports[class].stats.delivered.add(packet.bytes);
    }

    #[cold]
    fn delivery_failed(
        &mut self,
        (source, port): (usize, usize),
        receiver: usize,
        done: Result<Delivery, DeliverError>,
    ) {
        let drops = &mut self.ports[source].stats.drops;
        match done {
            Ok(Delivery::Delivered { .. }) => {}
            Ok(Delivery::NoBuffers) => drops.destination_ring += 1,
            Ok(Delivery::Offload) => drops.offload += 1,
            Err(DeliverError::Sender(error)) => {
                drops.malformed += 1;
                self.break_port(port, error);
            }
            Err(DeliverError::Receiver(error)) => {
                drops.destination_ring += 1;
                self.break_port(receiver, error);
            }
        }
    }

    /// One receiver less for a frame.
    #[cold]
    fn drop_copy(&mut self, port: usize, number: u32) {
        let queue = &mut self.ports[port];
        if !queue.contains(number) {
            return;
        }
        let slot = &mut queue.slots[number as usize % IN_FLIGHT_MAX];
        debug_assert!(slot.copies > 0, "a frame has as many packets as receivers");
        slot.copies = slot.copies.saturating_sub(1);
        if queue.return_finished() {
            self.queue_notify(port, TX);
        }
    }

    /// Puts a port with a broken ring out of service until its driver resets it.
    #[cold]
    pub(super) fn break_port(&mut self, port: usize, error: RingError) {
        // Zeros instead of the ring's content look like any error.
        let error = if self.has_faulted(port) { RingError::MissingPages } else { error };
        if let Some(err) = self.ports[port].tx.as_ref().and_then(|ring| ring.err.as_ref()) {
            signal_peer(err);
        }
        self.stop_tx(port);
        let rx = match self.rx_rings.get_mut(port) {
            Some(rx) => rx.take(),
            None => self.shared.swap_rx(port, None),
        };
        retire(rx, |ring| self.shared.discard(ring));
        if self.shared.ports[port].life.apply(Change::RingBroken) {
            self.shared.report_broken(port, error);
        }
    }
}
