//! What every discipline has in common: the interfaces with their rings, rate limits and counters, and the
//! packet that is being processed.

use alloc::vec::Vec;

use punctual_sched::ParamError;
use punctual_sched::heap::IndexedHeap;
use punctual_sched::time::Instant;

use crate::discipline::{COUNT_MAX, Fate, InterfaceKind, InterfaceParams, RING_SLOTS_DEFAULT};
use crate::packet::{DropReason, Drops, InterfaceId, Packet, Stage};
use crate::queue::{List, Pool};
use crate::token_bucket::TokenBucket;

#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) kind: InterfaceKind,
    /// A device with a priority: its packets have that one, not their destination's.
    is_device_class: bool,
    pub(crate) batch: Option<u32>,
    /// Position among the priorities, for disciplines that know any.
    pub(crate) level: usize,
    pub(crate) ring_slots: u32,
    /// A guest's TX ring.
    ring: List,
    /// Packets that wait for the guest in the RX stage.
    receiving: u32,
    /// Packets beyond the RX stage that the guest has not read.
    unread: u32,
    bucket: Option<TokenBucket>,
    /// Is the guest's packet in stage TX? Set by `take`, cleared by `sent`, checked by `offer`: the guest
    /// gets its next turn when that packet is done.
    in_tx: bool,
    drops: Drops,
}

impl Interface {
    fn new(now: Instant, params: &InterfaceParams) -> Interface {
        Interface {
            kind: params.kind,
            is_device_class: params.kind == InterfaceKind::Device && params.priority.is_some(),
            batch: params.batch,
            level: 0,
            ring_slots: params.ring_slots.unwrap_or(RING_SLOTS_DEFAULT),
            ring: List::EMPTY,
            receiving: 0,
            unread: 0,
            bucket: params.rate.map(|rate| TokenBucket::new(now, rate)),
            in_tx: false,
            drops: Drops::default(),
        }
    }
}

/// The packet being processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    pub(crate) stage: Stage,
    pub(crate) index: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) pool: Pool,
    pub(crate) busy: Option<Busy>,
    /// Guests whose next packet exceeds their credit, by the time of new credit.
    over_limit: IndexedHeap<Instant>,
    /// Packets in all TX rings.
    in_rings: usize,
    /// Slots of all rings.
    ring_slots: usize,
}

fn out_of_range(field: &'static str, expected: &str) -> ParamError {
    ParamError::OutOfRange { field, expected: expected.into() }
}

fn check(params: &InterfaceParams) -> Result<(), ParamError> {
    let counts =
        [("batch", params.batch), ("softnet_limit", params.softnet_limit), ("ring_slots", params.ring_slots)];
    for (field, count) in counts {
        if count.is_some_and(|count| !(1..=COUNT_MAX).contains(&count)) {
            return Err(ParamError::OutOfRange {
                field,
                expected: alloc::format!("from 1 to {COUNT_MAX} packets").into(),
            });
        }
    }
    let Some(rate) = params.rate else {
        return Ok(());
    };
    if params.kind == InterfaceKind::Device {
        return Err(out_of_range("credit_bytes", "absent: the rate of a device is not limited"));
    }
    if rate.bytes == 0 {
        return Err(out_of_range("credit_bytes", "at least 1"));
    }
    if rate.window.is_zero() {
        return Err(out_of_range("credit_window", "longer than zero"));
    }
    if rate.burst_bytes < rate.bytes {
        return Err(ParamError::OutOfRange {
            field: "burst_bytes",
            expected: alloc::format!("at least credit_bytes ({})", rate.bytes).into(),
        });
    }
    Ok(())
}

impl Path {
    pub(crate) fn new() -> Self {
        Path {
            interfaces: Vec::new(),
            pool: Pool::new(),
            busy: None,
            over_limit: IndexedHeap::new(0),
            in_rings: 0,
            ring_slots: 0,
        }
    }

    /// Adds an interface; its level is still to be set.
    pub(crate) fn add(&mut self, now: Instant, params: &InterfaceParams) -> Result<InterfaceId, ParamError> {
        check(params)?;
        let id = InterfaceId::of(self.interfaces.len());
        let interface = Interface::new(now, params);
        self.ring_slots += interface.ring_slots as usize;
        self.interfaces.push(interface);
        self.over_limit.grow(self.interfaces.len());
        Ok(id)
    }

    /// Gives a guest's interface to another guest; its level is still to be set. `false` while a packet is
    /// before stage TX or in it, and for devices.
    pub(crate) fn replace(
        &mut self,
        now: Instant,
        id: InterfaceId,
        params: &InterfaceParams,
    ) -> Result<bool, ParamError> {
        check(params)?;
        let interface = &mut self.interfaces[id.index()];
        let are_guests = [interface.kind, params.kind] == [InterfaceKind::Guest; 2];
        if !are_guests || !interface.ring.is_empty() || interface.in_tx {
            return Ok(false);
        }
        self.ring_slots -= interface.ring_slots as usize;
        // Packets to the old guest still come out of RX.
        *interface = Interface { receiving: interface.receiving, ..Interface::new(now, params) };
        self.ring_slots += interface.ring_slots as usize;
        Ok(true)
    }

    /// Makes room for so many interfaces in all, and their packets.
    pub(crate) fn reserve_interfaces(&mut self, interfaces: usize, softnet: usize) {
        let more = interfaces.saturating_sub(self.interfaces.len());
        self.interfaces.reserve(more);
        self.over_limit.grow(interfaces);
        let rings = 2 * (self.ring_slots + more * RING_SLOTS_DEFAULT as usize);
        self.pool.reserve(rings + softnet + 2);
    }

    /// Reserves memory for as many packets as can be on their way when the softnet queues take `softnet`.
    pub(crate) fn reserve(&mut self, softnet: usize) {
        let rings = 2 * self.ring_slots;
        // One is being processed, another arrives from a device only to be dropped.
        self.pool.reserve(rings + softnet + 2);
    }

    #[inline]
    pub(crate) fn interface(&self, id: InterfaceId) -> &Interface {
        &self.interfaces[id.index()]
    }

    #[inline]
    pub(crate) fn packet(&self, index: u32) -> &Packet {
        self.pool.get(index)
    }

    /// The interface that decides a packet's priority and batch: the guest or the device with a priority that
    /// it comes from, or the guest to which it goes when it comes from another device.
    #[inline]
    pub(crate) fn owner(&self, index: u32) -> &Interface {
        let packet = self.packet(index);
        let source = self.interface(packet.source);
        if source.kind == InterfaceKind::Guest || source.is_device_class {
            return source;
        }
        let destination = self.interface(packet.destination);
        if destination.kind == InterfaceKind::Guest { destination } else { source }
    }

    /// Puts a guest's packet into its TX ring. Does the guest need a turn now?
    #[inline(always)]
    pub(crate) fn offer(&mut self, packet: Packet) -> Result<bool, DropReason> {
        let guest = &mut self.interfaces[packet.source.index()];
        if guest.ring.len() >= guest.ring_slots {
            guest.drops.count(DropReason::SourceRing);
            return Err(DropReason::SourceRing);
        }
        let needs_turn = guest.ring.is_empty() && !guest.in_tx;
        let index = self.pool.add(packet);
        guest.ring.push(&mut self.pool.links, index);
        self.in_rings += 1;
        Ok(needs_turn)
    }

    /// May the guest's first packet be sent at `now`? If not, [`Path::next_credited`] will name the guest.
    #[inline]
    pub(crate) fn admit(&mut self, now: Instant, guest: InterfaceId) -> bool {
        self.interfaces[guest.index()].bucket.is_none() || self.admit_limited(now, guest)
    }

    fn admit_limited(&mut self, now: Instant, guest: InterfaceId) -> bool {
        let Interface { ring, bucket, .. } = &mut self.interfaces[guest.index()];
        let (Some(head), Some(bucket)) = (ring.head(), bucket) else {
            return true;
        };
        match bucket.check(now, self.pool.get(head).bytes) {
            Ok(()) => true,
            Err(again) => {
                self.over_limit.set(guest.index(), again);
                false
            }
        }
    }

    /// A guest that waited for credit and has enough at `now`.
    #[inline]
    pub(crate) fn next_credited(&mut self, now: Instant) -> Option<InterfaceId> {
        if self.over_limit.is_empty() { None } else { self.pop_credited(now) }
    }

    fn pop_credited(&mut self, now: Instant) -> Option<InterfaceId> {
        while self.over_limit.peek().is_some_and(|(_, at)| at <= now) {
            let (guest, _) = self.over_limit.pop()?;
            let guest = InterfaceId::of(guest);
            if self.admit(now, guest) {
                return Some(guest);
            }
        }
        None
    }

    /// When the next guest over its limit gets new credit.
    #[inline]
    pub(crate) fn credit_at(&self) -> Option<Instant> {
        self.over_limit.peek().map(|(_, at)| at)
    }

    /// Takes the admitted guest's first packet out of its ring.
    #[inline]
    pub(crate) fn take(&mut self, guest: InterfaceId) -> Option<u32> {
        let interface = &mut self.interfaces[guest.index()];
        let index = interface.ring.pop(&self.pool.links)?;
        if let Some(bucket) = &mut interface.bucket {
            bucket.consume(self.pool.get(index).bytes);
        }
        interface.in_tx = true;
        self.in_rings -= 1;
        Some(index)
    }

    /// The guest's packet is through stage TX. Has the guest another one that may be sent at `now`?
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, guest: InterfaceId) -> bool {
        let interface = &mut self.interfaces[guest.index()];
        interface.in_tx = false;
        !interface.ring.is_empty() && self.admit(now, guest)
    }

    /// The packet is through softnet: it leaves to a device, or takes a slot of a guest's RX ring and waits
    /// for RX.
    #[inline(always)]
    pub(crate) fn bridge(&mut self, index: u32) -> Fate {
        let destination = self.pool.get(index).destination.index();
        let destination = &mut self.interfaces[destination];
        if destination.kind == InterfaceKind::Device {
            self.pool.remove(index);
            return Fate::Delivered;
        }
        if destination.receiving + destination.unread >= destination.ring_slots {
            self.drop_packet(index, DropReason::DestinationRing);
            return Fate::Dropped(DropReason::DestinationRing);
        }
        destination.receiving += 1;
        Fate::Queued(Stage::Rx)
    }

    /// Could the packet of stage TX be the next in softnet and RX, if no other waits there? One to a device
    /// leaves at softnet, and a guest that has credit again may be next in TX.
    #[inline]
    pub(crate) fn may_cut_through(&self, now: Instant, packet: &Packet) -> bool {
        self.interface(packet.destination).kind == InterfaceKind::Guest
            && self.credit_at().is_none_or(|at| at > now)
    }

    /// Is this packet, which arrives, the only one, and may it be sent at any time?
    #[inline]
    pub(crate) fn may_pass(&self, packet: &Packet) -> bool {
        let source = self.interface(packet.source);
        let destination = self.interface(packet.destination);
        assert!(self.busy.is_none(), "a packet is being processed");
        self.in_rings == 0
            && source.bucket.is_none()
            && [source.kind, destination.kind] == [InterfaceKind::Guest; 2]
    }

    /// A packet to a guest passes softnet and RX, where no other waits.
    #[inline]
    pub(crate) fn pass(&mut self, packet: &Packet) -> Fate {
        let destination = self.interface(packet.destination);
        debug_assert_eq!(destination.receiving, 0, "no packet waits in RX");
        if destination.unread < destination.ring_slots {
            return Fate::Delivered;
        }
        self.interfaces[packet.source.index()].drops.count(DropReason::DestinationRing);
        Fate::Dropped(DropReason::DestinationRing)
    }

    /// The packet is through stage RX.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32) {
        let destination = self.pool.get(index).destination.index();
        self.interfaces[destination].receiving -= 1;
        self.pool.remove(index);
    }

    /// The packet is dropped.
    #[inline]
    pub(crate) fn drop_packet(&mut self, index: u32, reason: DropReason) {
        let source = self.pool.get(index).source.index();
        self.interfaces[source].drops.count(reason);
        self.pool.remove(index);
    }

    /// Starts processing a packet.
    #[inline]
    pub(crate) fn start(&mut self, stage: Stage, index: u32) -> Packet {
        self.busy = Some(Busy { stage, index });
        *self.packet(index)
    }

    #[inline]
    pub(crate) fn set_unread(&mut self, id: InterfaceId, packets: u32) {
        self.interfaces[id.index()].unread = packets;
    }

    pub(crate) fn room(&self, id: InterfaceId) -> Option<u32> {
        let interface = self.interface(id);
        (interface.kind == InterfaceKind::Guest).then(|| interface.ring_slots - interface.ring.len())
    }

    pub(crate) fn drops(&self, id: InterfaceId) -> Drops {
        self.interface(id).drops
    }

    pub(crate) fn in_rings(&self) -> usize {
        self.in_rings
    }
}
