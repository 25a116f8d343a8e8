//! How many hosts any plan needs at least.

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::fleet::HostKind;

use crate::patterns::{self, Weights};
use crate::problem::{Problem, WHOLE};

/// What is known about a fleet's need of hosts.
pub(crate) struct Bound {
    /// By the name of the pool: weights of units.
    pub(crate) weights: BTreeMap<String, Weights>,
}

impl Bound {
    /// By shares, memory and groups alone.
    pub(crate) fn plain() -> Self {
        Bound { weights: BTreeMap::new() }
    }

    /// With weights as well.
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let kinds = &problem.fleet.kinds;
        let names: BTreeSet<&String> =
            kinds.iter().flat_map(|kind| kind.template.pools.iter().map(|pool| &pool.name)).collect();
        let of = |name: &String| {
            let place = |kind: &HostKind| kind.template.pools.iter().position(|pool| pool.name == *name);
            let places: Vec<Option<usize>> = kinds.iter().map(place).collect();
            patterns::weights(problem, &places).map(|weights| (name.clone(), weights))
        };
        Bound { weights: names.into_iter().filter_map(of).collect() }
    }

    /// How many hosts these VMs need at least. A set of VMs that is guaranteed takes at most the whole of its
    /// processors, so shares, memory and groups bound the number whatever the analysis says; weights of units
    /// say what it says of single processors.
    pub(crate) fn hosts(&self, problem: &Problem<'_>, vms: &[usize]) -> usize {
        let mut least = hosts(problem, vms);
        for (pool, vms) in by_pool(problem, vms) {
            if let Some(weights) = self.weights.get(&pool) {
                least = least.max(by_weight(problem, &pool, &vms, weights));
            }
        }
        least
    }
}

/// How many hosts have processors for units of such weights.
fn by_weight(problem: &Problem<'_>, pool: &str, vms: &[usize], weights: &Weights) -> usize {
    let fleet = problem.fleet;
    let processors = |kind: usize| {
        let of = fleet.kinds[kind].template.pools.iter().find(|of| of.name == pool);
        of.map_or(0, |of| of.processors.len() as u64)
    };
    let capacities = fleet.hosts.iter().map(|host| processors(host.kind) * weights.most[host.kind]);
    let units = |vm: usize| {
        let of = problem.demands.iter().filter_map(|of| Some(of[vm].as_ref()?.units));
        of.min().unwrap_or(0) as u64
    };
    let asked = vms.iter().map(|vm| fleet.vms[*vm].kind).map(|kind| units(kind) * weights.unit[kind]);
    fill(capacities.collect(), &asked.collect::<Vec<u64>>())
}

fn hosts(problem: &Problem<'_>, vms: &[usize]) -> usize {
    let fleet = problem.fleet;
    let memory = |host: usize| fleet.kind_of(host).memory_mib;
    let asked: Vec<u64> = vms.iter().map(|vm| fleet.vm_kind(*vm).memory_mib).collect();
    let capacities: Vec<u64> = (0..fleet.hosts.len()).map(memory).collect();
    let largest = capacities.iter().copied().max().unwrap_or_default();
    let mut least = usize::from(!vms.is_empty());
    least = least.max(fill(capacities, &asked)).max(packed(asked, largest));
    for (pool, vms) in by_pool(problem, vms) {
        least = least.max(of_pool(problem, &pool, &vms));
    }
    least.max(largest_group(problem, vms))
}

/// The VMs by the name of their pool.
fn by_pool(problem: &Problem<'_>, vms: &[usize]) -> BTreeMap<String, Vec<usize>> {
    let mut pools: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for vm in vms {
        let kinds = problem.fleet.kinds.iter().zip(&problem.demands);
        let mut known = kinds.filter_map(|(kind, demands)| {
            let demand = demands[problem.fleet.vms[*vm].kind].as_ref()?;
            Some(&kind.template.pools[demand.pool].name)
        });
        if let Some(name) = known.next() {
            pools.entry(name.clone()).or_default().push(*vm);
        }
    }
    pools
}

fn of_pool(problem: &Problem<'_>, pool: &str, vms: &[usize]) -> usize {
    let fleet = problem.fleet;
    let place = |kind: usize| fleet.kinds[kind].template.pools.iter().position(|of| of.name == pool);
    let processors =
        |kind: usize| place(kind).map_or(0, |place| fleet.kinds[kind].template.pools[place].processors.len());
    let counts: Vec<u64> = fleet.hosts.iter().map(|host| processors(host.kind) as u64).collect();
    // Policies that read other parameters may make another share of it on another kind of hosts.
    let of_kinds = |vm: usize| problem.demands.iter().filter_map(move |of| of[fleet.vms[vm].kind].as_ref());
    let totals: Vec<u64> = vms.iter().map(|vm| of_kinds(*vm).map(|of| of.total).min().unwrap_or(0)).collect();
    let least = fill(counts.iter().map(|count| count * WHOLE).collect(), &totals);
    let kinds: BTreeSet<usize> = fleet.hosts.iter().map(|host| host.kind).collect();
    let is_pinned = |kind: &usize| place(*kind).is_none_or(|place| fleet.kinds[*kind].is_pinned[place]);
    if !kinds.iter().all(is_pinned) {
        return least;
    }
    let mut units = Vec::new();
    for vm in vms {
        let Some(unit) = of_kinds(*vm).map(|of| of.unit).min() else { continue };
        let count = of_kinds(*vm).map(|of| of.units).min().unwrap_or(0);
        units.extend(std::iter::repeat_n(unit, count));
    }
    least.max(fill(counts, &[packed(units, WHOLE) as u64]))
}

/// The number of the largest capacities that hold what is asked for.
fn fill(mut capacities: Vec<u64>, asked: &[u64]) -> usize {
    capacities.sort_unstable_by(|a, b| b.cmp(a));
    let mut rest: u128 = asked.iter().map(|one| u128::from(*one)).sum();
    let mut count = 0;
    for capacity in capacities {
        if rest == 0 {
            break;
        }
        rest = rest.saturating_sub(capacity.into());
        count += 1;
    }
    count
}

/// The bound L2 of Martello and Toth, *Lower Bounds and Reduction Procedures for the Bin Packing Problem*,
/// Discrete Applied Mathematics 28, 1990: bins of this capacity that hold these sizes at least.
fn packed(mut sizes: Vec<u64>, capacity: u64) -> usize {
    sizes.retain(|size| *size > 0);
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    if capacity == 0 || sizes.first().is_some_and(|largest| *largest > capacity) {
        return 0;
    }
    let mut sums: Vec<u128> = vec![0];
    sums.extend(sizes.iter().scan(0u128, |sum, size| {
        *sum += u128::from(*size);
        Some(*sum)
    }));
    // Sizes before this are greater than `than`.
    let greater = |than: u64| sizes.partition_point(|size| *size > than);
    let half = greater(capacity / 2);
    let mut thresholds: Vec<u64> = sizes[half..].to_vec();
    thresholds.push(0);
    thresholds.dedup();
    let bound = |threshold: u64| {
        let alone = greater(capacity - threshold).min(half);
        let small = sizes.partition_point(|size| *size >= threshold.max(1)).max(half);
        let room = u128::from(capacity) * (half - alone) as u128 - (sums[half] - sums[alone]);
        let more = (sums[small] - sums[half]).saturating_sub(room).div_ceil(capacity.into());
        half + usize::try_from(more).unwrap_or(usize::MAX)
    };
    thresholds.into_iter().map(bound).max().unwrap_or_default()
}

/// The number of VMs in the largest group of which no two may be on one host.
fn largest_group(problem: &Problem<'_>, vms: &[usize]) -> usize {
    let mut counts = vec![0; problem.fleet.apart.len()];
    for vm in vms {
        problem.fleet.vm_kind(*vm).apart.iter().for_each(|group| counts[*group] += 1);
    }
    counts.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_above_half_need_a_bin_each_and_leave_room_for_the_small_ones() {
        assert_eq!(packed(vec![6, 6, 6], 10), 3);
        assert_eq!(packed(vec![6, 6, 6, 4, 4, 4], 10), 3);
        // By volume 3 would do, but nothing fits beside a 7.
        assert_eq!(packed(vec![7, 7, 4, 4, 4], 10), 4);
        assert_eq!(packed(vec![], 10), 0);
        assert_eq!(packed(vec![5; 7], 10), 4);
    }

    #[test]
    fn the_largest_hosts_are_filled_first() {
        assert_eq!(fill(vec![4, 8, 4], &[9]), 2);
        assert_eq!(fill(vec![4, 8, 4], &[0]), 0);
        assert_eq!(fill(vec![4, 8, 4], &[8]), 1);
    }
}
