//! Pools: their processors, policies and tasks.

use std::collections::BTreeMap;

use punctual_sched::registry;

use super::draft::PoolDraft;
use super::task::tasks;
use super::unit::of_pool;
use crate::file::fields::{Problems, Tab, header};
use crate::file::options::{Chosen, check_options, policy_options};

/// Reads the pools of a machine with so many `processors`.
pub(crate) fn pools<'t>(root: Tab<'t>, processors: usize, problems: &mut Problems) -> Vec<PoolDraft<'t>> {
    let tabs = problems.named(root, "pool");
    if let (Some(entry), true) = (root.get("pool"), tabs.is_empty() && problems.list.is_empty()) {
        problems.add(&entry.key_place, "there is no pool", "expected at least one [pool.NAME] with a policy");
    }
    let mut owner: BTreeMap<usize, String> = BTreeMap::new();
    let mut pools = Vec::new();
    for tab in &tabs {
        let own = pool_processors(*tab, tabs.len() == 1, processors, &mut owner, problems);
        let chosen = pool_policy(*tab, own.len(), problems);
        let tasks = tasks(*tab, &of_pool(&own, processors), problems);
        pools.push(PoolDraft { name: tab.name.into(), processors: own, chosen, tasks });
    }
    pools
}

/// The pool's processors, ascending, and entered in `owner`.
fn pool_processors(
    tab: Tab<'_>,
    only: bool,
    processors: usize,
    owner: &mut BTreeMap<usize, String>,
    problems: &mut Problems,
) -> Vec<usize> {
    let Some(entry) = tab.get("processors") else {
        if !only {
            let message = format!("`processors` is missing in {}", header(tab));
            problems.add(tab.place, message, "several pools share the machine: each lists its processors");
        }
        return (0..processors).collect();
    };
    let Some(numbers) = problems.numbers(entry, processors, "processors of the machine") else {
        return (0..processors).collect();
    };
    for (n, place) in &numbers {
        if let Some(other) = owner.insert(*n, tab.name.into()) {
            let message = format!("processor {n} is in pool `{other}` already");
            problems.add(place, message, "expected each processor in at most one pool");
        }
    }
    let mut own: Vec<usize> = numbers.into_iter().map(|(n, _)| n).collect();
    own.sort_unstable();
    own
}

/// The pool's policy, after validating the options of every policy that the pool has a table for.
fn pool_policy(tab: Tab<'_>, cpus: usize, problems: &mut Problems) -> Option<Chosen> {
    let entry = tab.get("policy");
    let info = entry.and_then(|e| problems.policy_of(e));
    let mut chosen = None;
    for policy in registry::policies() {
        let options = tab.table.get(policy.name);
        if options.is_none() && info != Some(policy) {
            continue;
        }
        let place = options.or(entry).map_or(tab.place, |e| &e.key_place);
        let built = policy_options(policy, options, place, &[], problems);
        check_options(&built, cpus, problems);
        if info == Some(policy) {
            chosen = Some(built);
        }
    }
    chosen
}
