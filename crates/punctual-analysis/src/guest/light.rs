//! Tasks that cannot use up the budget of their deferrable server.
//!
//! A deferrable server keeps its budget until the end of the period. If its tasks never execute for more than
//! the budget in a period, its budget is never used up while they have work, so they are delayed by more
//! urgent servers only and never wait for a replenishment.
//!
//! # The proof
//!
//! Let R be the response time of each task with only the tasks of the guest and more urgent servers before
//! it. Say that the budget is used up, with work left, for the first time at an instant of the period [s, s +
//! P). Until then no job has waited for budget, so each that was released until then took at most its R, and
//! those that executed since s were released after s - R. These are at most ceil((P + R) / T) jobs of a task.
//! If the cost of all of them, with what the server pays for decisions, is at most the budget, it is not used
//! up with work left.

use punctual_model::guarantees::Dominant;
use punctual_model::index::TaskIx;
use punctual_sched::Duration;

use crate::answer::Test;
use crate::demand::{Demand, requested};
use crate::findings::{Findings, greatest};
use crate::fixed_priority::{self, LATE_FACTOR_MAX, Server};
use crate::guest::content::Ranked;
use crate::guest::urgency::question;
use crate::inputs::Inputs;

/// A task, and what it waits for.
struct Answered {
    task: TaskIx,
    demand: Demand,
    /// Of the same guest, as urgent or more.
    above: Vec<Demand>,
    time: Duration,
}

/// Guarantees of tasks under fixed priorities that cannot use up the budget of their deferrable server;
/// nothing if they may. It need not be delivered in full.
pub(crate) fn light(inputs: Inputs<'_>, tasks: &[Ranked], server: &Server) -> Findings {
    let test = Test::LightLoad;
    let mut found = Findings::default();
    let answered: Option<Vec<Answered>> =
        tasks.iter().map(|ranked| response(inputs, ranked, tasks, server)).collect();
    let Some(answered) = answered.filter(|answered| !may_be_used_up(answered, server)) else { return found };
    for Answered { task, demand, above, time } in answered.iter().filter(|of| of.time <= of.demand.deadline) {
        let guest = requested(above, *time);
        let parts = [
            (Dominant::OwnCost, demand.cost),
            (Dominant::OtherTasks, guest),
            (Dominant::OtherVcpus, time.saturating_sub(demand.cost + guest)),
        ];
        found.bounded(inputs, *task, *time, greatest(&parts), test);
    }
    found
}

/// The response time of a task that never waits for budget; `None` if it has no bound.
fn response(inputs: Inputs<'_>, ranked: &Ranked, all: &[Ranked], server: &Server) -> Option<Answered> {
    let task = ranked.task().filter(|task| !inputs.is_served(*task))?;
    let question = question(inputs, ranked, all, Test::LightLoad).ok()?;
    let above: Vec<Demand> = question.delaying.demands().copied().collect();
    let demand = question.demand;
    let limit = demand.deadline * LATE_FACTOR_MAX;
    let time = fixed_priority::response_in_full_server(&demand, &above, server, limit)?;
    Some(Answered { task, demand, above, time })
}

/// May these jobs execute for longer than the budget in some period?
fn may_be_used_up(tasks: &[Answered], server: &Server) -> bool {
    let jobs = |of: &Answered| (server.period + of.time).div_ceil(of.demand.period);
    let cost: Duration = tasks.iter().map(|of| of.demand.cost * jobs(of)).sum();
    // Each job may find the server asleep, which then pays for the decision in which it begins to run: once,
    // or twice where another vCPU of the guest wakes it.
    let starts = tasks.iter().map(jobs).fold(0, u64::saturating_add).saturating_mul(2);
    cost + server.costs.change() * starts + server.costs.within(server.period) > server.budget
}
