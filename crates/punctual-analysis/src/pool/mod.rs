//! Pools: which test applies to a pool's policy, and what each of its units gets.

mod any_order;
mod bandwidth;
mod decisions;
mod edf_servers;
mod fixed_priority_servers;
mod global;
mod groups;
mod processor;
mod reserved;
mod supplied;

pub(crate) use groups::{Group, groups};

use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, PoolIx, VcpuIx};
use punctual_sched::registry::{SchedulabilityTest, ServerKind};

use crate::answer::Test;
use crate::findings::Findings;
use crate::guest;
use crate::inputs::{Inputs, UnitIx};
use crate::reason::Reason;

/// What the tests find out about all pools.
pub(crate) fn all_pools(inputs: Inputs<'_>) -> Findings {
    let found = inputs.pools().map(|pool| of_pool(inputs, pool)).fold(Findings::default(), Findings::and);
    let best_effort = inputs.index.best_effort.iter().copied();
    found.and(Findings::unknown_below(inputs, best_effort, Reason::Background, Test::BestEffort))
}

fn of_pool(inputs: Inputs<'_>, pool: PoolIx) -> Findings {
    match groups(inputs, pool) {
        Ok(groups) => {
            let found = groups.iter().map(|group| of_group(inputs, pool, group, None));
            let found = found.fold(Findings::default(), Findings::and);
            let domains = (0..inputs.host.domains.len()).map(DomainIx);
            let here = domains.filter(|of| inputs.host.domains[of.0].parent == Parent::Pool(pool));
            let several = here.map(|domain| guest::several(inputs, domain, &found));
            // A task has the first answer, and those for single vCPUs have none for tasks that move.
            let found = several.fold(Findings::default(), Findings::and).and(found);
            let light = groups.iter().map(|group| any_order::light(inputs, pool, group));
            light.fold(found, Findings::completed_by)
        }
        Err(reason) => {
            let test = Test::Policy(inputs.pool(pool).policy.info.name);
            Findings::unknown_units(inputs, pool, inputs.index.in_pool(pool).all(), reason, test)
        }
    }
}

/// What the tests find out about one group of a pool's units; `wanted`: the only unit whose tasks need
/// answers.
pub(crate) fn of_group(inputs: Inputs<'_>, pool: PoolIx, group: &Group, wanted: Option<UnitIx>) -> Findings {
    let info = inputs.pool(pool).policy.info;
    if has_turns(inputs, group, info.test) && !covers_turns(inputs, pool, group, info.test) {
        let units = group.units.iter().copied();
        return Findings::unknown_units(inputs, pool, units, Reason::Turns, Test::Policy(info.name));
    }
    match info.test {
        SchedulabilityTest::FixedPriorityServers(kind) => {
            fixed_priority_servers::servers(inputs, pool, &group.units, kind, wanted)
        }
        SchedulabilityTest::EdfServers => edf_servers::servers(inputs, pool, group, info, wanted),
        SchedulabilityTest::BandwidthServers => bandwidth::servers(inputs, pool, group, info, wanted),
        SchedulabilityTest::FixedPriority if group.processors == 1 => {
            processor::fixed_priority(inputs, pool, &group.units)
        }
        SchedulabilityTest::FixedPriority => global::fixed_priority(inputs, pool, group),
        SchedulabilityTest::Edf if group.processors == 1 => processor::edf(inputs, pool, &group.units),
        SchedulabilityTest::Edf => global::edf(inputs, pool, group),
        SchedulabilityTest::None(reason) => {
            let units = group.units.iter().copied();
            Findings::unknown_below(inputs, units, Reason::NoTest(reason), Test::Policy(info.name))
        }
    }
}

/// Does the test hold for any order of the vCPUs of a VM? A turn that ends takes a decision, which tests do
/// not count.
fn covers_turns(inputs: Inputs<'_>, pool: PoolIx, group: &Group, test: SchedulabilityTest) -> bool {
    let is_covered = match test {
        SchedulabilityTest::FixedPriority => group.processors == 1,
        SchedulabilityTest::FixedPriorityServers(kind) => kind != ServerKind::Sporadic,
        _ => false,
    };
    is_covered && decisions::decisions(inputs, pool, group.processors).free()
}

/// May vCPUs of one VM take [turns](punctual_sched::turns) in another order than the policy's? Not by
/// earliest deadline where they have one period: then they have one deadline, and any order among them will
/// do.
fn has_turns(inputs: Inputs<'_>, group: &Group, test: SchedulabilityTest) -> bool {
    if let SchedulabilityTest::None(_) = test {
        return false;
    }
    let has_equals = matches!(test, SchedulabilityTest::EdfServers);
    group.units.iter().any(|unit| {
        let UnitIx::Vcpu(vcpu) = *unit else { return false };
        let period = |vcpu: VcpuIx| inputs.host.vcpus[vcpu.0].params.period;
        let others = inputs.domain_of(vcpu).vcpus.clone().map(VcpuIx).filter(|other| *other != vcpu);
        let mut others = others.filter(|other| !has_equals || period(*other) != period(vcpu));
        others.any(|other| group.units.contains(&UnitIx::Vcpu(other)))
    })
}
