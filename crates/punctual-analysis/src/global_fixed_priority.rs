//! Global fixed priorities on several processors, without affinities: a sufficient test.
//!
//! Source: Bertogna & Cirinei, *Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor Platforms*,
//! RTSS 2007. Deadlines are at most the periods.

use crate::demand::{Demand, fixed_point};
use crate::global_edf::{in_any_window, waiting};
use crate::overhead::Decisions;

/// A task with its priority; a smaller number is more urgent, equal ones are served in any order.
pub type Ranked = (u32, Demand);

/// Each task's worst response time, in ns; `None` where the deadline may be missed, and for all that are less urgent than
/// such a task.
pub fn response_times(tasks: &[Ranked], processors: usize, costs: &Decisions) -> Vec<Option<u64>> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|i| tasks[*i].0);
    let mut found: Vec<Option<u64>> = vec![None; tasks.len()];
    for equals in order.chunk_by(|a, b| tasks[*a].0 == tasks[*b].0) {
        let urgent = |i: usize| tasks[i].0 < tasks[equals[0]].0;
        let times: Option<Vec<u64>> = equals
            .iter()
            .map(|&k| {
                let above = (0..tasks.len()).filter(|i| urgent(*i) || (*i != k && equals.contains(i)));
                let above: Vec<(Demand, u64)> = above
                    .map(|i| {
                        // Equals are taken to be late as they may be; it holds when all of them turn out in time.
                        let slack = found[i].map_or(0, |time| tasks[i].1.deadline - time);
                        (tasks[i].1, slack)
                    })
                    .collect();
                response(&tasks[k].1, &above, processors, costs)
            })
            .collect();
        let Some(times) = times else { return found };
        equals.iter().zip(times).for_each(|(k, time)| found[*k] = Some(time));
    }
    found
}

fn response(task: &Demand, above: &[(Demand, u64)], processors: usize, costs: &Decisions) -> Option<u64> {
    let constrained = |d: &Demand| d.cost <= d.deadline && d.deadline <= d.period;
    if !constrained(task) || !above.iter().all(|(other, _)| constrained(other)) {
        return None;
    }
    fixed_point(task.cost, task.deadline, |w| {
        let work = above.iter().map(|(other, slack)| in_any_window(other, *slack, w)).collect();
        task.cost.saturating_add(waiting(work, processors)).saturating_add(costs.within(w))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(priority: u32, cost: u64, period: u64) -> Ranked {
        (priority, Demand::implicit(cost, period))
    }

    #[test]
    fn as_many_tasks_as_processors_never_wait() {
        let tasks = [task(1, 5, 10), task(2, 9, 10), task(3, 10, 10)];
        let times = response_times(&tasks, 3, &Decisions::default());
        assert_eq!(times, [Some(5), Some(9), Some(10)]);
    }

    /// Dhall & Liu 1978: rate-monotonic, the long task is late on two processors.
    #[test]
    fn the_long_task_of_dhall_and_liu_is_not_accepted_and_those_above_are() {
        let tasks = [task(1, 2, 100), task(2, 2, 100), task(3, 100, 101)];
        let times = response_times(&tasks, 2, &Decisions::default());
        assert_eq!(times, [Some(2), Some(2), None]);
    }

    #[test]
    fn equals_delay_each_other() {
        let tasks = [task(1, 4, 10), task(1, 4, 10)];
        assert_eq!(response_times(&tasks, 1, &Decisions::default()), [Some(8), Some(8)]);
    }
}
