//! Pools: their processors, policies and tasks.

use punctual_sched::registry;

use super::draft::PoolDraft;
use super::place::{Machine, PoolPlace, pool_places};
use super::task::tasks;
use super::unit::of_pool;
use crate::file::error::Errors;
use crate::file::options::{PolicyDraft, check_options, policy_options};
use crate::file::section::Section;

/// Reads the pools of a machine.
pub(crate) fn pools<'t>(root: Section<'t>, machine: Machine<'_>, errors: &mut Errors) -> Vec<PoolDraft<'t>> {
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
    let (_, places) = pool_places(root, &sections, machine, Vec::new(), errors);
    let mut pools = Vec::new();
    for (section, place) in sections.iter().zip(places) {
        let PoolPlace { processors, choice } = place;
        let chosen = pool_policy(*section, processors.len(), errors);
        let tasks = tasks(*section, &of_pool(&processors, machine.processors), errors);
        let isolate = section.flag("isolate", errors).unwrap_or_default();
        pools.push(PoolDraft { name: section.name.into(), processors, choice, chosen, isolate, tasks });
    }
    pools
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
