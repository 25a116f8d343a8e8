//! Domains, tasks and processors as exports name them.

use punctual_sched::{CpuSet, UnitParams};

use crate::host::{Domain, Host, Parent, Pool};
use crate::index::PoolIx;

/// The domains that are in a pool, with the pool.
pub(super) fn domains(host: &Host) -> impl Iterator<Item = (&Domain, PoolIx)> {
    host.domains.iter().filter_map(|d| match d.parent {
        Parent::Pool(pool) => Some((d, pool)),
        Parent::Domain(_) => None,
    })
}

/// The name of a pool's task in results.
pub(super) fn task_name(pool: &Pool, task: &str) -> String {
    format!("{}/{task}", pool.name)
}

/// The machine's numbers of the processors that a unit of `pool` may use, ascending.
pub(super) fn processors(pool: &Pool, affinity: Option<&CpuSet>) -> Vec<usize> {
    match affinity {
        Some(set) => set.iter().map(|cpu| pool.processors[cpu.index()]).collect(),
        None => pool.processors.clone(),
    }
}

/// Do all units have the same value?
pub(super) fn common<T: PartialEq>(units: &[&UnitParams], value: impl Fn(&UnitParams) -> T) -> bool {
    units.windows(2).all(|pair| value(pair[0]) == value(pair[1]))
}
