//! Several processors without budgets.

use punctual_model::guarantees::Dominant;
use punctual_model::index::{PoolIx, TaskIx};
use punctual_sched::Duration;

use super::decisions::{add_wakes, decisions};
use super::groups::{GLOBAL_MAX, Group};
use super::processor::tasks_only;
use crate::answer::{Refutation, Test};
use crate::demand::Demand;
use crate::findings::{Findings, greatest};
use crate::guest::any_served;
use crate::inputs::{Inputs, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::{global_edf, global_fixed_priority};

/// How many jobs are looked at for the first one that is late.
const JOBS_MAX: u64 = 2_000;

fn all_decisions(inputs: Inputs<'_>, pool: PoolIx, group: &Group) -> Decisions {
    let mut costs = decisions(inputs, pool, group.processors);
    for unit in &group.units {
        add_wakes(inputs, *unit, group.processors as u64, &mut costs);
    }
    costs
}

/// The test of global EDF that holds, with what it says about each task.
enum EdfTest {
    ResponseTimes(Vec<Duration>),
    Slack(Vec<Duration>),
    Density,
    None,
}

impl EdfTest {
    /// Response times, the density test and the slack test; the first that holds gives the bounds.
    fn of(demands: &[Demand], processors: usize, costs: &Decisions) -> Self {
        let is_constrained = |d: &Demand| d.cost <= d.deadline && d.deadline <= d.period;
        let is_in_reach = demands.len() <= GLOBAL_MAX && demands.iter().all(is_constrained);
        if is_in_reach && let Some(times) = global_edf::response_times(demands, processors, costs) {
            return EdfTest::ResponseTimes(times);
        }
        if !costs.free() {
            return EdfTest::None;
        }
        let densities: Vec<_> = demands.iter().map(|d| (d.cost, d.deadline.min(d.period))).collect();
        if global_edf::density_test(&densities, processors) {
            return EdfTest::Density;
        }
        match is_in_reach.then(|| global_edf::slack_test(demands, processors)).flatten() {
            Some(slack) => EdfTest::Slack(slack),
            None => EdfTest::None,
        }
    }
}

/// Tasks under global EDF.
pub(super) fn edf(inputs: Inputs<'_>, pool: PoolIx, group: &Group) -> Findings {
    let Some(tasks) = tasks_only(&group.units) else {
        let units = group.units.iter().copied();
        return Findings::unknown_below(inputs, units, Reason::EdfVcpus, Test::GlobalEdf);
    };
    if let Some(unknown) = any_served(inputs, &tasks, Test::GlobalEdf) {
        return unknown;
    }
    let (with, demands) = inputs.releasing(&tasks);
    let test = EdfTest::of(&demands, group.processors, &all_decisions(inputs, pool, group));
    let others = Some(Dominant::OtherTasks);
    let mut found = Findings::default();
    for (i, (task, demand)) in with.into_iter().zip(&demands).enumerate() {
        match &test {
            EdfTest::ResponseTimes(times) => {
                let dominant = dominant_of(demand, times[i]);
                found.bounded(inputs, task, times[i], dominant, Test::GlobalEdfResponseTimes);
            }
            EdfTest::Slack(slack) => {
                found.bounded(inputs, task, demand.deadline - slack[i], others, Test::GlobalEdfSlack);
            }
            EdfTest::Density => {
                found.bounded(inputs, task, demand.deadline, others, Test::GlobalEdfDensity);
            }
            EdfTest::None => match alone_too_long(task, demand) {
                Some(refutation) => found.refuted(inputs, task, refutation, Test::GlobalEdf),
                None => found.unknown(inputs, task, Reason::GlobalEdf, Test::GlobalEdf),
            },
        }
    }
    found
}

/// Tasks under global fixed priorities.
pub(super) fn fixed_priority(inputs: Inputs<'_>, pool: PoolIx, group: &Group) -> Findings {
    let test = Test::GlobalFixedPriority;
    let Some(tasks) = tasks_only(&group.units) else {
        let units = group.units.iter().copied();
        return Findings::unknown_below(inputs, units, Reason::GlobalFixedPriorityVcpus, test);
    };
    if let Some(unknown) = any_served(inputs, &tasks, test) {
        return unknown;
    }
    let costs = all_decisions(inputs, pool, group);
    let priority = |task: &TaskIx| inputs.priority(UnitIx::Task(*task));
    // Below as many busy loops as there are processors nothing surely runs.
    let busy_loops = tasks.iter().filter(|task| inputs.demand(**task).is_none());
    let busiest = busy_loops.map(priority).min();
    let (with, demands) = inputs.releasing(&tasks);
    let ranked: Vec<_> = with.iter().map(priority).zip(demands).collect();
    let times = if ranked.len() > GLOBAL_MAX {
        vec![None; ranked.len()]
    } else {
        global_fixed_priority::response_times(&ranked, group.processors, &costs)
    };
    let mut found = Findings::default();
    for ((task, (priority, demand)), time) in with.into_iter().zip(&ranked).zip(times) {
        let is_beside_busy_loop = busiest.is_some_and(|busiest| busiest <= *priority);
        match (time, alone_too_long(task, demand)) {
            (_, Some(refutation)) => found.refuted(inputs, task, refutation, test),
            (Some(time), None) if !is_beside_busy_loop => {
                found.bounded(inputs, task, time, dominant_of(demand, time), test);
            }
            (Some(_), None) => found.unknown(inputs, task, Reason::GlobalBusyLoop, test),
            (None, None) => found.unknown(inputs, task, Reason::GlobalFixedPriority, test),
        }
    }
    found
}

fn dominant_of(demand: &Demand, time: Duration) -> Option<Dominant> {
    greatest(&[(Dominant::OwnCost, demand.cost), (Dominant::OtherTasks, time - demand.cost)])
}

/// A task that asks for more than one processor falls behind wherever it runs.
fn alone_too_long(task: TaskIx, demand: &Demand) -> Option<Refutation> {
    if demand.cost <= demand.period {
        return None;
    }
    let due = |jobs: u64| demand.period * (jobs - 1) + demand.deadline;
    let jobs = (1..=JOBS_MAX).find(|jobs| demand.cost * *jobs > due(*jobs))?;
    Some(Refutation::synchronous(vec![task], due(jobs)))
}
