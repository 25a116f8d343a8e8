//! How long the driver domain takes to forward a packet.

use std::collections::BTreeMap;

use punctual_model::index::NetworkIx;
use punctual_model::network::EventHandling;
use punctual_net::discipline::Preemption;
use punctual_net::{RX_ROUND, TX_ROUND};
use punctual_sched::Duration;

use super::costs::{guest, most, per_second};
use super::round::Round;
use super::routes::{Leg, LegIx};
use crate::packet_path::{Path, busy};
use crate::reason::PacketReason;

/// The longest time from a ring or the card to the end of the driver domain's work on a packet.
pub(super) type Forwarding = Result<Duration, PacketReason>;

impl Round<'_> {
    /// Forwarding of every leg's packets, also of legs that have failed.
    pub(super) fn forwardings(&self) -> Vec<Forwarding> {
        let mut known: BTreeMap<(NetworkIx, u64), Forwarding> = BTreeMap::new();
        let of_leg = |(at, leg): (LegIx, &Leg)| {
            let key = (leg.network, leg.priority(self.routes.network(leg)));
            known.entry(key).or_insert_with(|| self.forwarding(at)).clone()
        };
        self.routes.all().map(of_leg).collect()
    }

    fn forwarding(&self, at: LegIx) -> Forwarding {
        let leg = &self.routes.legs[at.0];
        let network = self.routes.network(leg);
        let priority = leg.priority(network);
        let name = || self.name(network.driver);
        let service = self.findings.services.get(&self.routes.vcpu(network.driver));
        let service = service.ok_or_else(|| PacketReason::NoDriverTime { domain: name() })?;
        let preemption = match network.events {
            EventHandling::First => network.discipline.info.preemption,
            EventHandling::OneByOne => Preemption::None,
        };
        if let Some(domain) = self.rate_limited(leg, preemption) {
            return Err(PacketReason::RateLimit { domain });
        }
        let path = self.path(leg.network);
        let work = |w| match preemption {
            Preemption::Batches => path.rtca_work(priority, w),
            Preemption::Packets => path.preemptive_work(priority, w),
            Preemption::None => path.shipped_work(w),
        };
        if preemption == Preemption::Batches && path.flows.iter().any(|flow| flow.batch > path.rx_round) {
            return Err(PacketReason::LargeBatch);
        }
        busy(|w| service.time(work(w), w)).ok_or_else(|| {
            let (domain, per_second) = (name(), per_second(work));
            match preemption {
                Preemption::None => PacketReason::Overload { domain, per_second },
                _ => PacketReason::UrgentOverload { domain, per_second },
            }
        })
    }

    /// A domain whose packets come before the leg's, or may, and are held back by a rate limit.
    fn rate_limited(&self, leg: &Leg, preemption: Preemption) -> Option<String> {
        let network = self.routes.network(leg);
        let priority = leg.priority(network);
        let comes_before = |other: &&Leg| {
            other.network == leg.network
                && (preemption == Preemption::None || other.priority(network) <= priority)
        };
        self.routes.legs.iter().filter(comes_before).find_map(|other| {
            let from = guest(other.from)?;
            let interface = network.interfaces.iter().find(|interface| interface.domain == from)?;
            interface.params.rate.is_some().then(|| self.name(from))
        })
    }

    /// Everything that passes the network's driver domain.
    fn path(&self, network: NetworkIx) -> Path {
        let of = &self.routes.host.networks[network.0];
        let options = &of.discipline.options;
        let legs = self.routes.all().filter(|(_, leg)| leg.network == network);
        Path {
            round: most(of, of.costs.round),
            tx_round: options.count(&TX_ROUND),
            rx_round: options.count(&RX_ROUND),
            ..Path::new(legs.map(|(at, leg)| leg.in_path(of, self.posted(at))).collect())
        }
    }
}
