//! Global earliest deadline first on several processors, without affinities: sufficient tests.
//!
//! Sources: Goossens, Funk, Baruah, *Priority-Driven Scheduling of Periodic Task Systems on Multiprocessors*,
//! 2003 (density); Bertogna, Cirinei, Lipari, *Schedulability Analysis of Global Scheduling Algorithms on
//! Multiprocessor Platforms*, IEEE TPDS 2009 (slack); Bertogna & Cirinei, *Response-Time Analysis for
//! Globally Scheduled Symmetric Multiprocessor Platforms*, RTSS 2007 (response times). Deadlines are at most
//! the periods.

use crate::demand::{Demand, fixed_point, utilization_at_most};
use crate::overhead::Decisions;

/// Rounds of slack improvement; more bring next to nothing.
const ROUNDS_MAX: usize = 64;

/// GFB: do the densities add up to at most m - (m - 1) x the greatest density?
///
/// Holds for everything that asks for at most a share of a processor up to each deadline, constant bandwidth
/// servers included. Densities cost / deadline.
pub fn density_test(densities: &[(u64, u64)], processors: usize) -> bool {
    let greatest = densities.iter().copied().max_by(|a, b| {
        let (left, right) = (u128::from(a.0) * u128::from(b.1), u128::from(b.0) * u128::from(a.1));
        left.cmp(&right)
    });
    let Some(greatest) = greatest else { return true };
    if greatest.0 > greatest.1 {
        return false;
    }
    // The sum plus (m - 1) times the greatest is at most m.
    let others = std::iter::repeat_n(greatest, processors - 1);
    utilization_at_most(densities.iter().copied().chain(others), (processors as u64, 1))
}

/// Bertogna, Cirinei, Lipari: each task's least slack at its deadline, in ns, improved until nothing changes;
/// `None` if some deadline may be missed.
pub fn slack_test(tasks: &[Demand], processors: usize) -> Option<Vec<u64>> {
    improve(tasks, |k, slack| {
        let task = &tasks[k];
        let room = task.deadline.checked_sub(task.cost)?;
        let others =
            interference(tasks, k, |i| due_in_window(&tasks[i], slack[i], task.deadline).min(room + 1));
        room.checked_sub(others / processors as u64)
    })
}

/// Bertogna & Cirinei: each task's worst response time, in ns; `None` if some deadline may be missed.
pub fn response_times(tasks: &[Demand], processors: usize, costs: &Decisions) -> Option<Vec<u64>> {
    let slack = improve(tasks, |k, slack| {
        let task = &tasks[k];
        let response = fixed_point(task.cost, task.deadline, |w| {
            let others = (0..tasks.len()).filter(|i| *i != k);
            let work = others.map(|i| {
                let due = due_in_window(&tasks[i], slack[i], task.deadline);
                due.min(in_any_window(&tasks[i], slack[i], w))
            });
            task.cost.saturating_add(waiting(work.collect(), processors)).saturating_add(costs.within(w))
        })?;
        Some(task.deadline - response)
    })?;
    Some(tasks.iter().zip(slack).map(|(task, slack)| task.deadline - slack).collect())
}

/// Repeats `update` for every task, keeping its best slack, until nothing changes.
fn improve(tasks: &[Demand], update: impl Fn(usize, &[u64]) -> Option<u64>) -> Option<Vec<u64>> {
    let mut slack = vec![0; tasks.len()];
    for _ in 0..ROUNDS_MAX {
        let (mut feasible, mut changed) = (true, false);
        for k in 0..tasks.len() {
            match update(k, &slack) {
                Some(new) if new > slack[k] => (slack[k], changed) = (new, true),
                Some(_) => {}
                None => feasible = false,
            }
        }
        if feasible && !changed {
            return Some(slack);
        }
        if !changed {
            return None;
        }
    }
    None
}

/// The longest all processors can be busy with `work` of others, each on at most one of them at a time: the
/// least x with floor(sum of min(work, x + 1) / processors) <= x, found without stepping through the ns.
pub(crate) fn waiting(mut work: Vec<u64>, processors: usize) -> u64 {
    work.sort_unstable_by(|a, b| b.cmp(a));
    let total = work.iter().fold(0u128, |sum, w| sum + u128::from(*w));
    let greatest = &work[..work.len().min(processors - 1)];
    let mut rest = total - greatest.iter().fold(0u128, |sum, w| sum + u128::from(*w));
    // With the `busy` greatest of them there all the time, the others keep the remaining processors this
    // long.
    for busy in (0..=greatest.len()).rev() {
        let next = work.get(busy).copied().unwrap_or(0);
        let free = (processors - busy) as u128;
        let wait = u64::try_from(rest / free).unwrap_or(u64::MAX).max(next);
        if busy == 0 || wait < work[busy - 1] {
            return wait;
        }
        rest += u128::from(work[busy - 1]);
    }
    0
}

fn interference(tasks: &[Demand], of: usize, part: impl Fn(usize) -> u64) -> u64 {
    (0..tasks.len()).filter(|i| *i != of).fold(0u64, |sum, i| sum.saturating_add(part(i)))
}

/// Most work of `task` in a window of this length with deadlines up to its end (TPDS 2009, equation 17).
fn due_in_window(task: &Demand, slack: u64, window: u64) -> u64 {
    let jobs = window / task.period;
    let carried = (window % task.period).saturating_sub(slack).min(task.cost);
    jobs.saturating_mul(task.cost).saturating_add(carried)
}

/// Most work of `task` in any window of this length (TPDS 2009, equations 14 and 15).
pub(crate) fn in_any_window(task: &Demand, slack: u64, window: u64) -> u64 {
    let stretched = window.saturating_add((task.deadline - task.cost).saturating_sub(slack));
    let jobs = stretched / task.period;
    jobs.saturating_mul(task.cost).saturating_add((stretched % task.period).min(task.cost))
}

/// A server under earliest deadline first that keeps its budget while it has no work (RTDS, SEDF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepingServer {
    /// Budget in every period, in ns.
    pub budget: u64,
    /// Period and relative deadline, in ns.
    pub period: u64,
}

impl KeepingServer {
    /// Most it runs in a window of this length with deadlines up to its end: a full budget in every whole
    /// period, and as much of the saved budget of the first one as fits. What it has left at a deadline is
    /// lost, so nothing is carried in.
    fn due_in_window(&self, window: u64) -> u64 {
        (window / self.period)
            .saturating_mul(self.budget)
            .saturating_add(self.budget.min(window % self.period))
    }

    /// Most it runs in any window: a saved budget, and from then on one in every period.
    fn in_any_window(&self, window: u64) -> u64 {
        Demand::implicit(self.budget, self.period).late_by(self.period - self.budget).requested(window)
    }
}

/// The longest time from the begin of a period of `servers[of]` until it had its budget, when it always has
/// work, in ns, under global EDF of budget-keeping servers on so many processors; `None` beyond the period.
///
/// The argument of Bertogna, Cirinei, Lipari with the servers' own bounds on what they run: while the server
/// waits, all processors run servers with deadlines up to its own. It is sharper than for tasks in that a
/// server can never be late: at its deadline what is left of its budget expires. A budget interferes with one
/// switch more than it is, since a switch may overrun it.
pub fn time_for_budget(
    servers: &[KeepingServer],
    of: usize,
    processors: usize,
    costs: &Decisions,
) -> Option<u64> {
    let KeepingServer { budget, period } = servers[of];
    let interfering = |i: usize, w: u64| {
        let overrun = (servers[i].budget + costs.change()).min(servers[i].period);
        let server = KeepingServer { budget: overrun, ..servers[i] };
        server.due_in_window(period).min(server.in_any_window(w))
    };
    fixed_point(budget, period, |w| {
        let others = (0..servers.len()).filter(|i| *i != of).map(|i| interfering(i, w));
        budget.saturating_add(waiting(others.collect(), processors)).saturating_add(costs.within(w))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_waiting_time_is_the_least_solution_of_its_inequality(
            work in prop::collection::vec(0u64..60, 0..8), processors in 1usize..5,
        ) {
            let holds = |x: u64| work.iter().map(|w| (*w).min(x + 1)).sum::<u64>() / processors as u64 <= x;
            let least = (0..).find(|x| holds(*x)).expect("all work ends");
            prop_assert_eq!(waiting(work.clone(), processors), least);
        }
    }

    #[test]
    fn a_server_that_keeps_its_budget_runs_twice_as_long_without_a_break() {
        let server = KeepingServer { budget: 3, period: 10 };
        assert_eq!([3, 6, 7, 13].map(|w| server.in_any_window(w)), [3, 6, 6, 6]);
        assert_eq!([2, 3, 10, 12, 13].map(|w| server.due_in_window(w)), [2, 3, 3, 5, 6]);
    }
}
