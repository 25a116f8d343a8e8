//! Pools: their processors, policies and tasks.

use std::collections::BTreeMap;

use punctual_sched::registry;

use super::draft::PoolDraft;
use super::task::tasks;
use super::unit::of_pool;
use crate::file::error::Errors;
use crate::file::options::{PolicyDraft, check_options, policy_options};
use crate::file::section::Section;

/// Reads the pools of a machine with so many `processors`.
pub(crate) fn pools<'t>(root: Section<'t>, processors: usize, errors: &mut Errors) -> Vec<PoolDraft<'t>> {
    let sections = root.named("pool", errors);
    if root.get("pool").is_none() {
        let message = format!("`pool` is missing in {}", root.header());
        let expected = "expected at least one [pool.NAME]: Processors scheduled together by one policy \
                        (Xen: a cpupool).";
        errors.add(root.place, message, expected);
    }
    if let (Some(entry), true) = (root.get("pool"), sections.is_empty() && errors.count() == 0) {
        errors.add(entry.key_place, "there is no pool", "expected at least one [pool.NAME] with a policy");
    }
    let mut owner: BTreeMap<usize, String> = BTreeMap::new();
    let mut pools = Vec::new();
    for section in &sections {
        let own = pool_processors(*section, sections.len() == 1, processors, &mut owner, errors);
        let chosen = pool_policy(*section, own.len(), errors);
        let tasks = tasks(*section, &of_pool(&own, processors), errors);
        pools.push(PoolDraft { name: section.name.into(), processors: own, chosen, tasks });
    }
    pools
}

/// The pool's processors, ascending, and entered in `owner`.
pub(crate) fn pool_processors(
    section: Section<'_>,
    only: bool,
    processors: usize,
    owner: &mut BTreeMap<usize, String>,
    errors: &mut Errors,
) -> Vec<usize> {
    let Some(entry) = section.get("processors") else {
        if !only {
            let message = format!("`processors` is missing in {}", section.header());
            errors.add(section.place, message, "several pools share the machine: each lists its processors");
        }
        return (0..processors).collect();
    };
    let Some(numbers) = entry.indices(processors, "processors of the machine", errors) else {
        return (0..processors).collect();
    };
    for (n, place) in &numbers {
        if let Some(other) = owner.insert(*n, section.name.into()) {
            let message = format!("processor {n} is in pool `{other}` already");
            errors.add(*place, message, "expected each processor in at most one pool");
        }
    }
    let mut own: Vec<usize> = numbers.into_iter().map(|(n, _)| n).collect();
    own.sort_unstable();
    own
}

/// The pool's policy, after validating the options of every policy that the pool has a table for.
pub(crate) fn pool_policy(section: Section<'_>, cpus: usize, errors: &mut Errors) -> Option<PolicyDraft> {
    let entry = section.get("policy");
    let info = entry.and_then(|e| e.policy(errors));
    let mut chosen = None;
    for policy in registry::policies() {
        let options = section.table.get(policy.name);
        if options.is_none() && info != Some(policy) {
            continue;
        }
        let place = options.or(entry).map_or(section.place, |e| e.key_place);
        let built = policy_options(policy, options, place, &[], errors);
        check_options(&built, cpus, errors);
        if info == Some(policy) {
            chosen = Some(built);
        }
    }
    chosen
}
