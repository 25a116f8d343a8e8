//! Earliest deadline first on one processor or in a server: demand against supply.
//!
//! Sources: Baruah, Mok, Rosier, RTSS 1990 (processor demand); Shin & Lee, RTSS 2003, theorem 1 (demand bound
//! against supply bound).

use crate::demand::Demand;
use crate::supply::Supply;

/// Most deadlines that one test looks at; sets that need more are close to full utilisation.
pub const POINTS_MAX: usize = 200_000;

/// Why not all deadlines hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// In an interval of this length, in ns, more work can be due than is supplied.
    Overload(u64),
    /// More than [`POINTS_MAX`] deadlines would have to be looked at.
    TooLong,
}

/// A bound on every task's response time, in ns and in the order of `tasks`, if all deadlines hold.
///
/// Work with deadlines up to `t` after the start of a busy interval is at most the demand bound at `t` and is
/// done when that much has been supplied, so a job due then is early by the difference. A task's bound is its
/// deadline less the smallest difference at all `t` that can be a deadline of its jobs.
///
/// # Errors
/// [`Failure::Overload`] is exact on a processor of one's own: with synchronous release some job due within
/// that length is late.
pub fn bounds(tasks: &[Demand], supply: &Supply) -> Result<Vec<u64>, Failure> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let busy = busy_interval(tasks, supply);
    // Deadlines later than this belong to jobs that are early by at least their relative deadline.
    let last_deadline = tasks.iter().map(|t| t.deadline).max().unwrap_or(0);
    let horizon = busy.map(|busy| busy.saturating_add(last_deadline));
    let (points, complete) = deadlines(tasks, horizon);
    let mut due = 0u64;
    let mut early = Vec::with_capacity(points.len());
    for (at, cost) in &points {
        due = due.saturating_add(*cost);
        let done = supply.time_for(due).min(busy.unwrap_or(u64::MAX));
        early.push(at.checked_sub(done));
    }
    // Of several deadlines at one instant the last one counts the whole demand.
    for i in (1..points.len()).rev() {
        if points[i].0 == points[i - 1].0 {
            early[i - 1] = early[i];
        }
    }
    if let Some(late) = early.iter().position(Option::is_none) {
        return Err(Failure::Overload(points[late].0));
    }
    if busy.is_none() || !complete {
        return Err(Failure::TooLong);
    }
    let mut least = u64::MAX;
    let mut least_from: Vec<u64> = early
        .iter()
        .rev()
        .map(|early| {
            least = least.min(early.unwrap_or(0));
            least
        })
        .collect();
    least_from.reverse();
    Ok(tasks
        .iter()
        .map(|task| {
            let first = points.partition_point(|(at, _)| *at < task.deadline);
            let early = least_from.get(first).copied().unwrap_or(task.deadline);
            task.deadline.saturating_sub(early).max(task.cost)
        })
        .collect())
}

/// The longest interval during which there is always work; `None` if it has no end within reach.
fn busy_interval(tasks: &[Demand], supply: &Supply) -> Option<u64> {
    let mut at = supply.time_for(tasks.iter().fold(0, |sum, t| sum.saturating_add(t.cost)));
    // Each step adds at least one job, so this many steps are as long as the longest list of deadlines.
    for _ in 0..POINTS_MAX {
        let work = tasks.iter().fold(0u64, |sum, t| sum.saturating_add(t.requested(at)));
        let next = supply.time_for(work);
        if next <= at {
            return Some(at);
        }
        if next == u64::MAX {
            return None;
        }
        at = next;
    }
    None
}

/// Deadlines of synchronously released jobs up to `horizon`, ascending, at most [`POINTS_MAX`], with the
/// jobs' costs; and are they all of them?
fn deadlines(tasks: &[Demand], horizon: Option<u64>) -> (Vec<(u64, u64)>, bool) {
    let count = |horizon: u64| {
        let jobs =
            tasks.iter().map(|t| horizon.checked_sub(t.deadline).map_or(0, |rest| rest / t.period + 1));
        jobs.fold(0u64, u64::saturating_add)
    };
    let wanted = horizon.unwrap_or(u64::MAX / 2);
    let mut horizon = wanted;
    while count(horizon) > POINTS_MAX as u64 {
        horizon /= 2;
    }
    let mut points = Vec::with_capacity(count(horizon) as usize);
    for task in tasks {
        let mut at = task.deadline;
        while at <= horizon {
            points.push((at, task.cost));
            at = at.saturating_add(task.period);
        }
    }
    points.sort_unstable();
    (points, horizon == wanted)
}
