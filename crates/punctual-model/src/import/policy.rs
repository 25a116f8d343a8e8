//! The policy of each pool: the one that fits the files or that the user chose, and what it cannot hold.

use std::collections::BTreeSet;

use punctual_sched::UnitParams;
use punctual_sched::registry::{self, PolicyInfo};

use super::draft::{DomainDraft, HostDraft, Owner, PoolDraft, TaskDraft, UnitDraft, WorkDraft};
use super::input::Input;
use super::settings::{Format, Settings};

/// Gives the pools the chosen policy; notes the parameters that a policy does not read.
pub(super) fn choose(input: &mut Input, draft: &mut HostDraft, format: Format, settings: &Settings<'_>) {
    let HostDraft { pools, domains, .. } = draft;
    for (n, pool) in pools.iter_mut().enumerate() {
        if let Some(policy) = settings.policy.filter(|policy| policy.name != pool.policy) {
            pool.policy = policy.name;
            pool.options.clear();
        }
        let Some(policy) = registry::find(pool.policy) else { continue };
        // Systems of CARTS without interfaces ask for budgets; those of others have limits at most.
        if format != Format::Carts && needs_budget(policy) {
            hogs_to_domains(pool, n, domains);
            without_budget(input, policy, n, domains);
        }
        let members = || {
            let in_pool = |d: &&DomainDraft| matches!(d.owner, Owner::Pool(pool) if pool == n);
            domains.iter().filter(in_pool).flat_map(|d| &d.vcpus)
        };
        // Of CARTS, import itself gives more parameters than one policy reads.
        if format != Format::Carts {
            unread(input, policy, pool, members());
        }
    }
}

fn needs_budget(policy: &PolicyInfo) -> bool {
    policy.unit_param(UnitParams::BUDGET).is_some_and(|budget| budget.default.is_none())
}

/// Busy loops directly in a pool have no budget; as the task of a domain they can be best effort.
fn hogs_to_domains(pool: &mut PoolDraft, n: usize, domains: &mut Vec<DomainDraft>) {
    let is_bare = |task: &TaskDraft| matches!(task.work, WorkDraft::Hog { .. }) && task.unit.budget.is_none();
    let (hogs, tasks): (Vec<TaskDraft>, Vec<TaskDraft>) = pool.tasks.drain(..).partition(is_bare);
    pool.tasks = tasks;
    domains.extend(hogs.into_iter().map(|hog| DomainDraft::of_task(hog, n)));
}

/// Units without a budget under a policy that needs one are best effort.
fn without_budget(input: &mut Input, policy: &PolicyInfo, pool: usize, domains: &mut [DomainDraft]) {
    for domain in domains.iter_mut().filter(|d| matches!(d.owner, Owner::Pool(n) if n == pool)) {
        let mut bare = domain.vcpus.iter_mut().filter(|v| v.budget.is_none() && !v.best_effort).peekable();
        if bare.peek().is_some() {
            let text = format!("{}: without a budget under policy {}: best effort", domain.name, policy.name);
            input.note(domain.place, text);
        }
        bare.for_each(|vcpu| vcpu.best_effort = true);
    }
}

/// Notes the parameters that have no effect.
fn unread<'d>(
    input: &mut Input,
    policy: &PolicyInfo,
    pool: &'d PoolDraft,
    units: impl Iterator<Item = &'d UnitDraft>,
) {
    let (mut of_policy, mut of_best_effort) = (BTreeSet::new(), BTreeSet::new());
    for unit in units.chain(pool.tasks.iter().map(|task| &task.unit)) {
        if unit.best_effort {
            of_best_effort.extend(unit.given());
        } else {
            of_policy.extend(unit.given().filter(|name| !policy.reads(name)));
        }
    }
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    if !of_policy.is_empty() {
        let text = format!("policy {} does not read {}", policy.name, list(of_policy));
        input.note(pool.place, format!("pool {}: {text}, which other policies do", pool.name));
    }
    if !of_best_effort.is_empty() {
        let text = format!("best-effort units have no {}", list(of_best_effort));
        input.note(pool.place, format!("pool {}: {text}: they take turns", pool.name));
    }
}
