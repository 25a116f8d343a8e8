//! The pools that a live run schedules.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, PoolIx};

use super::error::Error;

/// The pools that have domains.
pub(super) fn pools_with_domains(host: &Host) -> Result<Vec<PoolIx>, Error> {
    pools_with(host, |_| true)
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
