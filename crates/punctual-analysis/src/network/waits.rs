//! How long a packet waits for a kernel and for the link.

use punctual_model::index::{DomainIx, NetworkIx};
use punctual_sched::Duration;

use super::costs::{per_second, wire_time};
use super::curve::ArrivalCurve;
use super::round::Round;
use super::routes::Leg;
use super::state::Progress;
use crate::demand::{Demand, requested};
use crate::packet_path::busy;
use crate::reason::PacketReason;

impl Round<'_> {
    /// The longest time that the kernel of a guest has work without a break.
    pub(super) fn kernel_delay(&self, domain: DomainIx) -> Result<Duration, PacketReason> {
        let vcpu = self.routes.vcpu(domain);
        let service = self.findings.services.get(&vcpu);
        let service = service.ok_or_else(|| PacketReason::NoProcessorTime { domain: self.name(domain) })?;
        let work = self.load.kernels.get(&vcpu).map(Vec::as_slice).unwrap_or_default();
        busy(|w| service.time(requested(work.iter().map(|work| &work.demand), w), w))
            .ok_or_else(|| PacketReason::BusyKernel { domain: self.name(domain) })
    }

    /// The longest wait for the link in one direction, the packet's own time on it included.
    pub(super) fn link_wait(
        &self,
        network: NetworkIx,
        on_link: impl Fn(&Leg) -> bool,
        when: impl Fn(&Progress) -> Option<ArrivalCurve>,
    ) -> Result<Duration, PacketReason> {
        let mut demands: Vec<Demand> = Vec::new();
        for (at, leg) in self.routes.all().filter(|(_, leg)| leg.network == network && on_link(leg)) {
            let curve = when(&self.state.legs[at.0]).ok_or(PacketReason::LinkShared)?;
            demands.push(curve.demand(wire_time(self.routes.network(leg), leg.bytes)));
        }
        let work = |w| requested(&demands, w);
        busy(work).ok_or_else(|| PacketReason::LinkOverload { per_second: per_second(work) })
    }
}
