//! Fixed priorities: response times on a processor, in a supply, and in a fixed-priority server.
//!
//! Sources: Joseph & Pandya, *Finding Response Times in a Real-Time System*, 1986, and Audsley et al.,
//! *Applying New Scheduling Theory to Static Priority Pre-emptive Scheduling*, 1993 (one processor, exact);
//! Shin & Lee, RTSS 2003, theorem 2 (in a supply); Davis & Burns, *Hierarchical Fixed Priority Pre-emptive
//! Scheduling*, RTSS 2005 (in servers).

use punctual_sched::Duration;

use crate::demand::{Demand, fixed_point, requested};
use crate::overhead::Decisions;
use crate::supply::Supply;

/// Worst response time of `task` below `more_urgent` on a processor of its own, the scheduler's own time
/// included; `None` beyond `limit`. With a limit of at most the task's period and without scheduling costs it
/// is exact: synchronous release attains it.
pub fn response(
    task: &Demand,
    more_urgent: &[Demand],
    costs: &Decisions,
    limit: Duration,
) -> Option<Duration> {
    fixed_point(task.cost, limit, |w| task.cost + requested(more_urgent, w) + costs.within(w))
}

/// Worst response time of `task` below `more_urgent` in a supply; `None` beyond `limit`, which is at most the
/// task's period.
pub fn response_in_supply(
    task: &Demand,
    more_urgent: &[Demand],
    supply: &Supply,
    limit: Duration,
) -> Option<Duration> {
    let start = supply.time_for(task.cost);
    fixed_point(start, limit, |w| supply.time_for(task.cost + requested(more_urgent, w)))
}

/// A server on a processor of fixed-priority servers, as its tasks see it.
#[derive(Clone, Debug)]
pub struct Server {
    /// What of its budget is left to its tasks in every period, the scheduler's own time taken off.
    pub usable: Duration,
    /// Replenishment period.
    pub period: Duration,
    /// The longest its tasks may have to wait for the next replenishment: period - budget where budget is
    /// kept or idles away, the whole period where it is dropped.
    pub gap: Duration,
    /// More urgent servers: budget, period, and how late budget may be used (period - budget for deferrable
    /// ones).
    pub more_urgent: Vec<Demand>,
    /// The scheduler's own time.
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
    /// The longest time from a replenishment to the end of `budget` when the server always has work; `None`
    /// beyond the period: then the server's budget is not guaranteed.
    pub fn time_for_budget(&self, budget: Duration) -> Option<Duration> {
        fixed_point(budget, self.period, |w| budget + requested(&self.more_urgent, w) + self.costs.within(w))
    }

    /// Does the server not get its budget in its first period when all servers begin together and always have
    /// work? Exact without scheduling costs for servers that replenish periodically.
    pub fn late_when_all_are_busy(&self) -> bool {
        let punctual: Vec<Demand> = self.more_urgent.iter().map(|d| d.late_by(Duration::ZERO)).collect();
        fixed_point(self.usable, self.period, |w| self.usable + requested(&punctual, w)).is_none()
    }

    /// What the server supplies to its tasks, as far as a supply bound function tells; `None` when its budget
    /// is not guaranteed.
    pub fn supply(&self) -> Option<Supply> {
        let time = self.time_for_budget(self.usable)?;
        Some(Supply { delay: self.gap + (time - self.usable), budget: self.usable, period: self.period })
    }

    /// Worst response time of `task` below `more_urgent` tasks of the same server, which must get its budget
    /// in every period ([`Server::time_for_budget`]); `None` beyond `limit`, which is at most the task's
    /// period.
    ///
    /// Davis & Burns 2005: all tasks are released when the budget has just been used up, `gap` before the
    /// next replenishment; bound ones at the replenishment. Every period but the last is spent in full, and
    /// more urgent servers delay what is left to do in the last one.
    pub fn response(&self, task: &Member, more_urgent: &[Member], limit: Duration) -> Option<Parts> {
        let own = task.demand.cost;
        let gap = |member: &Member| if member.bound { Duration::ZERO } else { self.gap };
        let released = |member: &Member| member.demand.late_by(member.demand.jitter + gap(member));
        let guest: Vec<Demand> = more_urgent.iter().map(released).collect();
        let work = |w: Duration| own + requested(&guest, w);
        let full_periods = |w: Duration| work(w).div_ceil(self.usable) - 1;
        let others = |w: Duration| {
            let rest = w.saturating_sub(self.period * full_periods(w));
            requested(&self.more_urgent, rest) + self.costs.within(rest)
        };
        let waits = |w: Duration| (self.period - self.usable) * full_periods(w);
        let limit = limit.checked_sub(gap(task))?;
        let end = fixed_point(own, limit, |w| work(w) + waits(w) + others(w))?;
        Some(Parts {
            own,
            guest: work(end) - own,
            budget: gap(task) + waits(end),
            others: end - work(end) - waits(end),
        })
    }
}
