//! By how much each task's cost may grow before something breaks.

use std::collections::BTreeSet;

use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::{PoolIx, TaskIx};
use punctual_sched::Duration;

use crate::analyse::answers;
use crate::demand::NANOSECOND;
use crate::inputs::{Index, Inputs, parent_of};
use crate::needs::{Need, is_whole};
use crate::pool::{Group, groups, of_group};
use crate::watch::{Stage, Stopped, Watch, report};

/// How much one task may grow while all others stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    pub task: TaskIx,
    pub name: String,
    /// The domain it runs in, or the pool it runs in directly.
    pub parent: String,
    pub cost: Duration,
    /// The greatest cost with which everything that is guaranteed now still is.
    pub cost_max: Duration,
    /// The task, flow or chain that loses its guarantee with one ns more.
    pub breaks: String,
}

/// Asks for every task that is guaranteed now. Costs grow in steps of 1 ns up to the deadline, beyond which
/// nothing can hold; the answers are as exact as the tests.
///
/// # Errors
/// When the watch stopped it.
pub fn sensitivity(host: &Host, mut watch: Watch<'_>) -> Result<Vec<Growth>, Stopped> {
    if is_whole(host) {
        return of_whole(host, watch);
    }
    let index = Index::new(host);
    let mut host = host.clone();
    let mut all = Vec::new();
    let (total, mut done) = (host.tasks.len(), 0);
    for pool in (0..host.pools.len()).map(PoolIx) {
        for group in groups(Inputs::new(&host, &index), pool).unwrap_or_default() {
            let of = Question { index: &index, pool, group: &group };
            let before = of.guaranteed(&host);
            for &task in &before {
                report(&mut watch, Stage::Growth { done, total })?;
                done += 1;
                all.push(of.growth(&mut host, &before, task));
            }
        }
    }
    all.sort_by_key(|growth| growth.task);
    Ok(all)
}

/// The same where deadlines depend on several units: every question is one to the analysis of the whole host.
fn of_whole(host: &Host, mut watch: Watch<'_>) -> Result<Vec<Growth>, Stopped> {
    let mut host = host.clone();
    let first = answers(&host);
    let met: Vec<Need> =
        Need::all(&host, &first).into_iter().filter(|need| need.is_met(&host, &first)).collect();
    let (total, mut all) = (host.tasks.len(), Vec::new());
    for task in (0..host.tasks.len()).map(TaskIx).filter(|task| met.contains(&Need::Task(*task))) {
        let (Work::Jobs { cost, deadline, .. } | Work::Served { cost, deadline }) = host.tasks[task.0].work
        else {
            continue;
        };
        let broken = |host: &Host| {
            let now = answers(host);
            // The task itself last: that others break is the news.
            let others = met.iter().filter(|need| **need != Need::Task(task));
            others.chain([&Need::Task(task)]).find(|need| !need.is_met(host, &now)).copied()
        };
        let (mut low, mut high) = (cost.max, deadline + NANOSECOND);
        while high > low + NANOSECOND {
            report(&mut watch, Stage::Growth { done: all.len(), total })?;
            let middle = low + high.saturating_sub(low) / 2;
            set_cost(&mut host, task, middle);
            if broken(&host).is_none() { low = middle } else { high = middle }
        }
        set_cost(&mut host, task, high);
        let breaks = broken(&host).unwrap_or(Need::Task(task)).name(&host).to_owned();
        set_cost(&mut host, task, cost.max);
        let (name, parent) = (host.tasks[task.0].name.clone(), parent_of(&host, task).to_owned());
        all.push(Growth { task, name, parent, cost: cost.max, cost_max: low, breaks });
    }
    Ok(all)
}

/// Which of these units' tasks are guaranteed?
struct Question<'a> {
    index: &'a Index,
    pool: PoolIx,
    group: &'a Group,
}

impl Question<'_> {
    fn guaranteed(&self, host: &Host) -> BTreeSet<TaskIx> {
        let found = of_group(Inputs::new(host, self.index), self.pool, self.group, None);
        let holds = found.tasks.into_iter().filter(|(_, answer)| answer.answer.is_guaranteed());
        holds.map(|(task, _)| task).collect()
    }

    /// The host is left as it was.
    fn growth(&self, host: &mut Host, before: &BTreeSet<TaskIx>, task: TaskIx) -> Growth {
        let Work::Jobs { cost, deadline, .. } = host.tasks[task.0].work else {
            unreachable!("busy loops have no guarantee")
        };
        let mut broken = |with: Duration| -> Option<TaskIx> {
            set_cost(host, task, with);
            let now = self.guaranteed(host);
            // The task itself last: that others break is the news.
            let others = before.iter().filter(|other| **other != task);
            others.chain([&task]).find(|task| !now.contains(task)).copied()
        };
        // One beyond the deadline surely breaks.
        let (mut low, mut high) = (cost.max, deadline + NANOSECOND);
        while high > low + NANOSECOND {
            let middle = low + high.saturating_sub(low) / 2;
            if broken(middle).is_none() { low = middle } else { high = middle }
        }
        let breaks = broken(high).unwrap_or(task);
        set_cost(host, task, cost.max);
        Growth {
            task,
            name: host.tasks[task.0].name.clone(),
            parent: parent_of(host, task).to_owned(),
            cost: cost.max,
            cost_max: low,
            breaks: host.tasks[breaks.0].name.clone(),
        }
    }
}

fn set_cost(host: &mut Host, task: TaskIx, to: Duration) {
    if let Work::Jobs { cost, .. } | Work::Served { cost, .. } = &mut host.tasks[task.0].work {
        cost.max = to;
    }
}
