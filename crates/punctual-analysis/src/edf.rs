//! Earliest deadline first on one processor or in a server: demand against supply.
//!
//! Sources: Baruah, Mok, Rosier, RTSS 1990 (processor demand); Shin & Lee, RTSS 2003, theorem 1 (demand bound
//! against supply bound); Baruah, *Resource Sharing in EDF-Scheduled Systems: A Closer Look*, RTSS 2006
//! (locks).

use punctual_sched::Duration;

use crate::demand::{Demand, requested};
use crate::supply::Supply;

/// Most deadlines that one test looks at; sets that need more are close to full utilization.
pub const POINTS_MAX: usize = 200_000;

/// Why not all deadlines hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// In an interval of this length more work can be due than is supplied.
    #[error("in an interval of {0} more work can be due than is supplied")]
    Overload(Duration),
    /// More than [`POINTS_MAX`] deadlines would have to be looked at.
    #[error("more than {POINTS_MAX} deadlines would have to be looked at")]
    TooLong,
}

/// A deadline after the start of a busy interval.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: Duration,
    /// What the job costs that is due then.
    cost: Duration,
}

/// A critical section of a task, under the deadline floor protocol (the stack resource policy's ceilings).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// The shortest relative deadline of all tasks that use its resource.
    pub floor: Duration,
    /// The relative deadline of its task.
    pub deadline: Duration,
    /// What the task executes in it.
    pub length: Duration,
}

/// The most that work due later takes of an interval of length `window` in which there is work that is due
/// within it: the longest section of a later task on a resource of one that may be due.
fn blocked(sections: &[Section], window: Duration) -> Duration {
    let delays = sections.iter().filter(|section| section.floor <= window && window < section.deadline);
    delays.map(|section| section.length).max().unwrap_or_default()
}

/// A bound on every task's response time, in the order of `tasks`, if all deadlines hold; tasks take
/// resources in `sections`.
///
/// Work with deadlines up to `t` after the start of a busy interval is at most the demand bound at `t` and is
/// done when that much has been supplied, so a job due then is early by the difference. A task's bound is its
/// deadline less the smallest difference at all `t` that can be a deadline of its jobs.
///
/// # Errors
/// [`Error::Overload`] is exact on a processor of one's own and without sections: with synchronous release
/// some job due within that length is late.
pub fn bounds(tasks: &[Demand], sections: &[Section], supply: &Supply) -> Result<Vec<Duration>, Error> {
    let bounds = bounds_of_each(tasks, sections, supply)?;
    let first = bounds.iter().filter_map(|bound| bound.err()).min();
    first.map_or_else(|| Ok(bounds.into_iter().flatten().collect()), |at| Err(Error::Overload(at)))
}

/// A bound on the response time of each task that holds its deadlines whatever the others do, in the order of
/// `tasks`; of the others the least length of an interval, at its end one of their deadlines, in which more
/// can be due than is supplied.
///
/// The argument of [`bounds`] is about one job: it holds although jobs with earlier deadlines are late. Until
/// the job is done there is work that is due with it or before, and it is all counted. So a task may miss
/// only where too much can be due in an interval at least as long as its deadline.
///
/// # Errors
/// [`Error::TooLong`]; [`Error::Overload`] where the busy interval has no end.
pub(crate) fn bounds_of_each(
    tasks: &[Demand],
    sections: &[Section],
    supply: &Supply,
) -> Result<Vec<Result<Duration, Duration>>, Error> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let longest = sections.iter().map(|section| section.length).max().unwrap_or_default();
    let busy = busy_interval(tasks, longest, supply);
    // Deadlines later than this belong to jobs that are early by at least their relative deadline.
    let last_deadline = tasks.iter().map(|t| t.deadline).max().unwrap_or_default();
    let wanted = busy.map_or(Duration::MAX / 2, |busy| busy + last_deadline);
    let horizon = reach(tasks, wanted);
    let busy = match busy {
        Some(busy) if horizon == wanted => busy,
        _ => {
            let late = first_late(tasks, sections, supply, busy.unwrap_or(Duration::MAX), horizon);
            return Err(late.map_or(Error::TooLong, Error::Overload));
        }
    };
    let points = deadlines(tasks, horizon);
    let early = earliness(&points, sections, supply, busy);
    let bound = |task: &Demand| {
        let first = points.partition_point(|point| point.at < task.deadline);
        let early = early.get(first).copied().unwrap_or(Ok(task.deadline))?;
        Ok(task.deadline.saturating_sub(early).max(task.cost))
    };
    Ok(tasks.iter().map(bound).collect())
}

/// By how much jobs due at each point, or later, are early at least, or the first of these points at which
/// one may be late. A busy interval takes no longer than `busy`.
fn earliness(
    points: &[Point],
    sections: &[Section],
    supply: &Supply,
    busy: Duration,
) -> Vec<Result<Duration, Duration>> {
    let mut due = Duration::ZERO;
    let mut early = Vec::with_capacity(points.len());
    for point in points {
        due += point.cost;
        let work = due + blocked(sections, point.at);
        early.push(point.at.checked_sub(supply.time_for(work).min(busy)).ok_or(point.at));
    }
    for i in (1..points.len()).rev() {
        let later = early[i];
        // Of several deadlines at one instant the last one counts the whole demand.
        let is_same = points[i].at == points[i - 1].at;
        let least = |own: Duration| later.map(|later| own.min(later));
        early[i - 1] = if is_same { later } else { early[i - 1].and_then(least) };
    }
    early
}

/// The longest interval during which there is always work, `more` of which is there before it begins; `None`
/// if it has no end within reach.
fn busy_interval(tasks: &[Demand], more: Duration, supply: &Supply) -> Option<Duration> {
    let mut at = supply.time_for(tasks.iter().map(|t| t.cost).sum::<Duration>() + more);
    // Each step adds at least one job, so this many steps are as long as the longest list of deadlines.
    for _ in 0..POINTS_MAX {
        let next = supply.time_for(requested(tasks, at) + more);
        if next <= at {
            return Some(at);
        }
        if next == Duration::MAX {
            return None;
        }
        at = next;
    }
    None
}

/// How many jobs, released synchronously, are due up to `horizon`?
fn jobs_due(tasks: &[Demand], horizon: Duration) -> u64 {
    let jobs =
        tasks.iter().map(|t| horizon.checked_sub(t.deadline).map_or(0, |rest| rest.div_floor(t.period) + 1));
    jobs.fold(0u64, u64::saturating_add)
}

/// `wanted`, or the part of it that has no more than [`POINTS_MAX`] deadlines.
fn reach(tasks: &[Demand], wanted: Duration) -> Duration {
    let mut horizon = wanted;
    while jobs_due(tasks, horizon) > POINTS_MAX as u64 {
        horizon = horizon / 2;
    }
    horizon
}

/// Deadlines of synchronously released jobs up to `horizon`, ascending.
fn deadlines(tasks: &[Demand], horizon: Duration) -> Vec<Point> {
    let mut points = Vec::with_capacity(jobs_due(tasks, horizon) as usize);
    for task in tasks {
        let mut at = task.deadline;
        while at <= horizon {
            points.push(Point { at, cost: task.cost });
            at += task.period;
        }
    }
    // Each task's are ascending already, which only the stable sort takes advantage of: it merges them.
    points.sort();
    points
}

/// The first deadline up to `horizon` at which a job may be late, if there is one. In most sets without an
/// end of the busy interval it is among the first deadlines, so the others are not listed.
fn first_late(
    tasks: &[Demand],
    sections: &[Section],
    supply: &Supply,
    busy: Duration,
    horizon: Duration,
) -> Option<Duration> {
    let mut next: Vec<Duration> = tasks.iter().map(|task| task.deadline).collect();
    let mut due = Duration::ZERO;
    loop {
        let at = next.iter().copied().min().filter(|at| *at <= horizon)?;
        for (next, task) in next.iter_mut().zip(tasks).filter(|(next, _)| **next == at) {
            due += task.cost;
            *next += task.period;
        }
        let work = due + blocked(sections, at);
        if supply.time_for(work).min(busy) > at {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 in every 10 after a delay of 12: 2 due after 10 may be late. In longer intervals all is supplied: by
    /// 50 the other has 2 x 3 + 4 of what is 14 then.
    #[test]
    fn a_task_with_a_late_deadline_holds_it_although_another_one_misses() {
        let ns = Duration::from_ns;
        let supply = Supply::periodic(ns(4), ns(10));
        let tasks = [Demand::implicit(ns(2), ns(30)).due(ns(10)), Demand::implicit(ns(4), ns(50))];
        assert_eq!(bounds(&tasks, &[], &supply), Err(Error::Overload(ns(10))));
        let each = bounds_of_each(&tasks, &[], &supply).expect("the busy interval ends");
        assert_eq!(each[0], Err(ns(10)));
        assert!(each[1].is_ok_and(|bound| bound > ns(4) && bound <= ns(50)), "{each:?}");
    }

    #[test]
    fn the_first_late_deadline_is_the_first_of_the_whole_list() {
        let ns = Duration::from_ns;
        let (supply, horizon, mut late) = (Supply::periodic(ns(4), ns(10)), ns(2_000), 0);
        for draw in 0..1_000 {
            let task = |n: u64| Demand::implicit(ns(1 + draw % (5 + n)), ns(14 + draw * (n + 3) % (40 + n)));
            let tasks = [task(0), task(1), task(2).due(ns(20)), task(3)];
            let section = Section { floor: ns(20), deadline: ns(60), length: ns(draw % 4) };
            let points = deadlines(&tasks, horizon);
            let listed = earliness(&points, &[section], &supply, Duration::MAX);
            let first = first_late(&tasks, &[section], &supply, Duration::MAX, horizon);
            assert_eq!(first, listed.iter().find_map(|early| early.err()), "{tasks:?}");
            late += u64::from(first.is_some());
        }
        assert!((1..1_000).contains(&late), "{late}");
    }
}
