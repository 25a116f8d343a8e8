//! Domains: where they run, their vCPUs, guests and tasks.

use std::collections::BTreeMap;

use punctual_sched::{UnitParams, registry};

use super::draft::{DomainDraft, PoolDraft};
use super::keys::OF_VM;
use super::locks::check_guest;
use super::smp::smp;
use super::task::tasks;
use super::unit::{Processors, UnitDraft, UnitKind, more_vcpus, of_domain, of_pool, unit_params};
use crate::file::entry::{expected_indices, expected_names, shorten};
use crate::file::error::Errors;
use crate::file::key::Kind;
use crate::file::limits::{NESTING_MAX, UNITS_MAX};
use crate::file::live;
use crate::file::nearest::nearest;
use crate::file::options::{PolicyDraft, check_options, policy_options};
use crate::file::section::Section;
use crate::file::tree::Value;
use crate::host::Parent;
use crate::index::{DomainIx, PoolIx};
use crate::live::Live;

/// Reads the domains in their final order: that of the file, but each after the domain that it runs in.
pub(crate) fn domains<'t>(
    root: Section<'t>,
    processors: usize,
    pools: &[PoolDraft<'t>],
    errors: &mut Errors,
) -> Vec<DomainDraft<'t>> {
    let sections = root.named("domain", errors);
    let by_name: BTreeMap<&str, usize> = sections.iter().enumerate().map(|(i, t)| (t.name, i)).collect();
    for section in sections.iter().filter(|t| pools.iter().any(|p| p.name == t.name)) {
        let message = format!("a pool is called `{}` too", section.name);
        errors.add(section.place, message, "expected different names for pools and domains");
    }
    let outer: Vec<Option<usize>> = sections.iter().map(|t| outer_domain(*t, &by_name, errors)).collect();
    let Some(order) = outer_first(&sections, &outer, errors) else { return Vec::new() };
    let mut final_index = vec![0; sections.len()];
    for (new, &old) in order.iter().enumerate() {
        final_index[old] = new;
    }
    let counts: Vec<usize> = sections.iter().map(|t| t.count_or_default("vcpus", errors) as usize).collect();
    let total: usize = counts.iter().sum();
    if total > UNITS_MAX {
        let place = root.get("domain").map_or(root.place, |e| e.key_place);
        errors.add(place, format!("the domains have {total} vCPUs"), format!("expected at most {UNITS_MAX}"));
        return Vec::new();
    }
    let mut domains = Vec::new();
    for old in order {
        let draft = match outer[old] {
            Some(outer) => {
                let above = of_domain(counts[outer], "vCPUs of the outer domain");
                live::read::refuse_nested(sections[old], errors);
                domain(
                    sections[old],
                    Parent::Domain(DomainIx(final_index[outer])),
                    counts[old],
                    &above,
                    errors,
                )
            }
            None => {
                let Some(pool) = domain_pool(sections[old], pools, errors) else { continue };
                let above = of_pool(&pools[pool].processors, processors);
                let live = live::read::live(sections[old], counts[old], processors, errors);
                let draft = domain(sections[old], Parent::Pool(PoolIx(pool)), counts[old], &above, errors);
                draft.map(|draft| DomainDraft { live, ..draft })
            }
        };
        domains.extend(draft);
    }
    domains
}

/// The domain that a nested domain runs in.
fn outer_domain(section: Section<'_>, by_name: &BTreeMap<&str, usize>, errors: &mut Errors) -> Option<usize> {
    let name = section.text("in", errors)?;
    let entry = section.get("in")?;
    if let Some(pool) = section.get("pool") {
        let message = format!("{} has both `pool` and `in`", section.header());
        errors.add(pool.key_place, message, "expected one of them: a nested domain follows its outer domain");
    }
    let found = by_name.get(name).copied();
    if found.is_none() {
        let message = format!("there is no domain `{}`", shorten(name));
        let expected = expected_names(by_name.keys().copied());
        errors.add_nearest(entry.node.place, message, expected, nearest(name, by_name.keys().copied()));
    }
    found
}

/// An order in which every domain stands after its outer one, otherwise that of the file.
fn outer_first(sections: &[Section<'_>], outer: &[Option<usize>], errors: &mut Errors) -> Option<Vec<usize>> {
    let mut order = Vec::with_capacity(sections.len());
    let mut placed = vec![false; sections.len()];
    let before = errors.count();
    for (start, section) in sections.iter().enumerate() {
        let mut chain = vec![start];
        let mut depth = 0;
        let mut at = start;
        while let Some(next) = outer[at] {
            depth += 1;
            if next == start || depth > NESTING_MAX {
                break;
            }
            chain.push(next);
            at = next;
        }
        // A cycle is reported once, at its first domain.
        let first = outer[at] != Some(start) || chain.iter().all(|&d| d >= start);
        if let (Some(next), Some(entry), true) = (outer[at], section.get("in"), first) {
            let names: Vec<&str> = chain.iter().chain([&next]).map(|&d| sections[d].name).collect();
            let message = if next == start {
                format!("domain `{}` runs inside itself: {}", section.name, names.join(" in "))
            } else {
                format!("domain `{}` is nested more than {NESTING_MAX} deep", section.name)
            };
            errors.add(entry.node.place, message, "expected a chain of domains that ends at a pool");
        }
        for &d in chain.iter().rev() {
            if !std::mem::replace(&mut placed[d], true) {
                order.push(d);
            }
        }
    }
    (errors.count() == before).then_some(order)
}

/// The pool of a domain that is not nested, or of a class, which has no `in`.
pub(crate) fn domain_pool(
    section: Section<'_>,
    pools: &[PoolDraft<'_>],
    errors: &mut Errors,
) -> Option<usize> {
    let names = || pools.iter().map(|p| p.name.as_str());
    let Some(entry) = section.get("pool") else {
        if pools.len() > 1 && section.table.get("in").is_none() {
            let message = format!("`pool` is missing in {}", section.header());
            errors.add(
                section.place,
                message,
                format!("there are several pools; {}", expected_names(names())),
            );
        }
        return (!pools.is_empty()).then_some(0);
    };
    let name = section.text("pool", errors)?;
    let found = names().position(|n| n == name);
    if found.is_none() {
        let message = format!("there is no pool `{}`", shorten(name));
        errors.add_nearest(entry.node.place, message, expected_names(names()), nearest(name, names()));
    }
    found
}

fn domain<'t>(
    section: Section<'t>,
    parent: Parent,
    count: usize,
    above: &Processors<'_>,
    errors: &mut Errors,
) -> Option<DomainDraft<'t>> {
    let common = unit_params(section, above, UnitDraft::new(section.place, UnitKind::Vcpu), errors);
    let mut vcpus = vec![common; count];
    single_vcpus(section, &mut vcpus, above, errors);
    if shares_budget(section, errors) {
        check_shared(section, &vcpus, errors);
        vcpus.iter_mut().for_each(|vcpu| vcpu.params.shares_budget = true);
    }
    if matches!(parent, Parent::Domain(_))
        && let Some(vcpu) = vcpus.iter().find(|vcpu| vcpu.params.best_effort)
    {
        let place = vcpu.place_of(UnitParams::BEST_EFFORT);
        errors.add(place, "a nested domain cannot be best effort", "expected a domain of a pool");
    }
    let guest = guest(section, errors);
    let mut tasks = tasks(section, &of_domain(count, "vCPUs of the domain"), errors);
    let smp = smp(section, count, &mut tasks, errors);
    let guest = guest?;
    check_options(&guest, count, errors);
    check_guest(section, count, &guest, errors);
    Some(DomainDraft { name: section.name.into(), parent, vcpus, guest, live: Live::default(), tasks, smp })
}

/// `budget_of`: do all vCPUs of a domain, or of a VM of a class, share one budget?
pub(crate) fn shares_budget(section: Section<'_>, errors: &mut Errors) -> bool {
    section.word(UnitParams::BUDGET_OF, errors) == Some(OF_VM)
}

/// vCPUs that share a budget differ in nothing, and have one.
fn check_shared(section: Section<'_>, vcpus: &[UnitDraft], errors: &mut Errors) {
    if let Some(single) = section.get("vcpu") {
        let message = "a single vCPU has parameters of its own, and all share one budget";
        errors.add(single.key_place, message, "expected none: they are those of the domain");
    }
    check_reserved(section, &vcpus[0], errors);
}

/// A budget is not shared below all budgets.
pub(crate) fn check_reserved(section: Section<'_>, unit: &UnitDraft, errors: &mut Errors) {
    if unit.params.best_effort {
        let message = format!("{} is best effort, and has no budget to share", section.header());
        errors.add(section.place_of(UnitParams::BUDGET_OF), message, "expected one of both keys");
    }
}

/// `vcpu.N = { ... }`: parameters of single vCPUs.
fn single_vcpus(section: Section<'_>, vcpus: &mut [UnitDraft], above: &Processors<'_>, errors: &mut Errors) {
    let Some(entry) = section.get("vcpu") else { return };
    let Some(Kind::Numbered(info)) = section.info.key("vcpu").map(|k| k.kind) else {
        unreachable!("vcpu is numbered")
    };
    let Value::Table(by_number) = &entry.node.value else {
        errors.add(
            entry.place(),
            "`vcpu` is not a table",
            "expected for example vcpu.0 = { affinity = [1] }",
        );
        return;
    };
    for entry in &by_number.entries {
        let canonical = entry.key.parse::<usize>().ok().filter(|n| n.to_string() == entry.key);
        let Some(vcpu) = canonical.and_then(|n| vcpus.get_mut(n)) else {
            let message = format!("{} has no vCPU `{}`", section.header(), shorten(&entry.key));
            let cure = canonical.map_or_else(String::new, |n| more_vcpus(n as u64));
            errors.add(entry.key_place, message, expected_indices(vcpus.len()) + &cure);
            continue;
        };
        let Some(inner) = Section::of(entry, info, errors) else { continue };
        inner.check_keys(errors);
        *vcpu = unit_params(inner, above, vcpu.clone(), errors);
    }
}

/// The guest's scheduler: a name, or a table of `policy` and options.
pub(crate) fn guest(section: Section<'_>, errors: &mut Errors) -> Option<PolicyDraft> {
    let Some(entry) = section.get("guest") else {
        let Some(info) = registry::find(section.default("guest")) else {
            errors.add(section.place, "`guest` is missing", "expected the name of a policy");
            return None;
        };
        return Some(policy_options(info, None, section.place, &[], errors));
    };
    let Value::Table(table) = &entry.node.value else {
        let info = entry.policy(errors)?;
        return Some(policy_options(info, None, entry.node.place, &[], errors));
    };
    let Some(name) = table.get("policy") else {
        errors.add(entry.key_place, "`policy` is missing in `guest`", "expected the name of a policy");
        return None;
    };
    let info = name.policy(errors)?;
    Some(policy_options(info, Some(entry), name.node.place, &["policy"], errors))
}
