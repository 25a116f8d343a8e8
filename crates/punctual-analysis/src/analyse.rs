//! From a host to answers.

use punctual_model::{Guarantees, Host};

use crate::answer::{Answers, VcpuAnswer};
use crate::findings::Findings;
use crate::inputs::{Index, Inputs, UnitIx};
use crate::network::{self, Round, Routes, State};
use crate::pool::all_pools;
use crate::warnings;

/// Rounds of the analysis after which what still changes is given up.
const ROUNDS: usize = 48;

/// What is guaranteed on this host, as it is shown and written.
pub fn analyse(host: &Host) -> Guarantees {
    answers(host).guarantees(host)
}

/// What is guaranteed on this host: every pool and every network analysed. Of a host with events nothing is:
/// analyse its [modes](Host::modes).
pub fn answers(host: &Host) -> Answers {
    if !host.events.is_empty() {
        return answers(&Host { events: Vec::new(), ..host.clone() }).across_changes();
    }
    let index = Index::new(host);
    let inputs = Inputs::new(host, &index);
    if host.flows.is_empty() && host.chains.is_empty() {
        return without_networks(inputs, all_pools(inputs));
    }
    with_networks(inputs)
}

/// Packets depend on what pools give their domains, and pools on what packets take: both are analysed in turn
/// until nothing changes. What moves after many rounds is given up; then there is at least one less to move.
fn with_networks(inputs: Inputs<'_>) -> Answers {
    let routes = Routes::new(inputs.host);
    let mut state = State::first(&routes);
    loop {
        let mut before = state.clone();
        for _ in 0..ROUNDS {
            let load = network::load(&routes, &state);
            let loaded = Inputs { load: &load, ..inputs };
            let findings = all_pools(loaded);
            let round = Round { routes: &routes, state: &state, load: &load, findings: &findings };
            let next = network::advance(round);
            if next == state {
                let (flows, chains) = (network::of_flows(round), network::of_chains(round));
                return Answers { flows, chains, ..without_networks(loaded, findings) };
            }
            before = std::mem::replace(&mut state, next);
        }
        state = state.give_up_what_moved(&before);
    }
}

/// The answers about pools.
fn without_networks(inputs: Inputs<'_>, findings: Findings) -> Answers {
    let warnings = warnings::of_host(inputs, &findings.tasks);
    let vcpus = findings.budgets.into_iter().filter_map(|(unit, budget)| match unit {
        UnitIx::Vcpu(vcpu) => Some((vcpu, VcpuAnswer { period: budget.period, answer: budget.answer })),
        UnitIx::Task(_) => None,
    });
    Answers { tasks: findings.tasks, vcpus: vcpus.collect(), flows: Vec::new(), chains: Vec::new(), warnings }
}
