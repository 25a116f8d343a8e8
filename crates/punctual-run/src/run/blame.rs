//! From what guests told and enforcers saw to why jobs were late.

use std::collections::HashMap;

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{PoolIx, TaskIx, VcpuIx};
use punctual_model::results::{Delivery, Disturbance};

use super::measure::{Measurement, Told};
use punctual_enforce::blame::{self, Job, PoolGuest, Span, Task, TaskExplanation};
use punctual_enforce::enforcer::{Deliveries, Entry, Sample};
use punctual_enforce::session::PoolReport;
use punctual_linux::os::load::Load;

/// What is found out of a pool of the host.
pub(super) struct Explained {
    /// Tasks whose guests reported their jobs.
    pub tasks: HashMap<TaskIx, TaskExplanation>,
    /// By processor of the pool.
    pub disturbances: Vec<Disturbance>,
    /// By processor of the pool: what `/proc/stat` says of the time of the run.
    pub loads: Vec<Load>,
}

/// By name of a vCPU, what it was delivered; nothing of a pool that was not under enforcement.
pub(super) fn deliveries(
    host: &Host,
    done: &PoolReport,
    measurement: &Measurement,
) -> Vec<(String, Delivery)> {
    let Some(observed) = done.observations.as_ref() else { return Vec::new() };
    let start_ns = measurement.start.as_ns();
    let window = (start_ns, start_ns + measurement.length.as_ns());
    let vcpu = |name: &String| host.vcpus.iter().position(|vcpu| vcpu.name == *name).map(VcpuIx);
    let vcpus: Vec<Option<VcpuIx>> = observed.names.iter().map(vcpu).collect();
    let mut deliveries = Deliveries::within(window);
    let set_budgets = |deliveries: &mut Deliveries, events: usize| {
        for (unit, vcpu) in vcpus.iter().enumerate() {
            let params = vcpu.map(|vcpu| host.vcpu_params_after(vcpu, events));
            let budget = params.and_then(|params| params.budget.zip(params.period));
            deliveries.set_budget(unit, budget.map(|(budget, period)| (budget.as_ns(), period.as_ns())));
        }
    };
    let mut events = 0;
    set_budgets(&mut deliveries, events);
    for entry in observed.observations.history.entries() {
        let at = if let Entry::Look { at_ns, .. } = entry { at_ns } else { 0 };
        while host.events.get(events).is_some_and(|event| start_ns + event.at.as_ns() <= at) {
            events += 1;
            set_budgets(&mut deliveries, events);
        }
        deliveries.read(entry);
    }
    observed.names.iter().cloned().zip(deliveries.by_unit().cloned()).collect()
}

/// Explains a pool that was under enforcement; `None` of one that was not.
pub(super) fn explain_pool(
    host: &Host,
    pool: PoolIx,
    done: &PoolReport,
    measurement: &Measurement,
) -> Option<Explained> {
    let observed = done.observations.as_ref()?;
    let start_ns = measurement.start.as_ns();
    let window = (start_ns, start_ns + measurement.length.as_ns());
    let is_here = |told: &&Told| host.pool_of(Parent::Domain(told.domain)) == pool;
    let told: Vec<&Told> = measurement.told.iter().filter(is_here).collect();
    let guests: Vec<PoolGuest> = told.iter().map(|told| guest(host, told, window)).collect();
    let explanation = blame::explain(observed, &guests, window);
    let mut tasks = HashMap::new();
    for (told, explained) in told.iter().zip(explanation.tasks) {
        let has_jobs = |(_, task): &(&TaskIx, TaskExplanation)| task.blame.all.jobs > 0;
        tasks.extend(
            told.tasks
                .iter()
                .map(|(ix, _)| ix)
                .zip(explained)
                .filter(has_jobs)
                .map(|(ix, explanation)| (*ix, explanation)),
        );
    }
    let loads = loads_within(observed.observations.samples.iter(), window, done.processors.len());
    Some(Explained { tasks, disturbances: explanation.disturbances, loads })
}

/// A guest with its jobs in the order of their releases.
pub(super) fn guest(host: &Host, told: &Told, window: Span) -> PoolGuest {
    let (start_ns, end_ns) = window;
    let mut jobs: Vec<(Job, bool)> = Vec::new();
    for (task, ((_, described), done)) in told.tasks.iter().zip(&told.jobs).enumerate() {
        let (Some(stream), Some(deadline_ns)) = (described.work.job_stream(), described.deadline_ns) else {
            continue;
        };
        for (drawn, job) in stream.jobs_before(end_ns - start_ns).zip(&done.jobs) {
            let due_ns = job.release_ns.saturating_add(deadline_ns);
            let is_due = start_ns.saturating_add(due_ns) <= end_ns;
            let finish_ns = job.finish_ns.unwrap_or(end_ns - start_ns);
            let job = Job {
                task,
                number: drawn.number,
                release_ns: start_ns + job.release_ns,
                end_ns: start_ns + finish_ns.max(job.release_ns),
                cost_ns: if job.finish_ns.is_some() { stream.cost_ns(drawn) } else { 0 },
                missed: is_due && job.finish_ns.is_none_or(|finish_ns| finish_ns > due_ns),
                late_ns: finish_ns.saturating_sub(due_ns),
            };
            jobs.push((job, is_due));
        }
    }
    jobs.sort_by_key(|(job, _)| (job.release_ns, job.task));
    let described = &host.domains[told.domain.0];
    let vcpus = host.vcpus[described.vcpus.clone()].iter().map(|vcpu| {
        let budget = vcpu.params.budget.zip(vcpu.params.period);
        (vcpu.name.clone(), budget.map(|(budget, period)| (budget.as_ns(), period.as_ns())))
    });
    let task = |(ix, described): &(TaskIx, punctual_guest::protocol::Task)| Task {
        name: host.tasks[ix.0].name.clone(),
        priority: described.priority,
    };
    let (jobs, due) = jobs.into_iter().unzip();
    PoolGuest { tasks: told.tasks.iter().map(task).collect(), jobs, due, vcpus: vcpus.collect() }
}

/// By processor, what samples say of the window; of a sample that is partly within it, its part.
fn loads_within<'s>(samples: impl Iterator<Item = &'s Sample>, window: Span, processors: usize) -> Vec<Load> {
    let mut loads = vec![Load::default(); processors];
    for sample in samples {
        let length = sample.until_ns.saturating_sub(sample.from_ns).max(1);
        let within = sample.until_ns.min(window.1).saturating_sub(sample.from_ns.max(window.0));
        let part = |ns: u64| (u128::from(ns) * u128::from(within) / u128::from(length)) as u64;
        for (sum, load) in loads.iter_mut().zip(&sample.loads) {
            sum.busy_ns += part(load.busy_ns);
            sum.idle_ns += part(load.idle_ns);
            sum.interrupts_ns += part(load.interrupts_ns);
            sum.steal_ns += part(load.steal_ns);
        }
    }
    loads
}
