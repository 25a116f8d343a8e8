//! How long less urgent tasks of a guest may delay a task by what they hold.
//!
//! A less urgent task delays a task only while it is as urgent by a resource that it holds. It took that
//! before the busy period of the task began: in the busy period it executes nothing else. So each less urgent
//! task delays a busy period by one critical section, and each resource by one.
//!
//! Sources: Sha, Rajkumar, Lehoczky, *Priority Inheritance Protocols: An Approach to Real-Time
//! Synchronization*, IEEE Trans. Computers 39(9), 1990 (inheritance: one section for each less urgent task,
//! or for each resource; ceilings: one section); Baker, *Stack-Based Scheduling of Realtime Processes*,
//! Real-Time Systems 3(1), 1991, and Burns, Gutierrez, Aldea Rivas, Gonzalez Harbour, *A Deadline-Floor
//! Inheritance Protocol for EDF Scheduled Embedded Real-Time Systems with Resource Sharing*, IEEE Trans.
//! Computers 64(5), 2015 (EDF).

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::host::{Parent, Task};
use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::locks::{CriticalSection, Protocol};
use punctual_sched::Duration;

use crate::edf::Section;
use crate::inputs::{Inputs, Sharing};
use crate::reason::Reason;

/// The domain of the task, if tasks of it have critical sections.
fn sharing(inputs: Inputs<'_>, parent: Parent) -> Option<DomainIx> {
    let Parent::Domain(domain) = parent else { return None };
    (inputs.index.sharing(domain) != Sharing::Nothing).then_some(domain)
}

/// Do tasks of its guest, or of one around it, take resources? Then it may be served before more urgent
/// tasks.
pub(super) fn is_hastened(inputs: Inputs<'_>, task: TaskIx) -> bool {
    let mut parent = inputs.host.tasks[task.0].parent;
    loop {
        if sharing(inputs, parent).is_some() {
            return true;
        }
        let Parent::Domain(domain) = parent else { return false };
        parent = inputs.host.domains[domain.0].parent;
    }
}

/// May tasks of its guest wait for each other forever, and so ask for less than they do otherwise?
pub(super) fn may_stop(inputs: Inputs<'_>, task: TaskIx) -> bool {
    let Parent::Domain(domain) = inputs.host.tasks[task.0].parent else { return false };
    matches!(inputs.index.sharing(domain), Sharing::Deadlock(_))
}

/// Resources that several tasks use, and what the tests need to know of them.
struct Shared<'h> {
    domain: DomainIx,
    /// By resource that several tasks use: the most urgent priority that it lends.
    ceilings: BTreeMap<usize, u32>,
    tasks: Vec<(TaskIx, &'h Task)>,
}

impl<'h> Shared<'h> {
    /// # Errors
    /// Why no test covers the resources of the domain.
    fn of(inputs: Inputs<'h>, domain: DomainIx) -> Result<Self, Reason> {
        let host = inputs.host;
        let tasks: Vec<_> = host.tasks_of(Parent::Domain(domain)).collect();
        // By resource: how many tasks use it, and the most urgent priority of these.
        let mut users: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        for (_, task) in &tasks {
            let resources: BTreeSet<usize> = task.sections.iter().map(|section| section.resource).collect();
            let own = task.params.priority.unwrap_or(u32::MAX);
            for resource in resources {
                let (count, priority) = users.entry(resource).or_insert((0, u32::MAX));
                (*count, *priority) = (*count + 1, own.min(*priority));
            }
        }
        let is_shared = |(resource, (count, priority))| (count > 1).then_some((resource, priority));
        let ceilings = users.into_iter().filter_map(is_shared).collect();
        if let Sharing::Deadlock(resource) = inputs.index.sharing(domain) {
            return Err(Reason::Deadlock(domain, resource));
        }
        let mut shared = Shared { domain, ceilings, tasks };
        let nested = shared.nested(inputs)?;
        // A task that waits for `inner` may be as urgent as those that wait for the `outer` that it holds.
        for _ in 0..shared.ceilings.len() {
            for (outer, inner) in &nested {
                let lent = shared.ceilings[outer];
                shared.ceilings.entry(*inner).and_modify(|ceiling| *ceiling = lent.min(*ceiling));
            }
        }
        Ok(shared)
    }

    /// Shared resources by inheritance that a task takes while it holds another one: both.
    fn nested(&self, inputs: Inputs<'_>) -> Result<Vec<(usize, usize)>, Reason> {
        let mut nested = Vec::new();
        let is_shared = |section: &CriticalSection| self.ceilings.contains_key(&section.resource);
        for (_, task) in &self.tasks {
            for (inner, outer) in task.nested_sections().filter(|(inner, _)| is_shared(inner)) {
                for outer in outer.into_iter().filter(|outer| is_shared(outer)) {
                    let both = [outer, inner].map(|section| self.protocol(inputs, section.resource));
                    match both {
                        [Protocol::Inherit, Protocol::Inherit] => {
                            nested.push((outer.resource, inner.resource))
                        }
                        [outer, inner] if outer != inner => return Err(Reason::MixedProtocols),
                        _ => {}
                    }
                }
            }
        }
        Ok(nested)
    }

    fn protocol(&self, inputs: Inputs<'_>, resource: usize) -> Protocol {
        inputs.host.domains[self.domain.0].resources[resource].protocol
    }
}

/// What less urgent tasks of its guest take at most of a busy period of the task, under fixed priorities.
///
/// # Errors
/// Why nothing bounds it.
pub(super) fn blocking(inputs: Inputs<'_>, task: TaskIx) -> Result<Duration, Reason> {
    let of = &inputs.host.tasks[task.0];
    if let Parent::Domain(domain) = of.parent
        && has_sharing_around(inputs, domain)
    {
        return Err(Reason::SharingAround);
    }
    let Some(domain) = sharing(inputs, of.parent) else { return Ok(Duration::ZERO) };
    let shared = Shared::of(inputs, domain)?;
    let own = of.params.priority.unwrap_or(u32::MAX);
    let has_none = |(resource, ceiling): (&usize, &u32)| {
        let is_none = shared.protocol(inputs, *resource) == Protocol::None && *ceiling <= own;
        is_none.then_some(*resource)
    };
    if let Some(resource) = shared.ceilings.iter().find_map(has_none) {
        return Err(Reason::NoProtocol(domain, resource));
    }
    let mut by_task: BTreeMap<TaskIx, Duration> = BTreeMap::new();
    let mut by_resource: BTreeMap<usize, Duration> = BTreeMap::new();
    let mut by_ceiling = Duration::ZERO;
    let is_less_urgent = |task: &Task| task.params.priority.unwrap_or(u32::MAX) > own;
    for (other, of) in shared.tasks.iter().filter(|(_, of)| is_less_urgent(of)) {
        for section in &of.sections {
            if shared.ceilings.get(&section.resource).is_none_or(|ceiling| *ceiling > own) {
                continue;
            }
            match shared.protocol(inputs, section.resource) {
                Protocol::Ceiling => by_ceiling = by_ceiling.max(section.length),
                Protocol::Inherit | Protocol::None => {
                    for longest in
                        [by_task.entry(*other).or_default(), by_resource.entry(section.resource).or_default()]
                    {
                        *longest = section.length.max(*longest);
                    }
                }
            }
        }
    }
    let by_inheritance = by_task.into_values().sum::<Duration>().min(by_resource.into_values().sum());
    Ok(by_inheritance + by_ceiling)
}

/// Do tasks of a guest around this domain take resources?
fn has_sharing_around(inputs: Inputs<'_>, domain: DomainIx) -> bool {
    let mut parent = inputs.host.domains[domain.0].parent;
    while let Parent::Domain(outer) = parent {
        if sharing(inputs, parent).is_some() {
            return true;
        }
        parent = inputs.host.domains[outer.0].parent;
    }
    false
}

/// The critical sections that may delay tasks of a guest with EDF.
///
/// # Errors
/// Why nothing bounds the delays.
pub(super) fn sections_in_edf(inputs: Inputs<'_>, tasks: &[TaskIx]) -> Result<Vec<Section>, Reason> {
    let parent = tasks.first().map(|task| inputs.host.tasks[task.0].parent);
    let Some(domain) = parent.and_then(|parent| sharing(inputs, parent)) else { return Ok(Vec::new()) };
    let shared = Shared::of(inputs, domain)?;
    let unbounded = |resource: &&usize| shared.protocol(inputs, **resource) != Protocol::Ceiling;
    if let Some(resource) = shared.ceilings.keys().find(unbounded) {
        return Err(Reason::NoCeiling(domain, *resource));
    }
    let floor = |resource: &usize| {
        let deadlines = inputs.host.users(domain, *resource).filter_map(|(_, task)| task.deadline());
        (*resource, deadlines.min().unwrap_or(Duration::MAX))
    };
    let floors: BTreeMap<usize, Duration> = shared.ceilings.keys().map(floor).collect();
    let mut all = Vec::new();
    for (_, task) in &shared.tasks {
        let Some(deadline) = task.deadline() else { continue };
        let section = |of: &CriticalSection| {
            floors.get(&of.resource).map(|floor| Section { floor: *floor, deadline, length: of.length })
        };
        all.extend(task.sections.iter().filter_map(section));
    }
    Ok(all)
}
