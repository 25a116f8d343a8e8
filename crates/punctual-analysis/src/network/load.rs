//! From packets to load: what networks make kernels and tasks do.

use std::collections::BTreeMap;

use punctual_model::host::Work;
use punctual_model::index::{DomainIx, VcpuIx};
use punctual_sched::Duration;

use super::costs::{guest, most};
use super::curve::ArrivalCurve;
use super::routes::Routes;
use super::state::State;
use crate::demand::NANOSECOND;
use crate::inputs::{KernelWork, Load};

/// What networks add to the host's own tasks in this state.
pub(crate) fn load(routes: &Routes<'_>, state: &State) -> Load {
    let served = state.served.iter().filter_map(|(task, curve)| {
        let Work::Served { cost, deadline } = routes.host.tasks[task.0].work else { return None };
        Some((*task, curve.demand(cost.max.max(NANOSECOND)).due(deadline)))
    });
    Load { served: served.collect(), kernels: kernels(routes, state) }
}

fn kernels(routes: &Routes<'_>, state: &State) -> BTreeMap<VcpuIx, Vec<KernelWork>> {
    let mut kernels: BTreeMap<VcpuIx, Vec<KernelWork>> = BTreeMap::new();
    for network in &routes.host.networks {
        let with_kernel = network.interfaces.iter().map(|i| i.domain).chain([network.driver]);
        for domain in with_kernel {
            kernels.entry(routes.vcpu(domain)).or_default();
        }
    }
    let mut add = |domain: DomainIx, curve: ArrivalCurve, cost: Duration, wakes: u64| {
        let work = KernelWork { demand: curve.demand(cost), wakes: curve.burst.saturating_mul(wakes) };
        kernels.entry(routes.vcpu(domain)).or_default().push(work);
    };
    for (leg, progress) in routes.legs.iter().zip(&state.legs) {
        let network = routes.network(leg);
        let costs = &network.costs;
        if let Some(from) = guest(leg.from) {
            // Each packet may be the first one after a rest, and after a time without the processor.
            let rest = costs.guest_wake_most() + costs.guest_resume;
            let cost = most(network, costs.guest_sends(leg.bytes) + rest) + most(network, costs.event);
            let sent = progress.created.filter(|_| progress.has_room);
            add(from, sent.unwrap_or_else(|| leg.posted_at_most(network)), cost, 1);
        }
        if let Some(to) = guest(leg.to) {
            let ringed = progress.ringed.unwrap_or_else(|| leg.ringed_at_most(network));
            let rest = costs.guest_wake_most() + costs.guest_resume;
            let cost = costs.guest_receives(leg.bytes) + costs.interrupt + rest;
            add(to, ringed, most(network, cost), 1);
        }
        let posted = progress.posted.unwrap_or_else(|| leg.posted_at_most(network));
        let path = leg.in_path(network, posted);
        let cost = path.event + path.tx + path.softnet + path.rx + most(network, costs.round) * 3;
        // A packet may wake the driver domain when it comes and when its rate limit lets it go.
        add(network.driver, posted, cost, 2);
    }
    kernels
}
