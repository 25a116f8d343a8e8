//! What units and processors are called where somebody reads of them, and whose they are.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::TaskIx;

use crate::index::{ProcessorIx, SchedulerIx, UnitIx};

/// The task that a unit is; `None`: it is a vCPU.
pub(crate) fn task_of(host: &Host, unit: UnitIx) -> Option<TaskIx> {
    unit.index().checked_sub(host.vcpus.len()).map(TaskIx)
}

/// The unit that a task is.
pub(crate) fn unit_of(host: &Host, task: TaskIx) -> UnitIx {
    UnitIx::new(host.vcpus.len() + task.0)
}

pub(crate) fn scheduler_of(host: &Host, unit: UnitIx) -> SchedulerIx {
    let parent = match task_of(host, unit) {
        Some(TaskIx(task)) => host.tasks[task].parent,
        None => host.domains[host.vcpus[unit.index()].domain.0].parent,
    };
    SchedulerIx::new(match parent {
        Parent::Pool(pool) => pool.0,
        Parent::Domain(domain) => host.pools.len() + domain.0,
    })
}

/// The scheduler that picks for a processor; `None`: it is in no pool.
pub(crate) fn scheduler_at(host: &Host, processor: ProcessorIx) -> Option<SchedulerIx> {
    let scheduler = match processor.index().checked_sub(host.processors) {
        Some(vcpu) => host.pools.len() + host.vcpus.get(vcpu)?.domain.0,
        None => host.pools.iter().position(|pool| pool.processors.contains(&processor.index()))?,
    };
    Some(SchedulerIx::new(scheduler))
}

pub(crate) fn unit(host: &Host, unit: UnitIx) -> String {
    match task_of(host, unit) {
        Some(TaskIx(task)) => {
            let task = &host.tasks[task];
            format!("task {}/{}", host.parent_name(task.parent), task.name)
        }
        None => format!("vCPU {}", host.vcpus[unit.index()].name),
    }
}

pub(crate) fn processor(host: &Host, processor: ProcessorIx) -> String {
    match processor.index().checked_sub(host.processors) {
        Some(vcpu) => format!("vCPU {}", host.vcpus[vcpu].name),
        None => format!("processor {}", processor.0),
    }
}
