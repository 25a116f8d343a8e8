//! From a host's tasks to those of a guest program, and from its measurements to results.

use punctual_guest::protocol::{self, JobTimes, TASKS_MAX};
use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::results::JobStats;
use punctual_sched::{Duration, fixed_priority};

use super::error::TasksError;

/// The tasks of a domain for its guest program, with their places in the host. Their jobs are those that the
/// simulator would release: same releases, same costs.
///
/// # Errors
/// When the guest does not schedule by fixed priorities, has too many tasks, tasks that share resources, or
/// tasks that packets release though it is not `on_switch`.
pub fn of_domain(
    host: &Host,
    domain: DomainIx,
    on_switch: bool,
) -> Result<Vec<(TaskIx, protocol::Task)>, TasksError> {
    let Some(described) = host.domains.get(domain.0) else {
        return Err(TasksError::NoDomain(domain.0));
    };
    let name = || described.name.clone();
    if described.guest.info != &fixed_priority::INFO {
        return Err(TasksError::Policy { domain: name(), policy: described.guest.info.name });
    }
    let mut all = host.tasks_of(Parent::Domain(domain));
    if !on_switch && let Some((_, task)) = all.find(|(_, task)| matches!(task.work, Work::Served { .. })) {
        return Err(TasksError::Served { domain: name(), task: task.name.clone() });
    }
    if let Some((_, task)) = host.tasks_of(Parent::Domain(domain)).find(|(_, task)| !task.sections.is_empty())
    {
        return Err(TasksError::Sections { domain: name(), task: task.name.clone() });
    }
    if host.smp_of(domain).is_some() {
        return Err(TasksError::Smp { domain: name() });
    }
    let tasks: Vec<_> = host
        .tasks_of(Parent::Domain(domain))
        .map(|(index, task)| {
            let priority = task.params.priority.unwrap_or(u32::MAX);
            let (work, deadline_ns) = match task.work {
                Work::Jobs { arrival, cost, deadline } => {
                    let jobs = arrival.jobs(cost, host.task_seed(index));
                    (protocol::Work::Jobs(jobs), Some(deadline.as_ns()))
                }
                Work::Hog { start } => (protocol::Work::Hog { start_ns: start.as_ns() }, None),
                Work::Served { cost, deadline } => {
                    let (cost_min_ns, cost_max_ns) = (cost.min.as_ns(), cost.max.as_ns());
                    let seed = host.task_seed(index);
                    (protocol::Work::Served { cost_min_ns, cost_max_ns, seed }, Some(deadline.as_ns()))
                }
            };
            (index, protocol::Task { priority, deadline_ns, work })
        })
        .collect();
    if tasks.len() > TASKS_MAX {
        return Err(TasksError::TooMany { domain: name(), tasks: tasks.len() });
    }
    Ok(tasks)
}

/// The counts of a task's jobs `elapsed_ns` after the start of a run, from its guest's report of how many
/// jobs were finished, and how many of them late. When the jobs started and ended is not known.
pub fn stats_so_far(task: &protocol::Task, (finished, late): (u64, u64), elapsed_ns: u64) -> JobStats {
    let (Some(stream), Some(deadline_ns)) = (task.work.job_stream(), task.deadline_ns) else {
        return JobStats::default();
    };
    let mut stats = JobStats::default();
    for job in stream.jobs_before(elapsed_ns) {
        stats.released += 1;
        stats.due += u64::from(job.release_ns.saturating_add(deadline_ns) <= elapsed_ns);
    }
    stats.completed = finished.min(stats.released);
    // Jobs of a task finish in the order of their releases.
    stats.missed = (late.min(finished) + stats.due.saturating_sub(finished)).min(stats.due);
    stats
}

/// The statistics of a task's jobs, whose deadline is `deadline_ns` after their release, in a run of
/// `duration_ns`: the counts that the simulator makes.
pub fn job_stats(jobs: &[JobTimes], deadline_ns: u64, duration_ns: u64) -> JobStats {
    let mut stats = JobStats::default();
    let record = |histogram: &mut punctual_model::histogram::Histogram, ns: u64| {
        histogram.record(Duration::from_ns(ns));
    };
    for job in jobs {
        let due_ns = job.release_ns.saturating_add(deadline_ns);
        stats.released += 1;
        if let Some(start_ns) = job.start_ns {
            record(&mut stats.start_latency, start_ns.saturating_sub(job.release_ns));
        }
        if let Some(finish_ns) = job.finish_ns {
            stats.completed += 1;
            record(&mut stats.response, finish_ns.saturating_sub(job.release_ns));
            record(&mut stats.tardiness, finish_ns.saturating_sub(due_ns));
        }
        if due_ns <= duration_ns {
            stats.due += 1;
            stats.missed += u64::from(job.finish_ns.is_none_or(|finish_ns| finish_ns > due_ns));
        }
    }
    stats
}
