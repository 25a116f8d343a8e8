//! Periods and priorities to start from.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::index::PoolIx;
use punctual_sched::{Duration, UnitParams};

use super::super::chosen::{has_priorities, keeps_budgets};
use super::super::options::{Options, Periods};
use super::super::trial::{accepts, params_mut};
use super::blocks::{Blocks, pool_of};
use crate::inputs::{Index, UnitIx, params};
use crate::needs::Need;

/// Candidates whatever the deadlines.
const STEPS_MS: [u64; 6] = [1, 2, 5, 10, 20, 50];

/// Hosts with the priorities and the periods to choose from, the file's first.
pub(super) fn variants(host: &Host, index: &Index, blocks: &Blocks, options: &Options) -> Vec<Host> {
    let deadlines = deadlines(host, blocks);
    let given = with_priorities(host, index, &deadlines, false);
    let mut all = vec![given.clone()];
    if options.free_priorities {
        all.push(with_priorities(host, index, &deadlines, true));
    }
    if let Periods::Free(candidates) = &options.periods {
        let longest = deadlines.values().copied().max().unwrap_or_default();
        let steps = || STEPS_MS.map(Duration::from_ms).into_iter().filter(|step| *step <= longest).collect();
        let candidates: Vec<Duration> = if candidates.is_empty() { steps() } else { candidates.clone() };
        let bases = all.clone();
        for period in candidates {
            all.extend(bases.iter().map(|base| with_period(base, blocks, period)));
        }
    }
    let mut distinct: Vec<Host> = Vec::new();
    for host in all {
        if !distinct.contains(&host) {
            distinct.push(host);
        }
    }
    distinct
}

/// By unit: the shortest deadline that depends on it.
fn deadlines(host: &Host, blocks: &Blocks) -> BTreeMap<UnitIx, Duration> {
    let mut shortest: BTreeMap<UnitIx, Duration> = BTreeMap::new();
    for (need, at) in &blocks.needs {
        let deadline = match need {
            Need::Task(task) => host.tasks[task.0].deadline(),
            Need::Flow(flow) => host.flows[*flow].deadline,
            Need::Chain(chain) => Some(host.chains[*chain].deadline),
        };
        let Some(deadline) = deadline else { continue };
        for unit in at.iter().flat_map(|at| &blocks.all[*at].units) {
            let of = shortest.entry(*unit).or_insert(deadline);
            *of = deadline.min(*of);
        }
    }
    shortest
}

/// The host with priorities by deadline where it has none; `all`: everywhere.
fn with_priorities(host: &Host, index: &Index, deadlines: &BTreeMap<UnitIx, Duration>, all: bool) -> Host {
    let mut result = host.clone();
    for pool in (0..host.pools.len()).map(PoolIx) {
        let info = host.pools[pool.0].policy.info;
        if !keeps_budgets(info) || !has_priorities(info) {
            continue;
        }
        let units = || index.in_pool(pool).all();
        let given = |unit: &UnitIx| params(host, *unit).priority.filter(|_| !all);
        let mut free: Vec<UnitIx> = units().filter(|unit| given(unit).is_none()).collect();
        // Stable: equals in the file's order.
        free.sort_by_key(|unit| deadlines.get(unit).copied().unwrap_or(Duration::MAX));
        let first = units().filter_map(|unit| given(&unit)).max().map_or(1, |last| last.saturating_add(1));
        for (priority, unit) in (first..=u32::MAX).zip(free) {
            params_mut(&mut result, unit).priority = Some(priority);
        }
    }
    follow(host, &mut result);
    result
}

/// Interfaces with the priority of their domain keep that of their domain.
fn follow(before: &Host, after: &mut Host) {
    for interface in after.networks.iter_mut().flat_map(|network| &mut network.interfaces) {
        let first = before.domains[interface.domain.0].vcpus.start;
        let own = before.vcpus[first].params.priority;
        if interface.params.priority == own {
            interface.params.priority = after.vcpus[first].params.priority;
        }
    }
}

/// The host with this period for the units that are chosen together, where the policy accepts it.
fn with_period(host: &Host, blocks: &Blocks, period: Duration) -> Host {
    let mut result = host.clone();
    for unit in blocks.together() {
        let own = params(host, unit);
        let budget = own.budget.map(|budget| budget.min(period));
        let changed = UnitParams { period: Some(period), budget, ..own.clone() };
        if accepts(host, pool_of(host, unit), &changed).is_ok() {
            *params_mut(&mut result, unit) = changed;
        }
    }
    result
}
