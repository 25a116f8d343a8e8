//! Global earliest deadline first on several processors, without affinities: sufficient tests.
//!
//! Sources: Goossens, Funk, Baruah, *Priority-Driven Scheduling of Periodic Task Systems on Multiprocessors*,
//! 2003 (density); Bertogna, Cirinei, Lipari, *Schedulability Analysis of Global Scheduling Algorithms on
//! Multiprocessor Platforms*, IEEE TPDS 2009 (slack); Bertogna & Cirinei, *Response-Time Analysis for
//! Globally Scheduled Symmetric Multiprocessor Platforms*, RTSS 2007 (response times). Deadlines are at most
//! the periods.

use punctual_sched::Duration;
use punctual_sched::utilization::Utilization;

use crate::demand::{Demand, NANOSECOND, fixed_point, greatest_time};
use crate::overhead::Decisions;

/// Rounds of slack improvement; more bring next to nothing.
const ROUNDS_MAX: usize = 64;

/// GFB: do the densities add up to at most m - (m - 1) x the greatest density?
///
/// Holds for everything that asks for at most a share of a processor up to each deadline, constant bandwidth
/// servers included. Densities cost / deadline.
pub fn density_test(densities: &[(Duration, Duration)], processors: usize) -> bool {
    let product = |a: Duration, b: Duration| u128::from(a.as_ns()) * u128::from(b.as_ns());
    let greatest = densities.iter().copied().max_by(|a, b| product(a.0, b.1).cmp(&product(b.0, a.1)));
    let Some(greatest) = greatest else { return true };
    if greatest.0 > greatest.1 {
        return false;
    }
    // The sum plus (m - 1) times the greatest is at most m.
    let others = std::iter::repeat_n(greatest, processors - 1);
    Utilization::of(densities.iter().copied().chain(others)).fits(processors)
}

/// Bertogna, Cirinei, Lipari: each task's least slack at its deadline, improved until nothing changes; `None`
/// if some deadline may be missed.
pub fn slack_test(tasks: &[Demand], processors: usize) -> Option<Vec<Duration>> {
    improve(tasks, |k, slack| {
        let task = &tasks[k];
        let room = task.deadline.checked_sub(task.cost)?;
        let due = |i: usize| due_in_window(&tasks[i], slack[i], task.deadline).min(room + NANOSECOND);
        let interference: Duration = others(tasks.len(), k).map(due).sum();
        room.checked_sub(interference / processors as u64)
    })
}

/// Bertogna & Cirinei: each task's worst response time; `None` if some deadline may be missed.
pub fn response_times(tasks: &[Demand], processors: usize, costs: &Decisions) -> Option<Vec<Duration>> {
    let slack = improve(tasks, |k, slack| {
        let task = &tasks[k];
        let response = fixed_point(task.cost, task.deadline, |w| {
            let work = others(tasks.len(), k).map(|i| {
                let due = due_in_window(&tasks[i], slack[i], task.deadline);
                due.min(in_any_window(&tasks[i], slack[i], w))
            });
            task.cost + waiting(work.collect(), processors) + costs.within(w)
        })?;
        Some(task.deadline - response)
    })?;
    Some(tasks.iter().zip(slack).map(|(task, slack)| task.deadline - slack).collect())
}

fn others(len: usize, but: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |i| *i != but)
}

/// Repeats `update` for every task, keeping its best slack, until nothing changes.
fn improve(
    tasks: &[Demand],
    update: impl Fn(usize, &[Duration]) -> Option<Duration>,
) -> Option<Vec<Duration>> {
    let mut slack = vec![Duration::ZERO; tasks.len()];
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
pub(crate) fn waiting(mut work: Vec<Duration>, processors: usize) -> Duration {
    let sum = |work: &[Duration]| work.iter().fold(0u128, |sum, w| sum + u128::from(w.as_ns()));
    work.sort_unstable_by(|a, b| b.cmp(a));
    let greatest = &work[..work.len().min(processors - 1)];
    let mut rest_ns = sum(&work) - sum(greatest);
    // With the `busy` greatest of them there all the time, the others keep the remaining processors this
    // long.
    for busy in (0..=greatest.len()).rev() {
        let next = work.get(busy).copied().unwrap_or_default();
        let wait_ns = rest_ns / (processors - busy) as u128;
        let wait = u64::try_from(wait_ns).map_or(Duration::MAX, Duration::from_ns).max(next);
        if busy == 0 || wait < work[busy - 1] {
            return wait;
        }
        rest_ns += u128::from(work[busy - 1].as_ns());
    }
    Duration::ZERO
}

/// Most work of `task` in a window of this length with deadlines within it (TPDS 2009, equation 17).
fn due_in_window(task: &Demand, slack: Duration, window: Duration) -> Duration {
    let carried = (window % task.period).saturating_sub(slack).min(task.cost);
    task.cost * window.div_floor(task.period) + carried
}

/// Most work of `task` in any window of this length (TPDS 2009, equations 14 and 15).
pub(crate) fn in_any_window(task: &Demand, slack: Duration, window: Duration) -> Duration {
    let stretched = window + (task.deadline - task.cost).saturating_sub(slack);
    task.cost * stretched.div_floor(task.period) + (stretched % task.period).min(task.cost)
}

/// A deferrable server under earliest deadline first: it keeps its budget while it has no work (RTDS, SEDF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeferrableServer {
    pub budget: Duration,
    /// Period and relative deadline.
    pub period: Duration,
}

impl DeferrableServer {
    /// Most it runs in a window of this length with deadlines within it: a full budget in every whole
    /// period, and as much of the saved budget of the first one as fits. What it has left at a deadline is
    /// lost, so nothing is carried in.
    fn due_in_window(&self, window: Duration) -> Duration {
        self.budget * window.div_floor(self.period) + self.budget.min(window % self.period)
    }

    /// Most it runs in any window: a saved budget, and from then on one in every period.
    fn in_any_window(&self, window: Duration) -> Duration {
        Demand::implicit(self.budget, self.period).late_by(self.period - self.budget).requested(window)
    }
}

/// The longest time from the start of a period of `servers[of]` until it had its budget, when it always has
/// work, under global EDF of deferrable servers on this many processors; `None` beyond the period.
///
/// The argument of Bertogna, Cirinei, Lipari with the servers' own bounds on what they run: while the server
/// waits, all processors run servers with deadlines up to its own. It is sharper than for tasks in that a
/// server can never be late: at its deadline what is left of its budget expires. A budget interferes with one
/// switch more than it is, since a switch may overrun it.
pub fn time_for_budget(
    servers: &[DeferrableServer],
    of: usize,
    processors: usize,
    costs: &Decisions,
) -> Option<Duration> {
    time_for_part(servers, of, servers[of].budget, processors, costs)
}

/// The same for this part of the budget.
fn time_for_part(
    servers: &[DeferrableServer],
    of: usize,
    part: Duration,
    processors: usize,
    costs: &Decisions,
) -> Option<Duration> {
    fixed_point(part, servers[of].period, |w| part + taken_by_others(servers, of, processors, costs, w))
}

/// The greatest part of its budget that the server at `of` surely gets in a period in which it always has
/// work, and the time until it has it; `None` if that is nothing. What [`Server::reduced`] says holds here,
/// too.
///
/// [`Server::reduced`]: crate::fixed_priority::Server::reduced
pub(crate) fn sure_part(
    servers: &[DeferrableServer],
    of: usize,
    processors: usize,
    costs: &Decisions,
) -> Option<(Duration, Duration)> {
    let time = |part| time_for_part(servers, of, part, processors, costs);
    let part = greatest_time(servers[of].budget, |part| time(part).is_some())?;
    Some((part, time(part)?))
}

/// The most that other servers and decisions take of the time `window` after the start of a period of
/// `servers[of]`.
pub(crate) fn taken_by_others(
    servers: &[DeferrableServer],
    of: usize,
    processors: usize,
    costs: &Decisions,
    window: Duration,
) -> Duration {
    let period = servers[of].period;
    let work = others(servers.len(), of).map(|i| interfering(&servers[i], period, costs, window));
    waiting(work.collect(), processors) + costs.within(window)
}

/// The most that other servers and decisions take of `count` periods of `servers[of]`, one after the other.
/// In none of them do servers with later deadlines than the last one's.
pub(crate) fn taken_of_periods(
    servers: &[DeferrableServer],
    of: usize,
    processors: usize,
    costs: &Decisions,
    count: u64,
) -> Duration {
    let window = servers[of].period * count;
    let work = others(servers.len(), of).map(|i| interfering(&servers[i], window, costs, window));
    waiting(work.collect(), processors) + costs.within(window)
}

/// The longest in the time `window` after the start of a period for which any of the servers `like`, which
/// have one period and one deadline, has work and budget and does not run; `None` if they may take all
/// processors from each other.
///
/// While one of them waits, all processors run servers with deadlines up to theirs; all others of `like` may
/// run as well, so at least processors - (like - 1) of them run servers that are none of `like`.
pub(crate) fn taken_from_any(
    servers: &[DeferrableServer],
    like: &[usize],
    processors: usize,
    costs: &Decisions,
    window: Duration,
) -> Option<Duration> {
    let period = servers[*like.first()?].period;
    let left = (processors + 1).checked_sub(like.len()).filter(|left| *left > 0)?;
    let others = (0..servers.len()).filter(|i| !like.contains(i));
    let work = others.map(|i| interfering(&servers[i], period, costs, window));
    Some(waiting(work.collect(), left) + costs.within(window))
}

/// The most that a server runs in the time `window` after the start of a period of another one, with
/// deadlines up to that one's.
fn interfering(server: &DeferrableServer, period: Duration, costs: &Decisions, window: Duration) -> Duration {
    let overrun = (server.budget + costs.change()).min(server.period);
    let server = DeferrableServer { budget: overrun, ..*server };
    server.due_in_window(period).min(server.in_any_window(window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(n: u64) -> Duration {
        Duration::from_ns(n)
    }

    proptest! {
        #[test]
        fn the_waiting_time_is_the_least_solution_of_its_inequality(
            work in prop::collection::vec(0u64..60, 0..8), processors in 1usize..5,
        ) {
            let holds = |x: u64| work.iter().map(|w| (*w).min(x + 1)).sum::<u64>() / processors as u64 <= x;
            let least = (0..).find(|x| holds(*x)).expect("all work ends");
            let work = work.iter().copied().map(ns).collect();
            prop_assert_eq!(waiting(work, processors), ns(least));
        }
    }

    /// In a period of 20 the other one may run 9, and 5 of a budget that it has saved up. That leaves 6 of
    /// 11.
    #[test]
    fn a_server_surely_has_what_the_saved_budgets_of_others_leave() {
        let [own, other] = [(11, 20), (9, 15)]
            .map(|(budget, period)| DeferrableServer { budget: ns(budget), period: ns(period) });
        let sure = |processors| sure_part(&[own, other], 0, processors, &Decisions::default());
        assert_eq!(sure(1), Some((ns(6), ns(20))));
        assert_eq!(sure(2), Some((ns(11), ns(11))));
        let all = DeferrableServer { budget: ns(15), period: ns(15) };
        assert_eq!(sure_part(&[own, all], 0, 1, &Decisions::default()), None);
    }

    #[test]
    fn a_server_that_keeps_its_budget_runs_twice_as_long_without_a_break() {
        let server = DeferrableServer { budget: ns(3), period: ns(10) };
        assert_eq!([3, 6, 7, 13].map(|w| server.in_any_window(ns(w))), [3, 6, 6, 6].map(ns));
        assert_eq!([2, 3, 10, 12, 13].map(|w| server.due_in_window(ns(w))), [2, 3, 3, 5, 6].map(ns));
    }
}
