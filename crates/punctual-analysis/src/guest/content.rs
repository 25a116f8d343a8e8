//! What is inside a unit, as the tests take it.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use punctual_model::index::{DomainIx, TaskIx, VcpuIx};
use punctual_sched::registry::SchedulabilityTest;

use crate::inputs::{Inputs, UnitIx, only_processor};
use crate::reason::Reason;

/// What is inside a unit.
pub(crate) enum Content {
    /// Preemptive fixed priorities, also of nested guests.
    Ranked(Vec<Ranked>),
    /// Earliest deadline first.
    Edf(Vec<TaskIx>),
}

impl Content {
    pub(crate) fn tasks(&self) -> Vec<TaskIx> {
        match self {
            Content::Ranked(ranked) => ranked.iter().filter_map(Ranked::task).collect(),
            Content::Edf(tasks) => tasks.clone(),
        }
    }
}

/// What asks for time of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contender {
    Task(TaskIx),
    Kernel(VcpuIx),
}

/// A priority on one level, and the unit that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    /// A smaller number is more urgent.
    priority: i64,
    unit: UnitIx,
}

/// More urgent than every priority: interrupt context.
const INTERRUPTS: i64 = -1;

/// A task or kernel under fixed priorities on every level down to it.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) contender: Contender,
    /// From the outermost level inwards.
    path: Vec<Level>,
}

/// The first level at which two of them differ.
pub(super) struct Difference {
    pub(super) level: usize,
    /// `Less`: the first is more urgent there.
    pub(super) order: Ordering,
}

impl Ranked {
    pub(super) fn task(&self) -> Option<TaskIx> {
        match self.contender {
            Contender::Task(task) => Some(task),
            Contender::Kernel(_) => None,
        }
    }

    /// The first level at which both are different units, and the order of these.
    pub(super) fn first_difference(&self, other: &Ranked) -> Option<Difference> {
        let level = self.path.iter().zip(&other.path).position(|(a, b)| a != b)?;
        let order = self.path[level].priority.cmp(&other.path[level].priority);
        Some(Difference { level, order })
    }
}

/// What is inside a pool's or a guest's unit.
///
/// # Errors
/// Why no test knows it.
pub(crate) fn content(inputs: Inputs<'_>, unit: UnitIx) -> Result<Content, Reason> {
    let vcpu = match unit {
        UnitIx::Task(task) => {
            return Ok(Content::Ranked(vec![Ranked { contender: Contender::Task(task), path: Vec::new() }]));
        }
        UnitIx::Vcpu(vcpu) => vcpu,
    };
    if inputs.shares_budget(vcpu) {
        return Err(Reason::SharedBudget);
    }
    let guest = inputs.domain_of(vcpu).guest.info;
    let here = units_on(inputs, vcpu)?;
    let kernel = inputs.kernel(vcpu);
    match guest.test {
        SchedulabilityTest::FixedPriority => {
            let mut all = ranked(inputs, &here)?;
            if kernel.is_some() {
                let path = vec![Level { priority: INTERRUPTS, unit }];
                all.push(Ranked { contender: Contender::Kernel(vcpu), path });
            }
            Ok(Content::Ranked(all))
        }
        _ if kernel.is_some_and(|work| !work.is_empty()) => Err(Reason::BesidePackets),
        SchedulabilityTest::Edf => {
            let task = |unit: &UnitIx| match unit {
                UnitIx::Task(task) => Ok(*task),
                UnitIx::Vcpu(_) => Err(Reason::NestedInEdf),
            };
            here.iter().map(task).collect::<Result<_, _>>().map(Content::Edf)
        }
        _ => Err(Reason::GuestPolicy(guest.name)),
    }
}

/// The units of a vCPU's guest that run on this vCPU and no other.
fn units_on(inputs: Inputs<'_>, vcpu: VcpuIx) -> Result<Vec<UnitIx>, Reason> {
    let vcpus = &inputs.domain_of(vcpu).vcpus;
    let mut here = Vec::new();
    for unit in inputs.units_beside(vcpu) {
        match only_processor(inputs.params(unit).affinity.as_ref(), vcpus.len()) {
            Some(only) if only == vcpu.0 - vcpus.start => here.push(unit),
            Some(_) => {}
            None => return Err(Reason::SeveralVcpus),
        }
    }
    Ok(here)
}

/// Units under fixed priorities, nested guests spread out.
///
/// # Errors
/// Why no test knows what is inside one of them.
pub(crate) fn ranked(inputs: Inputs<'_>, units: &[UnitIx]) -> Result<Vec<Ranked>, Reason> {
    let mut all = Vec::new();
    for (unit, priority) in priorities(inputs, units) {
        let level = Level { priority, unit };
        let Content::Ranked(inside) = content(inputs, unit)? else {
            return Err(Reason::EdfBelowFixedPriority);
        };
        all.extend(inside.into_iter().map(|mut ranked| {
            ranked.path.insert(0, level);
            ranked
        }));
    }
    Ok(all)
}

/// The units with their priorities, as far as these decide between them.
///
/// vCPUs of one VM take turns at the place of the most urgent of them, so their order is not theirs. While a
/// less urgent one waits, units between the two may run as well. All of them are taken for equals: any order
/// among equals is covered.
fn priorities(inputs: Inputs<'_>, units: &[UnitIx]) -> Vec<(UnitIx, i64)> {
    let own = |unit: UnitIx| i64::from(inputs.priority(unit));
    let vm = |unit: UnitIx| match unit {
        UnitIx::Vcpu(vcpu) => Some(inputs.host.vcpus[vcpu.0].domain),
        UnitIx::Task(_) => None,
    };
    let mut of_vms: BTreeMap<DomainIx, (i64, i64)> = BTreeMap::new();
    for (vm, priority) in units.iter().filter_map(|unit| Some((vm(*unit)?, own(*unit)))) {
        let (most, least) = of_vms.entry(vm).or_insert((priority, priority));
        (*most, *least) = (priority.min(*most), priority.max(*least));
    }
    let mut ranges: Vec<(i64, i64)> = of_vms.into_values().filter(|(most, least)| most < least).collect();
    ranges.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (most, least) in ranges {
        match joined.last_mut().filter(|(_, end)| most <= *end) {
            Some((_, end)) => *end = least.max(*end),
            None => joined.push((most, least)),
        }
    }
    let place = |priority: i64| {
        let range = joined.iter().find(|(most, least)| (*most..=*least).contains(&priority));
        range.map_or(priority, |(most, _)| *most)
    };
    units.iter().map(|unit| (*unit, place(own(*unit)))).collect()
}
