//! The units of a pool by the processors that they share.

use punctual_model::index::PoolIx;
use punctual_sched::registry::{Placement, SchedulabilityTest};
use punctual_sched::{CpuId, Instant};

use crate::inputs::{Inputs, UnitIx, only_processor};
use crate::reason::Reason;

/// Global tests compare every unit with every other, several times; beyond this many only the density test is
/// tried.
pub(super) const GLOBAL_MAX: usize = 2_000;

/// Units that share processors with each other and with no others.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) units: Vec<UnitIx>,
    pub(crate) processors: usize,
}

/// The pool's units by the processors that they share.
///
/// # Errors
/// Why they do not fall into groups that a test knows.
pub(crate) fn groups(inputs: Inputs<'_>, pool: PoolIx) -> Result<Vec<Group>, Reason> {
    let info = inputs.pool(pool).policy.info;
    let units: Vec<UnitIx> = inputs.index.in_pool(pool).all().collect();
    if info.placement == Placement::Partitioned {
        return homes(inputs, pool, &units).map(|homes| by_processor(inputs, pool, &units, homes));
    }
    let processors = inputs.pool(pool).processors.len();
    let affinity = |unit: &UnitIx| inputs.params(*unit).affinity.as_ref();
    let only: Option<Vec<usize>> = units.iter().map(|u| only_processor(affinity(u), processors)).collect();
    if let Some(only) = only {
        return Ok(by_processor(inputs, pool, &units, only));
    }
    let is_everywhere = |unit: &UnitIx| {
        affinity(unit).is_none_or(|set| (0..processors).all(|p| set.contains(CpuId(p as u32))))
    };
    if units.iter().all(is_everywhere) || matches!(info.test, SchedulabilityTest::None(_)) {
        return Ok(vec![Group { units, processors }]);
    }
    Err(Reason::MixedAffinities)
}

/// The processor that each unit of a partitioned policy lives on: the policy itself is asked.
fn homes(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Result<Vec<usize>, Reason> {
    let pool = inputs.pool(pool);
    let policy = pool.policy.info.build(pool.processors.len(), &pool.policy.options);
    let mut policy = policy.map_err(|_| Reason::NotAccepted)?;
    let mut ids = Vec::new();
    for unit in units {
        let id = policy.insert(Instant::ZERO, inputs.params(*unit));
        ids.push(id.map_err(|_| Reason::NotAccepted)?);
    }
    let home = |id| policy.account(id).home.map(CpuId::index).ok_or(Reason::NotAccepted);
    ids.into_iter().map(home).collect()
}

/// One group for each processor, also for those without units.
fn by_processor(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx], homes: Vec<usize>) -> Vec<Group> {
    let none = Group { units: Vec::new(), processors: 1 };
    let mut groups = vec![none; inputs.pool(pool).processors.len()];
    units.iter().zip(homes).for_each(|(unit, home)| groups[home].units.push(*unit));
    groups
}
