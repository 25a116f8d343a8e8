//! Domains: where they run, their vCPUs, guests and tasks.

use std::collections::BTreeMap;

use punctual_sched::registry;

use super::draft::{DomainDraft, PoolDraft};
use super::task::tasks;
use super::unit::{Processors, Unit, UnitKind, of_domain, of_pool, unit_params};
use crate::file::error::nearest;
use crate::file::fields::{Problems, Tab, expected_names, header, shorten};
use crate::file::key::Kind;
use crate::file::limits::{NESTING_MAX, UNITS_MAX};
use crate::file::live;
use crate::file::options::{Chosen, check_options, policy_options};
use crate::file::tree::Value;
use crate::host::Parent;
use crate::index::{DomainIx, PoolIx};
use crate::live::Live;

/// The domains in their final order: the file's, but each after the one it runs in.
pub(crate) fn domains<'t>(
    root: Tab<'t>,
    processors: usize,
    pools: &[PoolDraft<'t>],
    problems: &mut Problems,
) -> Vec<DomainDraft<'t>> {
    let tabs = problems.named(root, "domain");
    let by_name: BTreeMap<&str, usize> = tabs.iter().enumerate().map(|(i, t)| (t.name, i)).collect();
    for tab in tabs.iter().filter(|t| pools.iter().any(|p| p.name == t.name)) {
        let message = format!("a pool is called `{}` too", tab.name);
        problems.add(tab.place, message, "expected different names for pools and domains");
    }
    let outer: Vec<Option<usize>> = tabs.iter().map(|t| outer_domain(*t, &by_name, problems)).collect();
    let Some(order) = outer_first(&tabs, &outer, problems) else { return Vec::new() };
    let mut final_index = vec![0; tabs.len()];
    order.iter().enumerate().for_each(|(new, &old)| final_index[old] = new);
    let counts: Vec<usize> = tabs.iter().map(|t| problems.count_or(*t, "vcpus") as usize).collect();
    let total: usize = counts.iter().sum();
    if total > UNITS_MAX {
        let place = root.get("domain").map_or(root.place, |e| &e.key_place);
        problems.add(
            place,
            format!("the domains have {total} vCPUs"),
            format!("expected at most {UNITS_MAX}"),
        );
        return Vec::new();
    }
    let mut domains = Vec::new();
    for old in order {
        let draft = match outer[old] {
            Some(outer) => {
                let above = of_domain(counts[outer], "vCPUs of the outer domain");
                live::read::refuse_nested(tabs[old], problems);
                domain(tabs[old], Parent::Domain(DomainIx(final_index[outer])), counts[old], &above, problems)
            }
            None => {
                let Some(pool) = domain_pool(tabs[old], pools, problems) else { continue };
                let above = of_pool(&pools[pool].processors, processors);
                let live = live::read::live(tabs[old], counts[old], processors, problems);
                let draft = domain(tabs[old], Parent::Pool(PoolIx(pool)), counts[old], &above, problems);
                draft.map(|draft| DomainDraft { live, ..draft })
            }
        };
        domains.extend(draft);
    }
    domains
}

/// The domain that this one runs in.
fn outer_domain(tab: Tab<'_>, by_name: &BTreeMap<&str, usize>, problems: &mut Problems) -> Option<usize> {
    let name = problems.text(tab, "in")?;
    let entry = tab.get("in")?;
    if let Some(pool) = tab.get("pool") {
        let message = format!("{} has both `pool` and `in`", header(tab));
        problems.add(
            &pool.key_place,
            message,
            "expected one of them: a nested domain follows its outer domain",
        );
    }
    let found = by_name.get(name).copied();
    if found.is_none() {
        let message = format!("there is no domain `{}`", shorten(name));
        let expected = expected_names(by_name.keys().copied());
        problems.add_nearest(&entry.node.place, message, expected, nearest(name, by_name.keys().copied()));
    }
    found
}

/// An order in which every domain stands after its outer one, otherwise that of the file.
fn outer_first(tabs: &[Tab<'_>], outer: &[Option<usize>], problems: &mut Problems) -> Option<Vec<usize>> {
    let mut order = Vec::with_capacity(tabs.len());
    let mut placed = vec![false; tabs.len()];
    let before = problems.list.len();
    for (start, tab) in tabs.iter().enumerate() {
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
        // A cycle is told once, by its first domain.
        let first = outer[at] != Some(start) || chain.iter().all(|&d| d >= start);
        if let (Some(next), Some(entry), true) = (outer[at], tab.get("in"), first) {
            let names: Vec<&str> = chain.iter().chain([&next]).map(|&d| tabs[d].name).collect();
            let message = match next == start {
                true => format!("domain `{}` runs inside itself: {}", tab.name, names.join(" in ")),
                false => format!("domain `{}` is nested more than {NESTING_MAX} deep", tab.name),
            };
            problems.add(&entry.node.place, message, "expected a chain of domains that ends at a pool");
        }
        for &d in chain.iter().rev() {
            if !std::mem::replace(&mut placed[d], true) {
                order.push(d);
            }
        }
    }
    (problems.list.len() == before).then_some(order)
}

/// The pool of a domain that is not nested.
fn domain_pool(tab: Tab<'_>, pools: &[PoolDraft<'_>], problems: &mut Problems) -> Option<usize> {
    let names = || pools.iter().map(|p| p.name.as_str());
    let Some(entry) = tab.get("pool") else {
        if pools.len() > 1 && tab.get("in").is_none() {
            let message = format!("`pool` is missing in {}", header(tab));
            problems.add(tab.place, message, format!("there are several pools; {}", expected_names(names())));
        }
        return (!pools.is_empty()).then_some(0);
    };
    let name = problems.text(tab, "pool")?;
    let found = names().position(|n| n == name);
    if found.is_none() {
        let message = format!("there is no pool `{}`", shorten(name));
        problems.add_nearest(&entry.node.place, message, expected_names(names()), nearest(name, names()));
    }
    found
}

fn domain<'t>(
    tab: Tab<'t>,
    parent: Parent,
    count: usize,
    above: &Processors<'_>,
    problems: &mut Problems,
) -> Option<DomainDraft<'t>> {
    let common = unit_params(tab, above, Unit::new(tab.place, UnitKind::Vcpu), problems);
    let mut vcpus = vec![common; count];
    single_vcpus(tab, &mut vcpus, above, problems);
    let guest = guest(tab, problems);
    let tasks = tasks(tab, &of_domain(count, "vCPUs of the domain"), problems);
    let guest = guest?;
    check_options(&guest, count, problems);
    Some(DomainDraft { name: tab.name.into(), parent, vcpus, guest, live: Live::default(), tasks })
}

/// `vcpu.N = { ... }`: parameters of single vCPUs.
fn single_vcpus(tab: Tab<'_>, vcpus: &mut [Unit], above: &Processors<'_>, problems: &mut Problems) {
    let Some(entry) = tab.get("vcpu") else { return };
    let Some(Kind::Numbered(info)) = tab.info.key("vcpu").map(|k| k.kind) else {
        unreachable!("vcpu is numbered")
    };
    let Value::Table(by_number) = &entry.node.value else {
        problems.add(
            &entry.place(),
            "`vcpu` is no table",
            "expected for example vcpu.0 = { affinity = [1] }",
        );
        return;
    };
    for entry in &by_number.entries {
        let canonical = entry.key.parse::<usize>().ok().filter(|n| n.to_string() == entry.key);
        let Some(vcpu) = canonical.and_then(|n| vcpus.get_mut(n)) else {
            let message = format!("{} has no vCPU `{}`", header(tab), shorten(&entry.key));
            problems.add(
                &entry.key_place,
                message,
                format!("expected a number from 0 to {}", vcpus.len() - 1),
            );
            continue;
        };
        let Some(inner) = problems.table_of(entry, info) else { continue };
        problems.check_keys(inner);
        *vcpu = unit_params(inner, above, vcpu.clone(), problems);
    }
}

/// The guest's scheduler: a name, or a table of `policy` and options.
fn guest(tab: Tab<'_>, problems: &mut Problems) -> Option<Chosen> {
    let Some(entry) = tab.get("guest") else {
        let Some(info) = registry::find(tab.default("guest")) else {
            problems.add(tab.place, "`guest` is missing", "expected the name of a policy");
            return None;
        };
        return Some(policy_options(info, None, tab.place, &[], problems));
    };
    let Value::Table(table) = &entry.node.value else {
        let info = problems.policy_of(entry)?;
        return Some(policy_options(info, None, &entry.node.place, &[], problems));
    };
    let Some(name) = table.get("policy") else {
        problems.add(&entry.key_place, "`policy` is missing in `guest`", "expected the name of a policy");
        return None;
    };
    let info = problems.policy_of(name)?;
    Some(policy_options(info, Some(entry), &name.node.place, &["policy"], problems))
}
