//! The answers: how late packets come, and chains from end to end.

use punctual_model::network::{Chain, Flow, Traffic};
use punctual_sched::Duration;

use super::costs::turnaround;
use super::round::Round;
use super::routes::{FlowLegs, LegIx};
use crate::answer::is_round_trip;
use crate::reason::{ChainReason, PacketReason};

/// By flow: a bound on its latency.
pub(crate) fn of_flows(round: Round<'_>) -> Vec<Result<Duration, PacketReason>> {
    let flows = round.routes.host.flows.iter().zip(&round.routes.flows);
    flows.map(|(flow, legs)| round.of_flow(flow, legs)).collect()
}

/// By chain: a bound on the time from the release of the first step to the end of the last.
pub(crate) fn of_chains(round: Round<'_>) -> Vec<Result<Duration, ChainReason>> {
    let chains = round.routes.host.chains.iter().zip(&round.routes.chains);
    chains.map(|(chain, legs)| round.of_chain(chain, legs)).collect()
}

impl Round<'_> {
    fn of_flow(&self, flow: &Flow, legs: &FlowLegs) -> Result<Duration, PacketReason> {
        let mut bound = Duration::ZERO;
        for leg in [Some(legs.forth), legs.back].into_iter().flatten() {
            bound += self.latency(leg)?;
        }
        if let Traffic::Request { server: Some(server), .. } = flow.traffic {
            bound += self.response(server).unwrap_or_default();
        }
        if is_round_trip(&flow.traffic) {
            bound += turnaround(&self.routes.host.networks[flow.network.0], flow.to);
        }
        Ok(bound)
    }

    fn latency(&self, leg: LegIx) -> Result<Duration, PacketReason> {
        let progress = &self.state.legs[leg.0];
        progress.failed.clone().map_or(Ok(progress.latency), Err)
    }

    fn of_chain(&self, chain: &Chain, legs: &[Option<LegIx>]) -> Result<Duration, ChainReason> {
        let mut bound = Duration::ZERO;
        for (task, leg) in chain.steps.iter().zip(legs) {
            let step = || self.routes.host.tasks[task.0].name.clone();
            if let Some(leg) = *leg {
                let latency = self.latency(leg);
                bound += latency.map_err(|reason| ChainReason::Packet { step: step(), reason })?;
            }
            bound += self.response(*task).ok_or_else(|| ChainReason::Step { step: step() })?;
        }
        if bound > chain.deadline {
            Err(ChainReason::BeyondDeadline { bound, deadline: chain.deadline })
        } else {
            Ok(bound)
        }
    }
}
