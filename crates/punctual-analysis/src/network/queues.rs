//! Do the queues on a packet's way hold what comes while it passes?

use punctual_model::index::DomainIx;
use punctual_model::network::{CLASS_WINDOW, Endpoint, Network};
use punctual_net::discipline::Preemption;
use punctual_net::discipline::RING_SLOTS_DEFAULT;
use punctual_net::{netback, rtca};
use punctual_sched::Duration;

use super::costs::{guest, wire_time};
use super::forwarding::Forwarding;
use super::round::Round;
use super::routes::{Leg, LegIx};
use crate::reason::PacketReason;

/// Packets in the stack in front of a TX ring at most (Linux `txqueuelen`; as the simulator has it).
const SEND_QUEUE_MAX: u64 = 1000;

/// How long a packet takes in each part of its way.
#[derive(Clone, Copy)]
pub(super) struct Delays {
    pub(super) sending: Duration,
    pub(super) forwarding: Duration,
    pub(super) receiving: Duration,
}

impl Round<'_> {
    /// The legs of the same network.
    fn beside(&self, leg: &Leg) -> impl Iterator<Item = (LegIx, &Leg)> {
        let network = leg.network;
        self.routes.all().filter(move |(_, other)| other.network == network)
    }

    /// Does the sender's TX ring hold what comes while a packet passes? Otherwise its kernel may have to
    /// wait. Slots become free in order: with classes, a packet's slot may have to wait for the least urgent
    /// one before it.
    pub(super) fn ring_has_room(&self, leg: &Leg, forwardings: &[Forwarding]) -> Result<(), PacketReason> {
        let Some(from) = guest(leg.from) else { return Ok(()) };
        let same = || self.beside(leg).filter(|(_, other)| other.from == leg.from);
        let mut longest = Duration::ZERO;
        for (at, _) in same() {
            let forwarding = forwardings[at.0].clone();
            let forwarding = forwarding.map_err(|reason| PacketReason::RingShared(Box::new(reason)))?;
            longest = longest.max(forwarding);
        }
        let packets = sum(same().map(|(at, _)| self.posted(at).packets(longest)));
        let network = self.routes.network(leg);
        let has_classes = leg.interface(network).is_some_and(|own| !own.classes.is_empty());
        let slots = match ring_slots(network, from) {
            slots if has_classes && network.has_priorities() => slots.min(CLASS_WINDOW.into()),
            slots => slots,
        };
        if packets > slots {
            return Err(PacketReason::TxRing { domain: self.name(from), packets, slots });
        }
        Ok(())
    }

    /// Do all queues hold what comes while a packet passes?
    pub(super) fn nothing_is_lost(
        &self,
        leg: &Leg,
        delays: Delays,
        forwardings: &[Forwarding],
    ) -> Result<(), PacketReason> {
        self.sending_queue_holds(leg, delays.sending, forwardings)?;
        self.softnet_holds(leg, delays.forwarding)?;
        self.receiving_ring_holds(leg, delays.receiving, forwardings)
    }

    fn sending_queue_holds(
        &self,
        leg: &Leg,
        sending: Duration,
        forwardings: &[Forwarding],
    ) -> Result<(), PacketReason> {
        let Some(from) = guest(leg.from) else {
            let is_from_card = |other: &Leg| guest(other.from).is_none();
            let packets = self.waiting(leg, Duration::ZERO, forwardings, is_from_card)?;
            let slots = self.routes.network(leg).nic.ring_slots.into();
            if packets > slots {
                return Err(PacketReason::CardRing { packets, slots });
            }
            return Ok(());
        };
        let same = self.beside(leg).filter(|(_, other)| other.from == leg.from);
        let created = |at: LegIx| self.state.legs[at.0].created.unwrap_or_else(|| self.posted(at));
        let packets = sum(same.map(|(at, _)| created(at).packets(sending)));
        if packets > SEND_QUEUE_MAX {
            let domain = self.name(from);
            return Err(PacketReason::SendQueue { domain, packets, limit: SEND_QUEUE_MAX });
        }
        Ok(())
    }

    fn softnet_holds(&self, leg: &Leg, forwarding: Duration) -> Result<(), PacketReason> {
        let network = self.routes.network(leg);
        let has_priorities = network.discipline.info.preemption != Preemption::None;
        let level = leg.priority(network);
        let same = self.beside(leg).filter(|(_, other)| !has_priorities || other.priority(network) == level);
        let own = leg.interface(network).and_then(|own| own.params.softnet_limit);
        let option = if has_priorities { &rtca::SOFTNET_LIMIT_OPTION } else { &netback::SOFTNET_LIMIT };
        let limit = match own.filter(|_| has_priorities) {
            Some(own) => own.into(),
            None => network.discipline.options.count(option),
        };
        let packets = sum(same.map(|(at, _)| self.posted(at).packets(forwarding)));
        if packets > limit {
            return Err(PacketReason::SoftnetQueue { packets, limit });
        }
        Ok(())
    }

    fn receiving_ring_holds(
        &self,
        leg: &Leg,
        receiving: Duration,
        forwardings: &[Forwarding],
    ) -> Result<(), PacketReason> {
        let network = self.routes.network(leg);
        match leg.to {
            Endpoint::Guest(to) => {
                let packets = self.waiting(leg, receiving, forwardings, |other| other.to == leg.to)?;
                let slots = ring_slots(network, to);
                if packets > slots {
                    return Err(PacketReason::RxRing { domain: self.name(to), packets, slots });
                }
            }
            Endpoint::Outside(_) => {
                let (wire, slots) = (wire_time(network, leg.bytes), network.nic.ring_slots.into());
                if receiving > wire * slots {
                    return Err(PacketReason::CardRing { packets: receiving.div_ceil(wire), slots });
                }
            }
        }
        Ok(())
    }

    /// Packets of the legs `in_queue` that come while each takes its own time through the driver domain, and
    /// `more` behind it.
    fn waiting(
        &self,
        leg: &Leg,
        more: Duration,
        forwardings: &[Forwarding],
        in_queue: impl Fn(&Leg) -> bool,
    ) -> Result<u64, PacketReason> {
        let mut packets = 0u64;
        for (at, _) in self.beside(leg).filter(|(_, other)| in_queue(other)) {
            let forwarding = forwardings[at.0].clone();
            let forwarding = forwarding.map_err(|reason| PacketReason::RingShared(Box::new(reason)))?;
            packets = packets.saturating_add(self.posted(at).packets(forwarding + more));
        }
        Ok(packets)
    }
}

/// Slots of the rings of a domain's interface.
fn ring_slots(network: &Network, domain: DomainIx) -> u64 {
    let interface = network.interfaces.iter().find(|interface| interface.domain == domain);
    interface.and_then(|i| i.params.ring_slots).unwrap_or(RING_SLOTS_DEFAULT).into()
}

fn sum(packets: impl Iterator<Item = u64>) -> u64 {
    packets.fold(0, u64::saturating_add)
}
