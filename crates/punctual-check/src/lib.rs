//! Which deadlines and budgets hold: the analysis first, then counter-examples for what it leaves open.
//!
//! [`punctual_analysis`] guarantees, refutes, or says "unknown" and why. Every unknown answer may hide a
//! deadline that is missed, so this crate looks for a release pattern that misses it: it simulates the host
//! under the patterns that hurt most ([`patterns`]), under random ones, and under changes of those that came
//! nearest to a miss. A deadline that is missed in a simulation of a pattern that the guarantee would cover
//! is refuted, with the pattern as the counter-example. A search that finds nothing proves nothing: the
//! answer stays "unknown".
//!
//! The same for budgets: all vCPUs are busy from the start, and one that gets less than its budget in one of
//! its periods is refuted. Where more is asked for than there is, both simulations last until it must show
//! (`overload.rs`), unless that takes too long.
//!
//! Where tasks of a vCPU with a budget stay without a guarantee, [`check`] also looks for a greater budget
//! that settles it.
//!
//! The search is deterministic: the same host gives the same answers, whatever the machine. Hosts with
//! networks are analysed only; when their packets come is no choice of a pattern.

#![forbid(unsafe_code)]

mod budgets;
mod misses;
mod overload;
pub mod patterns;
mod remedies;
mod tasks;

use punctual_analysis::{Answers, FairServer, enforcement_warnings, fair_server_warnings};
use punctual_model::guarantees::ModeGuarantees;
use punctual_model::live::Backend;
use punctual_model::modes::Mode;
use punctual_model::{Guarantees, Host};
use punctual_sched::Duration;

/// What holds on this host, as it is shown and written: of one with events, in each of its modes.
pub fn check(host: &Host) -> Guarantees {
    let answers = answers(host);
    if !host.events.is_empty() {
        return Guarantees { modes: modes(host), ..answers.guarantees(host) };
    }
    Guarantees { remedies: remedies::remedies(host, &answers), ..answers.guarantees(host) }
}

/// What holds between the events of a host.
fn modes(host: &Host) -> Vec<ModeGuarantees> {
    let mode = |Mode { from, events, host: mode }: Mode| ModeGuarantees {
        from_ns: from.as_ns(),
        events: events.into_iter().map(|event| host.events[event].name.clone()).collect(),
        guarantees: check(&mode),
    };
    host.modes().into_iter().map(mode).collect()
}

/// The same with warnings for hosts that are enforced live: of budgets that are short compared with the
/// interval `enforced_every` at which an enforcer checks them, and, where that is given or a domain names a
/// backend, of what the kernel's fair server takes from real-time threads.
pub fn check_enforced(host: &Host, enforced_every: Option<Duration>) -> Guarantees {
    let mut guarantees = check(host);
    if let Some(every) = enforced_every {
        guarantees.warnings.extend(enforcement_warnings(host, every));
    }
    let is_for_live = host.domains.iter().any(|domain| domain.live.backend != Backend::Default);
    if is_for_live || enforced_every.is_some() {
        guarantees.warnings.extend(fair_server_warnings(host, FairServer::DEFAULT));
    }
    guarantees
}

/// What holds on this host.
pub fn answers(host: &Host) -> Answers {
    let mut answers = punctual_analysis::answers(host);
    if host.flows.is_empty() && host.chains.is_empty() && host.events.is_empty() {
        tasks::refute(host, &mut answers);
        budgets::refute(host, &mut answers);
    }
    answers
}
