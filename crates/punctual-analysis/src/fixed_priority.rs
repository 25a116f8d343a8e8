//! Fixed priorities: response times on a processor, in a supply, and in a fixed-priority server.
//!
//! Sources: Joseph & Pandya, *Finding Response Times in a Real-Time System*, 1986, and Audsley et al.,
//! *Applying New Scheduling Theory to Static Priority Pre-emptive Scheduling*, 1993 (one processor, exact);
//! Shin & Lee, RTSS 2003, theorem 2 (in a supply); Davis & Burns, *Hierarchical Fixed Priority Pre-emptive
//! Scheduling*, RTSS 2005 (in servers).

use crate::demand::{Demand, fixed_point};
use crate::overhead::Decisions;
use crate::supply::Supply;

/// Worst response time of `task` below `more_urgent` on a processor of its own, in ns, the scheduler's own
/// time included; `None` beyond `limit`. With a limit of at most the task's period and without scheduling
/// costs it is exact: synchronous release attains it.
pub fn response(task: &Demand, more_urgent: &[Demand], costs: &Decisions, limit: u64) -> Option<u64> {
    fixed_point(task.cost, limit, |w| {
        let work = more_urgent.iter().fold(task.cost, |sum, d| sum.saturating_add(d.requested(w)));
        work.saturating_add(costs.within(w))
    })
}

/// Worst response time of `task` below `more_urgent` in a supply, in ns; `None` beyond `limit`, which is at
/// most the task's period.
pub fn response_in_supply(task: &Demand, more_urgent: &[Demand], supply: &Supply, limit: u64) -> Option<u64> {
    fixed_point(supply.time_for(task.cost), limit, |w| {
        supply.time_for(more_urgent.iter().fold(task.cost, |sum, d| sum.saturating_add(d.requested(w))))
    })
}

/// A server on a processor of fixed-priority servers, as its tasks see it.
#[derive(Clone, Debug)]
pub struct Server {
    /// What of its budget is left to its tasks in every period, the scheduler's own time taken off, in ns.
    pub usable: u64,
    /// Replenishment period, in ns.
    pub period: u64,
    /// The longest its tasks may have to wait for the next replenishment: period - budget where budget is
    /// kept or idles away, the whole period where it is dropped. In ns.
    pub gap: u64,
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

/// Where a response time in a server goes, in ns. The parts add up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The job's own cost.
    pub own: u64,
    /// Tasks of the same guest that are as urgent or more.
    pub guest: u64,
    /// Waiting for budget.
    pub budget: u64,
    /// Other servers of the processor, and the scheduler's own time.
    pub others: u64,
}

impl Parts {
    /// The response time.
    pub fn total(&self) -> u64 {
        self.own.saturating_add(self.guest).saturating_add(self.budget).saturating_add(self.others)
    }
}

impl Server {
    /// The longest time from a replenishment to the end of `budget` when the server always has work, in ns;
    /// `None` beyond the period: then the server's budget is not guaranteed.
    pub fn time_for_budget(&self, budget: u64) -> Option<u64> {
        fixed_point(budget, self.period, |w| {
            let work = self.more_urgent.iter().fold(budget, |sum, d| sum.saturating_add(d.requested(w)));
            work.saturating_add(self.costs.within(w))
        })
    }

    /// Does the server not get its budget in its first period when all servers begin together and always have
    /// work? Exact without scheduling costs for servers that replenish periodically.
    pub fn late_when_all_are_busy(&self) -> bool {
        let budget = self.usable;
        let step = |w: u64| {
            let above = self.more_urgent.iter().map(|d| Demand { jitter: 0, ..*d }.requested(w));
            above.fold(budget, u64::saturating_add)
        };
        fixed_point(budget, self.period, step).is_none()
    }

    /// Worst response time of `task` below `more_urgent` tasks of the same server, which must get its budget
    /// in every period ([`Server::time_for_budget`]); `None` beyond `limit`, which is at most the task's
    /// period.
    ///
    /// Davis & Burns 2005: all tasks are released when the budget has just been used up, `gap` before the
    /// next replenishment; bound ones at the replenishment. Every period but the last is spent in full, and
    /// more urgent servers delay what is left to do in the last one.
    pub fn response(&self, task: &Member, more_urgent: &[Member], limit: u64) -> Option<Parts> {
        let gap = if task.bound { 0 } else { self.gap };
        let work = |w: u64| {
            more_urgent.iter().fold(task.demand.cost, |sum, member| {
                let gap = if member.bound { 0 } else { self.gap };
                let jitter = member.demand.jitter.saturating_add(gap);
                sum.saturating_add(Demand { jitter, ..member.demand }.requested(w))
            })
        };
        let full_periods = |w: u64| (work(w) - 1) / self.usable;
        let others = |w: u64| {
            let rest = w.saturating_sub(full_periods(w).saturating_mul(self.period));
            let servers = self.more_urgent.iter().fold(0u64, |sum, d| sum.saturating_add(d.requested(rest)));
            servers.saturating_add(self.costs.within(rest))
        };
        let waits = |w: u64| full_periods(w).saturating_mul(self.period - self.usable);
        let end = fixed_point(task.demand.cost, limit.checked_sub(gap)?, |w| {
            work(w).saturating_add(waits(w)).saturating_add(others(w))
        })?;
        let own = task.demand.cost;
        Some(Parts {
            own,
            guest: work(end) - own,
            budget: gap + waits(end),
            others: end - work(end) - waits(end),
        })
    }
}
