//! By how much each task's cost may grow before something breaks.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::TaskIx;
use punctual_sched::Duration;
use serde::Serialize;

use crate::host::{Analysis, Index, parent_of};
use crate::pool::Group;
use crate::synthesize::{Stage, Watch};

/// How much one task may grow while all others stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Index in [`Host::tasks`].
    #[serde(skip)]
    pub task: TaskIx,
    /// Name.
    pub name: String,
    /// The domain it runs in, or the pool it runs in directly.
    pub parent: String,
    /// Its greatest cost, in ns.
    pub cost_ns: u64,
    /// The greatest cost with which everything that is guaranteed now still is, in ns.
    pub cost_max_ns: u64,
    /// Who loses its guarantee with one ns more.
    pub breaks: String,
}

/// Asks for every task that is guaranteed now. Costs grow in steps of 1 ns up to the deadline, beyond which
/// nothing can hold; the answers are exact as far as the tests tell.
///
/// `None` when the watch stopped it.
pub fn sensitivity(host: &Host, watch: Watch) -> Option<Vec<Growth>> {
    let index = Index::new(host);
    let mut host = host.clone();
    let mut all = Vec::new();
    let (total, mut done) = (host.tasks.len(), 0);
    for pool in 0..host.pools.len() {
        let groups = Analysis::new(&host, &index).groups(pool).unwrap_or_default();
        for group in groups {
            let before = guaranteed(&host, &index, pool, &group);
            for &task in &before {
                if let ControlFlow::Break(()) = watch(Stage::Growth(done, total)) {
                    return None;
                }
                done += 1;
                all.push(growth(&mut host, &index, pool, &group, &before, task));
            }
        }
    }
    all.sort_by_key(|growth| growth.task);
    Some(all)
}

fn guaranteed(host: &Host, index: &Index, pool: usize, group: &Group) -> BTreeSet<usize> {
    let mut analysis = Analysis::new(host, index);
    analysis.group(pool, group);
    let holds = analysis.tasks.iter().filter(|(_, report)| report.verdict.is_guaranteed());
    holds.map(|(task, _)| *task).collect()
}

/// The host is left as it was.
fn growth(
    host: &mut Host,
    index: &Index,
    pool: usize,
    group: &Group,
    before: &BTreeSet<usize>,
    task: usize,
) -> Growth {
    let Work::Jobs { cost, deadline, .. } = host.tasks[task].work else {
        unreachable!("busy loops have no guarantee")
    };
    let mut broken = |ns: u64| -> Option<usize> {
        set_cost(host, task, Duration::from_ns(ns));
        let now = guaranteed(host, index, pool, group);
        // The task itself last: that others break is the news.
        before.iter().filter(|t| **t != task).chain([&task]).find(|t| !now.contains(t)).copied()
    };
    let now = cost.max.as_ns();
    // One beyond the deadline surely breaks.
    let (mut low, mut high) = (now, deadline.as_ns() + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if broken(middle).is_none() { low = middle } else { high = middle }
    }
    let breaks = broken(high).unwrap_or(task);
    set_cost(host, task, cost.max);
    Growth {
        task: TaskIx(task),
        name: host.tasks[task].name.clone(),
        parent: parent_of(host, task).to_string(),
        cost_ns: now,
        cost_max_ns: low,
        breaks: host.tasks[breaks].name.clone(),
    }
}

fn set_cost(host: &mut Host, task: usize, to: Duration) {
    if let Work::Jobs { cost, .. } = &mut host.tasks[task].work {
        cost.max = to;
    }
}
