//! Budgets that settle what is not guaranteed.

use std::ops::Range;

use punctual_analysis::Answers;
use punctual_model::Host;
use punctual_model::guarantees::Remedy;
use punctual_model::host::Parent;
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_sched::Duration;

/// Hosts with more tasks and vCPUs than this are not searched: each step analyses the whole host.
const UNITS_MAX: usize = 300;

/// Of its period, a budget found is at most this part too large.
const STEPS: u64 = 1_000;

/// The shortest step.
const STEP_MIN: Duration = Duration::from_us(10);

/// For each domain of one vCPU with a budget whose tasks are not all guaranteed: the budget with which they
/// are.
pub(crate) fn remedies(host: &Host, answers: &Answers) -> Vec<Remedy> {
    if host.tasks.len() + host.vcpus.len() > UNITS_MAX {
        return Vec::new();
    }
    let open = answers.vcpus.keys().filter_map(|vcpu| Some((*vcpu, open_tasks(host, answers, *vcpu)?)));
    open.filter_map(|(vcpu, open)| remedy(host, answers, vcpu, &open)).collect()
}

/// The tasks of the vCPU that are not guaranteed; `None` if all are, or if others than this vCPU run them.
fn open_tasks(host: &Host, answers: &Answers, vcpu: VcpuIx) -> Option<Vec<TaskIx>> {
    let domain = host.vcpus[vcpu.0].domain;
    let in_pool = matches!(host.domains[domain.0].parent, Parent::Pool(_));
    let open = answers.tasks.iter().filter(|(task, answer)| {
        host.tasks[task.0].parent == Parent::Domain(domain) && !answer.answer.is_guaranteed()
    });
    let open: Vec<TaskIx> = open.map(|(task, _)| *task).collect();
    (in_pool && host.domains[domain.0].vcpus.len() == 1 && !open.is_empty()).then_some(open)
}

fn remedy(host: &Host, answers: &Answers, vcpu: VcpuIx, open: &[TaskIx]) -> Option<Remedy> {
    let params = &host.vcpus[vcpu.0].params;
    let (now, period) = (params.budget?, params.period?);
    let step = Duration::from_ns(period.as_ns() / STEPS).max(STEP_MIN);
    let budget = |steps: u64| {
        (Duration::from_ns(now.as_ns().next_multiple_of(step.as_ns())) + step * steps).min(period)
    };
    let with = |budget: Duration| {
        let mut changed = host.clone();
        changed.vcpus[vcpu.0].params.budget = Some(budget);
        punctual_analysis::answers(&changed)
    };
    let helps = |found: &Answers| open.iter().all(|task| is_guaranteed(found, *task));
    let is_delivered =
        |found: &Answers| found.vcpus.get(&vcpu).is_some_and(|answer| answer.answer.is_guaranteed());
    // A greater budget helps the tasks, until the vCPU surely does not get it any more.
    let all = period.checked_sub(now)?.div_ceil(step);
    let too_much = first(0..all + 1, |steps| !is_delivered(&with(budget(steps))));
    let least = first(0..too_much, |steps| helps(&with(budget(steps))));
    if least == too_much {
        return None;
    }
    let found = with(budget(least));
    (helps(&found) && nothing_is_lost(answers, &found)).then(|| Remedy {
        vcpu: host.vcpus[vcpu.0].name.clone(),
        budget_ns: budget(least).as_ns(),
        budget_now_ns: now.as_ns(),
        period_ns: period.as_ns(),
        tasks: open.iter().map(|task| host.tasks[task.0].name.clone()).collect(),
    })
}

/// The first of the numbers from which on something holds; the end if it never does.
fn first(Range { start, end }: Range<u64>, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut most) = (start, end);
    while least < most {
        let middle = least.midpoint(most);
        if holds(middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    least
}

fn is_guaranteed(answers: &Answers, task: TaskIx) -> bool {
    answers.tasks.get(&task).is_some_and(|answer| answer.answer.is_guaranteed())
}

/// Is everything guaranteed that was?
fn nothing_is_lost(before: &Answers, after: &Answers) -> bool {
    let tasks = before.tasks.keys().all(|task| !is_guaranteed(before, *task) || is_guaranteed(after, *task));
    let vcpus = before.vcpus.iter().all(|(vcpu, answer)| {
        !answer.answer.is_guaranteed()
            || after.vcpus.get(vcpu).is_some_and(|after| after.answer.is_guaranteed())
    });
    let flows = before.flows.iter().zip(&after.flows).all(|(before, after)| before.is_err() || after.is_ok());
    let chains =
        before.chains.iter().zip(&after.chains).all(|(before, after)| before.is_err() || after.is_ok());
    tasks && vcpus && flows && chains
}
