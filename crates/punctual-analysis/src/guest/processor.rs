//! Tasks on a processor of their own, without budgets.

use std::collections::BTreeMap;

use punctual_model::guarantees::Dominant;
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_sched::Duration;

use crate::answer::{Refutation, Test};
use crate::demand::{Demand, requested};
use crate::edf;
use crate::findings::{Findings, greatest};
use crate::fixed_priority;
use crate::guest::content::{Contender, Ranked};
use crate::guest::limits::{any_served, served};
use crate::guest::locks::is_hastened;
use crate::guest::supplied::dominant_in;
use crate::guest::urgency::{Delaying, Question, question};
use crate::inputs::Inputs;
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::supply::Supply;

/// Fixed priorities: exact where scheduling is free and no priorities are equal. `beside`: by vCPU with
/// kernel work, what decisions take while its kernel is busy.
pub(crate) fn ranked_processor(
    inputs: Inputs<'_>,
    tasks: &[Ranked],
    costs: &Decisions,
    beside: &BTreeMap<VcpuIx, Decisions>,
) -> Findings {
    let answer = |ranked: &Ranked| match ranked.contender {
        Contender::Task(task) => match question(inputs, ranked, tasks, Test::ResponseTimes) {
            Ok(question) => of_task(inputs, task, &question, costs),
            Err(answer) => answer,
        },
        Contender::Kernel(vcpu) => {
            let mut found = Findings::default();
            let delaying = Delaying::of(inputs, ranked, tasks);
            if delaying.is_bounded() {
                let costs = beside.get(&vcpu).unwrap_or(costs).clone();
                found.services.insert(vcpu, delaying.service(Supply::WHOLE, costs));
            }
            found
        }
    };
    tasks.iter().map(answer).fold(Findings::default(), Findings::and)
}

fn of_task(inputs: Inputs<'_>, task: TaskIx, question: &Question, costs: &Decisions) -> Findings {
    let test = Test::ResponseTimes;
    let Question { demand, delaying } = question;
    if inputs.is_served(task) {
        let service = delaying.service(Supply::WHOLE, costs.clone());
        return served(inputs, task, demand, Some(service), test);
    }
    let mut found = Findings::default();
    let above: Vec<Demand> = delaying.demands().copied().collect();
    let bound = |limit| fixed_priority::response(demand, &above, costs, limit);
    if let Some(bound) = bound(demand.deadline) {
        let parts = [
            (Dominant::OwnCost, demand.cost),
            (Dominant::OtherTasks, requested(&above, bound)),
            (Dominant::OtherVcpus, costs.within(bound)),
        ];
        found.bounded(inputs, task, bound, greatest(&parts), test);
        return found;
    }
    // Jobs after a synchronous release are surely delayed by more urgent tasks, by others perhaps.
    match fixed_priority::first_miss(demand, &delaying.urgent) {
        Some(miss) if !is_hastened(inputs, task) => {
            let refutation = Refutation::synchronous(vec![task], miss.due).late(miss.late_min);
            found.refuted(inputs, task, refutation, test);
        }
        _ => found.unknown(inputs, task, Reason::beyond(demand.deadline, bound), test),
    }
    found
}

/// EDF: exact where scheduling is free.
pub(crate) fn edf_processor(inputs: Inputs<'_>, tasks: &[TaskIx], costs: &Decisions) -> Findings {
    let test = Test::ProcessorDemand;
    if let Some(unknown) = any_served(inputs, tasks, test) {
        return unknown;
    }
    let (with, demands) = inputs.releasing(tasks);
    if let Err(edf::Error::Overload(by)) = edf::bounds(&demands, &[], &Supply::WHOLE) {
        return edf_overload(inputs, &with, &demands, by);
    }
    // Each job is there for two decisions and makes one job of another task resume.
    let charged: Vec<Demand> =
        demands.iter().map(|d| Demand { cost: d.cost + costs.change() * 3, ..*d }).collect();
    let blocked = Supply { delay: costs.change() * 2, ..Supply::WHOLE };
    match edf::bounds(&charged, &[], &blocked) {
        Ok(bounds) => {
            let mut found = Findings::default();
            for ((task, bound), demand) in with.into_iter().zip(bounds).zip(&charged) {
                found.bounded(inputs, task, bound, dominant_in(&blocked, demand.cost, bound), test);
            }
            found
        }
        Err(_) if costs.free() => Findings::all_unknown(inputs, with, Reason::ProcessorUtilization, test),
        Err(_) => Findings::all_unknown(inputs, with, Reason::ProcessorDecisions, test),
    }
}

/// More is due `by` then than the processor can do: of the tasks with a deadline until then one misses it.
fn edf_overload(inputs: Inputs<'_>, tasks: &[TaskIx], demands: &[Demand], by: Duration) -> Findings {
    let test = Test::ProcessorDemand;
    let is_due = |demand: &Demand| demand.deadline <= by;
    let all = || tasks.iter().copied().zip(demands);
    let one_of: Vec<TaskIx> = all().filter(|(_, demand)| is_due(demand)).map(|(task, _)| task).collect();
    let due: Duration = demands.iter().map(|demand| demand.due_within(by)).sum();
    let refutation = Refutation::synchronous(one_of, by).late(due.checked_sub(by));
    let mut found = Findings::default();
    for (task, demand) in all() {
        if is_due(demand) {
            found.refuted(inputs, task, refutation.clone(), test);
        } else {
            found.unknown(inputs, task, Reason::ShorterDeadlinesMissed, test);
        }
    }
    found
}
