//! Tasks that surely miss deadlines because their vCPU gets no more than it does.

use punctual_model::index::TaskIx;
use punctual_sched::Duration;
use punctual_sched::utilization::Utilization;

use crate::answer::{Refutation, Test};
use crate::demand::{Demand, NANOSECOND, requested};
use crate::findings::Findings;
use crate::fixed_priority::Miss;
use crate::guest::content::{Content, Ranked};
use crate::guest::locks::is_hastened;
use crate::guest::urgency::Delaying;
use crate::inputs::Inputs;
use crate::reason::Reason;

/// How many jobs a counter-example is looked for in when more is asked for than is supplied in the long run.
const JOBS_MAX: u64 = 2_000;

/// The same when only a burst can be too much.
const BURST_MAX: u64 = 4;

/// An upper limit on what a unit gets: `budget` in every `period`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cap {
    pub(crate) budget: Duration,
    pub(crate) period: Duration,
    /// Budgets that may come on top of one for every period begun.
    pub(crate) more: u64,
}

impl Cap {
    /// The most that it gets from time zero to `until`.
    fn supplied(&self, until: Duration) -> Duration {
        self.budget * (until.div_ceil(self.period) + self.more)
    }

    /// The miss of a job that ends after this much work, if the work is more than is supplied until `due`.
    /// What is missing takes at least its own length.
    fn miss(&self, work: Duration, due: Duration) -> Option<Miss> {
        let missing = work.checked_sub(self.supplied(due)).filter(|missing| !missing.is_zero())?;
        Some(Miss { due, late_min: Some(missing) })
    }
}

/// Refutes those tasks that miss deadlines whenever they get no more than `cap`.
pub(super) fn refute_inside(inputs: Inputs<'_>, content: &Content, cap: Cap) -> Findings {
    let mut found = Findings::default();
    let mut refute = |task: TaskIx, miss: Option<Miss>| {
        if let Some(miss) = miss {
            let refutation = Refutation::synchronous(vec![task], miss.due).late(miss.late_min);
            found.refuted(inputs, task, refutation, Test::BudgetsUpToDeadline);
        }
    };
    match content {
        Content::Ranked(all) => {
            // No packet need ever come.
            let releasing = |ranked: &Ranked| ranked.task().filter(|task| !inputs.is_served(*task));
            for ranked in all {
                let Some(task) = releasing(ranked).filter(|task| !is_hastened(inputs, *task)) else {
                    continue;
                };
                let Some(demand) = inputs.demand(task) else { continue };
                refute(task, overload(&demand, &Delaying::of(inputs, ranked, all).urgent, cap));
            }
        }
        Content::Edf(tasks) => {
            let (with, demands) = inputs.releasing(tasks);
            for (i, task) in with.into_iter().enumerate().filter(|(_, task)| !is_hastened(inputs, *task)) {
                refute(task, overload_edf(&demands, i, cap));
            }
        }
    }
    found
}

/// Nothing is supplied for sure, yet no more than `cap`: refutes what it can.
pub(crate) fn unsupplied(
    inputs: Inputs<'_>,
    content: &Content,
    cap: Cap,
    reason: Reason,
    test: Test,
) -> Findings {
    let refuted = refute_inside(inputs, content, cap);
    refuted.and(Findings::all_unknown(inputs, content.tasks(), reason, test))
}

/// The deadline that a task below `urgent` ones misses after synchronous release, if a limit on what its
/// vCPU gets makes it: were its k-th job done by its deadline, all that more urgent tasks released until the
/// job before was due would be done, too, and together that is more than the vCPU got.
fn overload(task: &Demand, urgent: &[Demand], cap: Cap) -> Option<Miss> {
    (0..jobs_to_try(urgent.iter().chain([task]), cap)).find_map(|before| {
        let (release, due) = job(task, before)?;
        let work = task.cost * (before + 1) + requested(urgent, release.max(NANOSECOND));
        cap.miss(work, due)
    })
}

/// The same under EDF: what is due before the job and released by the time it is.
fn overload_edf(tasks: &[Demand], of: usize, cap: Cap) -> Option<Miss> {
    let task = &tasks[of];
    (0..jobs_to_try(tasks.iter(), cap)).find_map(|before| {
        let (release, due) = job(task, before)?;
        let others = tasks.iter().enumerate().filter(|(i, _)| *i != of);
        let work: Duration = others
            .map(|(_, d)| d.due_within(due - NANOSECOND).min(d.requested(release.max(NANOSECOND))))
            .sum();
        cap.miss(work + task.cost * (before + 1), due)
    })
}

/// Release and deadline of the job after this many others, counted from a synchronous release; `None` beyond
/// the end of time.
fn job(task: &Demand, before: u64) -> Option<(Duration, Duration)> {
    let release = task.period * before;
    let due = release + task.deadline;
    (due < Duration::MAX).then_some((release, due))
}

fn jobs_to_try<'a>(tasks: impl Iterator<Item = &'a Demand>, cap: Cap) -> u64 {
    let fits = Utilization::of(tasks.map(|d| (d.cost, d.period))).at_most(cap.budget, cap.period);
    if fits { BURST_MAX } else { JOBS_MAX }
}
