//! Events: changes of domains and pools while the host runs.

use punctual_sched::UnitParams;

use super::domain::domain_pool;
use super::draft::{DomainDraft, EventDraft, PoolDraft};
use super::pool::pool_policy;
use super::unit::{UnitDraft, UnitKind, own_priority, server_params};
use crate::file::entry::{expected_names, shorten};
use crate::file::error::Errors;
use crate::file::nearest::nearest;
use crate::file::section::Section;
use crate::host::{Change, Event};
use crate::index::{DomainIx, PoolIx};

/// Reads the events, in the order of time; those of one instant are in that of the file.
pub(crate) fn events(
    root: Section<'_>,
    pools: &[PoolDraft<'_>],
    domains: &[DomainDraft<'_>],
    errors: &mut Errors,
) -> Vec<EventDraft> {
    let sections = root.named("event", errors);
    let mut events: Vec<EventDraft> =
        sections.into_iter().filter_map(|section| event(section, pools, domains, errors)).collect();
    events.sort_by_key(|draft| draft.event.at);
    events
}

fn event(
    section: Section<'_>,
    pools: &[PoolDraft<'_>],
    domains: &[DomainDraft<'_>],
    errors: &mut Errors,
) -> Option<EventDraft> {
    let at = section.duration("at", errors);
    let unit = UnitDraft::new(section.place, UnitKind::Vcpu);
    let unit = own_priority(section, server_params(section, unit, errors), errors);
    let change = match (section.get("domain"), section.get("pool")) {
        (Some(_), None) => of_domain(section, &unit.params, domains, errors),
        (None, Some(_)) => of_pool(section, &unit.params, pools, errors),
        (Some(_), Some(pool)) => {
            let message = format!("{} has both `domain` and `pool`", section.header());
            errors.add(pool.key_place, message, "expected one of them: two changes are two events");
            None
        }
        (None, None) => {
            let message = format!("neither `domain` nor `pool` is in {}", section.header());
            let expected = "expected `domain` with what changes of its vCPUs, or `pool` with its `policy`";
            errors.add(section.place, message, expected);
            None
        }
    };
    Some(EventDraft { event: Event { name: section.name.into(), at: at?, change: change? }, unit })
}

/// Other parameters of a domain's vCPUs.
fn of_domain(
    section: Section<'_>,
    given: &UnitParams,
    domains: &[DomainDraft<'_>],
    errors: &mut Errors,
) -> Option<Change> {
    let name = section.text("domain", errors)?;
    if let Some(policy) = section.get("policy") {
        let message = format!("{} gives a domain a policy", section.header());
        errors.add(policy.key_place, message, "expected `pool` with a policy, or parameters of the domain");
    }
    if *given == UnitParams::default() {
        let message = format!("{} changes nothing", section.header());
        let expected = "expected budget, period, deadline, priority, weight, cap_percent or extratime";
        errors.add(section.place, message, expected);
    }
    let Some(found) = domains.iter().position(|domain| domain.name == name) else {
        // A domain that is wrong itself is not among them.
        if errors.count() == 0 {
            let names = || domains.iter().map(|domain| domain.name.as_str());
            let message = format!("there is no domain `{}`", shorten(name));
            let place = section.place_of("domain");
            errors.add_nearest(place, message, expected_names(names()), nearest(name, names()));
        }
        return None;
    };
    if domains[found].vcpus.iter().any(|vcpu| vcpu.params.best_effort) {
        let message = format!("domain `{name}` is best effort: no parameter of it counts");
        errors.add(section.place_of("domain"), message, "expected a domain that its pool's policy schedules");
    }
    Some(Change::Params { domain: DomainIx(found), given: given.clone() })
}

/// Another policy of a pool.
fn of_pool(
    section: Section<'_>,
    given: &UnitParams,
    pools: &[PoolDraft<'_>],
    errors: &mut Errors,
) -> Option<Change> {
    if *given != UnitParams::default() {
        let message = format!("{} gives a pool parameters of a vCPU", section.header());
        errors.add(section.place, message, "expected `policy` and its options, or `domain`");
    }
    if section.get("policy").is_none() {
        let message = format!("`policy` is missing in {}", section.header());
        errors.add(section.place, message, "expected the policy that the pool gets");
    }
    let pool = domain_pool(section, pools, errors)?;
    let policy = pool_policy(section, pools[pool].processors.len(), errors)?.choice;
    Some(Change::Policy { pool: PoolIx(pool), policy })
}
