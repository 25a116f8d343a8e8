//! Fixed priorities: response times on a processor, in a supply, and in a fixed-priority server.
//!
//! Sources: Joseph & Pandya, *Finding Response Times in a Real-Time System*, 1986, and Audsley et al.,
//! *Applying New Scheduling Theory to Static Priority Pre-emptive Scheduling*, 1993 (one processor, exact);
//! Shin & Lee, RTSS 2003, theorem 2 (in a supply); Davis & Burns, *Hierarchical Fixed Priority Pre-emptive
//! Scheduling*, RTSS 2005 (in servers).

use punctual_sched::Duration;

use crate::demand::{Demand, fixed_point, greatest_time, requested};
use crate::overhead::Decisions;
use crate::supply::{Supply, Unsure};

/// How many jobs of a busy period are looked at: beyond them no bound is given.
const JOBS_MAX: u64 = 2_000;

/// A job that has not ended after so many times the time to its deadline is taken for one that never ends.
pub(crate) const LATE_FACTOR_MAX: u64 = 16;

/// Worst response time of `task` below `more_urgent` on a processor of its own, the scheduler's own time
/// included; `None` beyond `limit`. Without scheduling costs it is exact: synchronous release attains it.
pub fn response(
    task: &Demand,
    more_urgent: &[Demand],
    costs: &Decisions,
    limit: Duration,
) -> Option<Duration> {
    worst(task, limit, |jobs, w| task.cost * jobs + requested(more_urgent, w) + costs.within(w))
}

/// Worst response time of `task` below `more_urgent` in a supply; `None` beyond `limit`.
pub(crate) fn response_in_supply(
    task: &Demand,
    more_urgent: &[Demand],
    supply: &Supply,
    limit: Duration,
) -> Option<Duration> {
    worst(task, limit, |jobs, w| supply.time_for(task.cost * jobs + requested(more_urgent, w)))
}

/// Worst response time of `task` below `more_urgent` tasks of a server whose budget is never used up; `None`
/// beyond `limit`.
pub(crate) fn response_in_full_server(
    task: &Demand,
    more_urgent: &[Demand],
    server: &Server,
    limit: Duration,
) -> Option<Duration> {
    worst(task, limit, |jobs, w| {
        let guest = task.cost * jobs + requested(more_urgent, w);
        guest + server.taken_by_others(w) + server.costs.within(w)
    })
}

/// The worst response time of all jobs of the busy period that begins with a synchronous release, as long as
/// none exceeds `limit`. `step` takes a number of jobs of `task` and a time, and returns how long these jobs
/// take if more urgent work arrives until then. Jobs of a task are done in the order of their releases.
///
/// With a limit of at most the period, the first job ends the busy period (Joseph & Pandya 1986). Beyond the
/// period, any later one may be the worst (Lehoczky, *Fixed Priority Scheduling of Periodic Task Sets with
/// Arbitrary Deadlines*, RTSS 1990).
fn worst(task: &Demand, limit: Duration, step: impl Fn(u64, Duration) -> Duration) -> Option<Duration> {
    let (mut end, mut worst) = (task.cost, Duration::ZERO);
    for jobs in 1..=JOBS_MAX {
        let release = task.period * (jobs - 1);
        end = fixed_point(end, release + limit, |w| step(jobs, w))?;
        worst = worst.max(end.saturating_sub(release));
        if end <= release + task.period {
            return Some(worst);
        }
    }
    None
}

/// A deadline that is missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Miss {
    /// From the start.
    pub(crate) due: Duration,
    /// The job ends at least so much later; `None` when it may never end.
    pub(crate) late_min: Option<Duration>,
}

/// The first job of `task` that misses its deadline below `more_urgent` after a synchronous release, on a
/// processor of its own.
pub(crate) fn first_miss(task: &Demand, more_urgent: &[Demand]) -> Option<Miss> {
    let mut end = task.cost;
    for jobs in 1..=JOBS_MAX {
        let release = task.period * (jobs - 1);
        let due = release + task.deadline;
        let step = |w| task.cost * jobs + requested(more_urgent, w);
        let Some(found) = fixed_point(end, due, step) else {
            let late = fixed_point(due, due * LATE_FACTOR_MAX, step);
            return Some(Miss { due, late_min: late.map(|end| end - due) });
        };
        if found <= release + task.period {
            return None;
        }
        end = found;
    }
    None
}

/// A server on a processor of fixed-priority servers, as its tasks see it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Budget in every period. The scheduler's own time for this server is work that the budget pays for.
    pub budget: Duration,
    pub period: Duration,
    /// The longest its tasks may have to wait for the next replenishment: period - budget where budget is
    /// kept or idles away, the whole period where it is dropped.
    pub gap: Duration,
    /// More urgent servers: budget, period, and how late budget may be used (period - budget for deferrable
    /// ones).
    pub more_urgent: Vec<Demand>,
    /// Decisions that this server pays for while it always has work. One of a less urgent unit may be under
    /// way when it gets work, and is not preemptible.
    pub costs: Decisions,
}

/// A task inside a server: its demand, and is it bound, that is, released together with a replenishment?
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// What it asks for; the jitter of the task itself is not read, only that of more urgent ones.
    pub demand: Demand,
    /// Are all its releases at replenishments of the server?
    pub bound: bool,
}

/// Where a response time in a server goes. The parts add up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The job's own cost.
    pub own: Duration,
    /// Tasks of the same guest that are as urgent or more.
    pub guest: Duration,
    /// Waiting for budget.
    pub budget: Duration,
    /// Other servers of the processor, and the scheduler's own time.
    pub others: Duration,
}

impl Parts {
    /// The response time.
    pub fn total(&self) -> Duration {
        self.own + self.guest + self.budget + self.others
    }
}

impl Server {
    /// The longest time from a replenishment to the end of the budget when the server always has work; `None`
    /// beyond the period: then the budget is not guaranteed.
    pub fn time_for_budget(&self) -> Option<Duration> {
        fixed_point(self.budget, self.period, |w| self.budget + self.taken_by_others(w))
    }

    /// The same server with the greatest budget that more urgent servers leave it in every period in which it
    /// always has work; `None` if that is nothing.
    ///
    /// What it has is at least its part up to that: it waits only for others until it has executed for so
    /// long. Where it begins to have work e after a replenishment, at most e of its budget is gone. Let
    /// L = period - e be the rest of the period and b the part. Where L is at most period - b, that is the
    /// wait of a server with the budget b that has just used it up. Otherwise the server executes for at
    /// least L - (period - b) of L, unless its budget ends before or all work is done: others take at most
    /// period - b, and at least b - e = L - (period - b) of the budget is there.
    pub(crate) fn reduced(&self) -> Option<Server> {
        let with = |budget: Duration| Server {
            budget,
            gap: if self.gap == self.period { self.gap } else { self.period - budget },
            ..self.clone()
        };
        let is_left = |budget: Duration| with(budget).time_for_budget().is_some();
        greatest_time(self.budget, is_left).map(with)
    }

    /// What the server supplies over several periods, although others may take its budget in one of them.
    pub(crate) fn supplies_together(&self) -> Vec<Supply> {
        let own = Unsure {
            budget: self.budget,
            period: self.period,
            decisions: self.taken_by_decisions(),
            is_dropped: self.gap == self.period,
        };
        // A switch may be under way whenever the budget comes back.
        own.supplies(|count| requested(&self.more_urgent, self.period * count) + self.costs.change() * count)
    }

    /// The most that more urgent servers, and a switch under way, take of the time `window` after a
    /// replenishment.
    pub(crate) fn taken_by_others(&self, window: Duration) -> Duration {
        requested(&self.more_urgent, window) + self.costs.change()
    }

    /// The most that decisions take of the budget in a period in which the server always has work.
    pub(crate) fn taken_by_decisions(&self) -> Duration {
        self.costs.before_end(self.period)
    }

    /// What the server supplies to its tasks, as a supply bound function; `None` when its budget is not
    /// guaranteed, or decisions may use it up.
    pub fn supply(&self) -> Option<Supply> {
        let taken = self.taken_by_decisions();
        let usable = self.budget.checked_sub(taken).filter(|usable| !usable.is_zero())?;
        let time = self.time_for_budget()?;
        // Decisions may also use up what was left of a budget when the tasks got work.
        Some(Supply { delay: self.gap + taken + (time - usable), budget: usable, period: self.period })
    }

    /// Worst response time of `task` below `more_urgent` tasks of the same server, which must get its budget
    /// in every period ([`Server::time_for_budget`]); `None` beyond `limit`, which is at most the task's
    /// period.
    ///
    /// Davis & Burns 2005: all tasks are released when the budget has just been used up, `gap` before the
    /// next replenishment; bound ones at the replenishment. Every period but the last is spent in full, and
    /// more urgent servers delay what is left to do in the last one. What decisions take of the budgets
    /// counts as work from the release on.
    pub fn response(&self, task: &Member, more_urgent: &[Member], limit: Duration) -> Option<Parts> {
        let own = task.demand.cost;
        let gap = |member: &Member| if member.bound { Duration::ZERO } else { self.gap };
        let released = |member: &Member| member.demand.late_by(member.demand.jitter + gap(member));
        let guest: Vec<Demand> = more_urgent.iter().map(released).collect();
        let work = |w: Duration| own + requested(&guest, w) + self.costs.before_end(gap(task) + w);
        let full_periods = |w: Duration| work(w).div_ceil(self.budget) - 1;
        let others = |w: Duration| self.taken_by_others(w.saturating_sub(self.period * full_periods(w)));
        let waits = |w: Duration| (self.period - self.budget) * full_periods(w);
        let limit = limit.checked_sub(gap(task))?;
        let end = fixed_point(own, limit, |w| work(w) + waits(w) + others(w))?;
        let guest = requested(&guest, end);
        let budget = gap(task) + waits(end);
        Some(Parts { own, guest, budget, others: end + gap(task) - own - guest - budget })
    }
}
