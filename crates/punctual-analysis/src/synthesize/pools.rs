//! One pool after the other.

use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::PoolIx;
use punctual_sched::registry::Placement as PolicyPlacement;
use punctual_sched::{CpuId, CpuSet, Duration};

use super::error::{Error, Shortfall};
use super::group;
use super::options::Options;
use super::place;
use super::search::Solution;
use super::trial::{Beside, Trial, params_mut};
use crate::inputs::{Index, Inputs, name, only_processor};
use crate::pool::{Group, groups};
use crate::watch::Watch;

/// Does the policy put each unit on one processor by itself?
fn is_partitioned(host: &Host, pool: PoolIx) -> bool {
    host.pools[pool.0].policy.info.placement == PolicyPlacement::Partitioned
}

/// Solves one pool in place; is the solution exact?
pub(super) fn solve_pool(
    result: &mut Host,
    pool: PoolIx,
    options: &Options,
    beside: &Beside<'_>,
    watch: Watch<'_>,
) -> Result<bool, Error> {
    let index = Index::new(result);
    let widened = widened(result, options.margin_ppm);
    let mut trial = Trial::new(&widened, &index, pool, options, beside, watch);
    if let Some((unit, why)) = trial.refusal() {
        let name = name(result, unit).to_owned();
        return Err(Error::Unmet { name, why: vec![Shortfall::Periods(why)] });
    }
    let (solutions, exact) = solutions(&mut trial, pool)?;
    let processors = result.pools[pool.0].processors.len();
    let tie = is_partitioned(result, pool) && processors > 1;
    for (home, solution) in solutions.into_iter().enumerate() {
        for (rank, placed) in solution.units.iter().enumerate() {
            let params = params_mut(result, placed.unit);
            params.budget = Some(placed.budget);
            params.period = Some(placed.period);
            if solution.renumber {
                params.priority = Some(rank as u32 + 1);
            }
            if tie && only_processor(params.affinity.as_ref(), processors).is_none() {
                let mut set = CpuSet::new(processors);
                set.insert(CpuId(home as u32));
                params.affinity = Some(set);
            }
        }
    }
    Ok(exact)
}

/// A solution for each processor of a partitioned pool, or for each group of another; and are they exact?
fn solutions(trial: &mut Trial<'_>, pool: PoolIx) -> Result<(Vec<Solution>, bool), Error> {
    let host = trial.given();
    if is_partitioned(host, pool) {
        return place::partitioned(trial);
    }
    let groups = groups(Inputs::new(host, trial.index()), pool)
        .map_err(|reason| Error::Unmet { name: host.pools[pool.0].name.clone(), why: vec![reason.into()] })?;
    let mut exact = true;
    let mut solutions = Vec::new();
    for Group { units, processors } in groups {
        let solution = group::solve(trial, &units, processors)?;
        exact &= solution.exact;
        solutions.push(solution);
    }
    Ok((solutions, exact))
}

/// The host with costs that have grown by this many millionths, rounded up.
pub(super) fn widened(host: &Host, margin_ppm: u64) -> Host {
    let mut host = host.clone();
    for task in &mut host.tasks {
        if let Work::Jobs { cost, .. } | Work::Served { cost, .. } = &mut task.work {
            let grown = u128::from(cost.max.as_ns()) * u128::from(1_000_000 + margin_ppm);
            let grown = u64::try_from(grown.div_ceil(1_000_000));
            cost.max = grown.map_or(Duration::MAX, Duration::from_ns);
        }
    }
    host
}
