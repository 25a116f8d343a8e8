//! One round: from what the tests found about pools to the next state of packets.

use punctual_model::index::DomainIx;
use punctual_model::network::Endpoint;
use punctual_sched::Duration;

use super::costs::{guest, link_delay};
use super::forwarding::Forwarding;
use super::queues::Delays;
use super::round::Round;
use super::routes::{Leg, LegIx};
use super::state::{Progress, State};
use crate::reason::PacketReason;

/// The state after one more round. Each leg already sees what the round says of the legs before it.
pub(crate) fn advance(round: Round<'_>) -> State {
    let forwardings = round.forwardings();
    let mut next = round.state.clone();
    for (at, leg) in round.routes.all() {
        if !next.legs[at.0].is_given_up() {
            next.legs[at.0] = Round { state: &next, ..round }.pass(at, leg, &forwardings);
        }
    }
    for (task, sources) in &round.routes.releases {
        let (&[source], true) = (sources.as_slice(), next.served.contains_key(task)) else { continue };
        let releases = Round { state: &next, ..round }.when(source);
        match releases {
            Some(releases) => next.served.insert(*task, releases),
            None => next.served.remove(task),
        };
    }
    next
}

impl Round<'_> {
    /// What is known of the leg after this round. What fails once fails ever after, since nothing ever gets
    /// less.
    fn pass(&self, at: LegIx, leg: &Leg, forwardings: &[Forwarding]) -> Progress {
        let mut progress = Progress::unknown(&self.state.legs[at.0]);
        match self.pass_stages(leg, forwardings[at.0].clone(), forwardings, &mut progress) {
            Ok(latency) => progress.latency = latency,
            Err(reason) => progress.failed = progress.failed.or(Some(reason)),
        }
        progress
    }

    /// The latency; notes in `progress` how far packets surely come.
    fn pass_stages(
        &self,
        leg: &Leg,
        forwarding: Forwarding,
        forwardings: &[Forwarding],
        progress: &mut Progress,
    ) -> Result<Duration, PacketReason> {
        let network = self.routes.network(leg);
        let created = self.when(leg.source).ok_or(PacketReason::UnboundedCause)?;
        progress.created = Some(created);
        self.has_one_role_each(leg)?;
        let sending = match leg.from {
            Endpoint::Guest(domain) => self.kernel_delay(domain)?,
            Endpoint::Outside(_) => {
                let comes = |other: &Leg| guest(other.from).is_none();
                self.link_wait(leg.network, comes, |progress| progress.created)?
            }
        };
        let posted = created.later(sending);
        progress.posted = Some(posted);
        let forwarding = forwarding?;
        self.ring_has_room(leg, forwardings)?;
        progress.has_room = true;
        let ringed = posted.later(forwarding);
        progress.ringed = Some(ringed);
        let receiving = match leg.to {
            Endpoint::Guest(domain) => self.kernel_delay(domain)?,
            Endpoint::Outside(_) => {
                let leaves = |other: &Leg| guest(other.to).is_none();
                self.link_wait(leg.network, leaves, |progress| progress.ringed)?
            }
        };
        progress.delivered = Some(ringed.later(receiving));
        self.nothing_is_lost(leg, Delays { sending, forwarding, receiving }, forwardings)?;
        let on_link = link_delay(network, leg.from) + link_delay(network, leg.to);
        Ok(sending + forwarding + receiving + on_link)
    }

    /// No domain on the way drives one network and is a guest of another.
    fn has_one_role_each(&self, leg: &Leg) -> Result<(), PacketReason> {
        let networks = &self.routes.host.networks;
        let drives = |domain: &DomainIx| networks.iter().any(|network| network.driver == *domain);
        let is_guest = |domain: &DomainIx| {
            networks.iter().flat_map(|network| &network.interfaces).any(|i| i.domain == *domain)
        };
        let on_way = [guest(leg.from), guest(leg.to), Some(self.routes.network(leg).driver)];
        match on_way.into_iter().flatten().find(|domain| drives(domain) && is_guest(domain)) {
            Some(both) => Err(PacketReason::DriverIsGuest { domain: self.name(both) }),
            None => Ok(()),
        }
    }
}
