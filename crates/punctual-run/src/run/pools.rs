//! The pools that a live run schedules.

use punctual_linux::partition::{self, Kind};
use punctual_linux::preflight;
use punctual_model::Host;
use punctual_model::host::{Domain, Parent};
use punctual_model::index::{DomainIx, PoolIx};

use super::error::Error;
use super::live_run::processors;
use crate::config::RunConfig;

/// The pools that have domains.
pub(super) fn pools_with_domains(host: &Host) -> Result<Vec<PoolIx>, Error> {
    pools_with(host, |_| true)
}

/// The partition that a pool is to be. Where the kernel is to spread threads over several processors, it must
/// balance their load.
pub(super) fn partition(host: &Host, ix: PoolIx, config: &RunConfig<'_>) -> Option<Kind> {
    let pool = &host.pools[ix.0];
    let is_best_effort = |domain: &&Domain| {
        domain.parent == Parent::Pool(ix)
            && host.vcpus[domain.vcpus.clone()].iter().any(|vcpu| vcpu.params.best_effort)
    };
    let spreads = config.linux.is_some() || host.domains.iter().any(|domain| is_best_effort(&domain));
    let kind = if pool.processors.len() > 1 && spreads { Kind::Root } else { Kind::Isolated };
    (pool.isolate || config.isolate).then_some(kind)
}

/// Can the partitions of these pools be made?
pub(super) fn check_partitions(host: &Host, pools: &[PoolIx], config: &RunConfig<'_>) -> Result<(), Error> {
    if !pools.iter().any(|ix| partition(host, *ix, config).is_some()) {
        return Ok(());
    }
    let mount = preflight::parking()?;
    partition::check(&mount, &processors(host, pools), &preflight::online()).map_err(Error::NoPartitions)
}

/// The pools of domains that have units. Tasks of a pool itself have no threads on a real host.
pub(super) fn pools_with(host: &Host, has_units: impl Fn(DomainIx) -> bool) -> Result<Vec<PoolIx>, Error> {
    let nested = host.domains.iter().find(|domain| matches!(domain.parent, Parent::Domain(_)));
    if let Some(domain) = nested {
        return Err(Error::Nested { domain: domain.name.clone() });
    }
    let of_pool = host.tasks.iter().find(|task| matches!(task.parent, Parent::Pool(_)));
    if let Some(task) = of_pool {
        return Err(Error::PoolTask { task: task.name.clone() });
    }
    let is_used = |pool: &PoolIx| {
        let mut domains = host.domains.iter().enumerate();
        domains.any(|(ix, domain)| host.pool_of(domain.parent) == *pool && has_units(DomainIx(ix)))
    };
    let pools: Vec<PoolIx> = (0..host.pools.len()).map(PoolIx).filter(is_used).collect();
    if pools.is_empty() { Err(Error::NoDomain) } else { Ok(pools) }
}
