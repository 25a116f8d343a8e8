//! Global fixed priorities on several processors, without affinities: a sufficient test.
//!
//! Source: Bertogna & Cirinei, *Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor
//! Platforms*, RTSS 2007. Deadlines are at most the periods.

use punctual_sched::Duration;

use crate::demand::{Demand, fixed_point};
use crate::global_edf::{in_any_window, waiting};
use crate::overhead::Decisions;

/// A task with its priority; a smaller number is more urgent, equal ones are served in the order
/// in which they woke.
pub type Ranked = (u32, Demand);

/// Each task's worst response time; `None` where the deadline may be missed, and for all that are less
/// urgent than such a task.
pub fn response_times(tasks: &[Ranked], processors: usize, costs: &Decisions) -> Vec<Option<Duration>> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|i| tasks[*i].0);
    let mut found: Vec<Option<Duration>> = vec![None; tasks.len()];
    for equals in order.chunk_by(|a, b| tasks[*a].0 == tasks[*b].0) {
        let above: Vec<Above> = (0..tasks.len())
            .filter(|i| tasks[*i].0 < tasks[equals[0]].0)
            .map(|i| Above {
                demand: tasks[i].1,
                slack: found[i].map_or(Duration::ZERO, |time| tasks[i].1.deadline - time),
                once: false,
            })
            .collect();
        // Equals are served in the order in which they woke. As long as each job ends before the next of its
        // task comes, at most one of each other task is ahead; a task whose jobs follow each other without a
        // break keeps its place.
        let in_turn = class(tasks, equals, &above, true, processors, costs)
            .filter(|times| equals.iter().zip(times).all(|(k, time)| *time < tasks[*k].1.period));
        let times = in_turn.or_else(|| class(tasks, equals, &above, false, processors, costs));
        let Some(times) = times else { return found };
        equals.iter().zip(times).for_each(|(k, time)| found[*k] = Some(time));
    }
    found
}

/// A task that delays another.
#[derive(Clone, Copy)]
struct Above {
    demand: Demand,
    /// How long before its deadline it is surely done.
    slack: Duration,
    /// Does at most one of its jobs come first?
    once: bool,
}

/// Response times of tasks of one priority; each holds if all of them do, so none is known if one is not.
fn class(
    tasks: &[Ranked],
    equals: &[usize],
    above: &[Above],
    once: bool,
    processors: usize,
    costs: &Decisions,
) -> Option<Vec<Duration>> {
    let time = |k: &usize| {
        let others = equals.iter().filter(|i| *i != k);
        // Equals are taken to be as late as they may be.
        let others = others.map(|i| Above { demand: tasks[*i].1, slack: Duration::ZERO, once });
        let all: Vec<Above> = above.iter().copied().chain(others).collect();
        response(&tasks[*k].1, &all, processors, costs)
    };
    equals.iter().map(time).collect()
}

fn response(task: &Demand, above: &[Above], processors: usize, costs: &Decisions) -> Option<Duration> {
    let constrained = |d: &Demand| d.cost <= d.deadline && d.deadline <= d.period;
    if !constrained(task) || !above.iter().all(|other| constrained(&other.demand)) {
        return None;
    }
    fixed_point(task.cost, task.deadline, |w| {
        let work = above.iter().map(|other| {
            let most = if other.once { other.demand.cost } else { Duration::MAX };
            in_any_window(&other.demand, other.slack, w).min(most)
        });
        task.cost + waiting(work.collect(), processors) + costs.within(w)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(priority: u32, cost: u64, period: u64) -> Ranked {
        (priority, Demand::implicit(Duration::from_ns(cost), Duration::from_ns(period)))
    }

    fn times<const N: usize>(ns: [Option<u64>; N]) -> [Option<Duration>; N] {
        ns.map(|ns| ns.map(Duration::from_ns))
    }

    #[test]
    fn as_many_tasks_as_processors_never_wait() {
        let tasks = [task(1, 5, 10), task(2, 9, 10), task(3, 10, 10)];
        let found = response_times(&tasks, 3, &Decisions::default());
        assert_eq!(found, times([Some(5), Some(9), Some(10)]));
    }

    /// Dhall & Liu 1978: rate-monotonic, the long task is late on two processors.
    #[test]
    fn the_long_task_of_dhall_and_liu_is_not_accepted_and_those_above_are() {
        let tasks = [task(1, 2, 100), task(2, 2, 100), task(3, 100, 101)];
        let found = response_times(&tasks, 2, &Decisions::default());
        assert_eq!(found, times([Some(2), Some(2), None]));
    }

    #[test]
    fn equals_delay_each_other() {
        let tasks = [task(1, 4, 10), task(1, 4, 10)];
        assert_eq!(response_times(&tasks, 1, &Decisions::default()), times([Some(8), Some(8)]));
    }
}
