//! What Linux makes of a pool's policy: the part that libvirt, systemd and QEMU exports share.

use std::ops::RangeInclusive;

use punctual_sched::registry::{LinuxClass, PolicyInfo};
use punctual_sched::{Duration, UnitParams};

use super::loss::Losses;
use super::target::Keep;
use super::units::processors;
use crate::host::{Domain, Host, Parent, Pool};
use crate::index::PoolIx;

/// The real-time priority of the most urgent units. It is below 50, where Linux puts threaded interrupt
/// handlers: a vCPU above them would keep the handlers of its own devices from running.
const FIFO_TOP: u8 = 40;

/// What enforces a budget in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetMeans {
    /// A quota of the fair class.
    Quota,
    /// SCHED_DEADLINE, thread by thread.
    Deadline,
}

/// How Linux schedules a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinuxScheduling {
    /// A budget in every period, enforced by [`BudgetMeans`].
    Budget {
        /// Processor time.
        budget: Duration,
        /// Period.
        period: Duration,
    },
    /// SCHED_FIFO of this priority; greater is more urgent.
    Fifo(u8),
    /// SCHED_RR, all alike.
    RoundRobin,
    /// The fair class.
    Fair {
        /// Share of this unit in proportion to the others' weights; Credit's 256 is the ordinary one. `None`:
        /// the pool has no weights.
        weight: Option<u32>,
        /// Limit in percent of one processor.
        cap_percent: Option<u32>,
    },
}

/// A pool as Linux sees it.
pub(super) struct LinuxPool<'a> {
    /// The pool.
    pub(super) pool: &'a Pool,
    budgets: bool,
    /// Are they quotas of the fair class?
    quotas: bool,
    /// The different priorities of the pool's units, the most urgent first; empty if its policy has none.
    levels: Vec<u32>,
    /// Processors of helper threads for which the host file gives none: those of no pool, or the pool's own
    /// if every processor is in a pool.
    free: Vec<usize>,
}

impl<'a> LinuxPool<'a> {
    /// Chooses what is kept of the pool's policy and says what is not.
    pub(super) fn new(
        host: &'a Host,
        ix: PoolIx,
        keep: Keep,
        means: BudgetMeans,
        losses: &mut Losses,
    ) -> Self {
        let pool = &host.pools[ix.0];
        let policy = pool.policy.info;
        let priorities = policy.reads(UnitParams::PRIORITY);
        let budgets = policy.reads(UnitParams::BUDGET) && (keep == Keep::Budget || !priorities);
        let mut levels: Vec<u32> = if priorities {
            units(host, ix).filter(|params| !params.best_effort).map(priority).collect()
        } else {
            Vec::new()
        };
        levels.sort_unstable();
        levels.dedup();
        let quotas = budgets && means == BudgetMeans::Quota;
        let this = LinuxPool { pool, budgets, quotas, levels, free: free(host, pool) };
        this.say(means, losses);
        this
    }

    fn say(&self, means: BudgetMeans, losses: &mut Losses) {
        let Pool { name, policy, .. } = self.pool;
        if let Some(why) = self.policy_loss(means) {
            losses.add(name, "policy", why);
        }
        if self.budgets && self.levels.len() > 1 {
            losses.add(
                name,
                "priority",
                match means {
                    BudgetMeans::Quota => {
                        "priorities are lost, because Linux does not throttle real-time threads; \
                         `--keep priority` keeps them and drops the budgets"
                    }
                    BudgetMeans::Deadline => {
                        "priorities are lost, because SCHED_DEADLINE orders threads by deadline; \
                         `--keep priority` keeps them and drops the budgets"
                    }
                },
            );
        }
        if !self.budgets && policy.info.reads(UnitParams::BUDGET) {
            losses.add(
                name,
                "budget",
                "budgets are lost, because SCHED_FIFO has none; `--keep budget` keeps them and drops \
                 the priorities",
            );
        }
        if !self.budgets && self.levels.len() > usize::from(FIFO_TOP) {
            let why = format!("only the {FIFO_TOP} most urgent of {} levels differ", self.levels.len());
            losses.add(name, "priority", why);
        }
        for (option, _) in policy.options.iter() {
            losses.add(name, option, format!("Linux has no such option of `{}`", policy.info.name));
        }
    }

    /// What differs from the policy although its parameters are kept.
    fn policy_loss(&self, means: BudgetMeans) -> Option<&'static str> {
        let linux = &self.pool.policy.info.linux;
        match (self.budgets, means) {
            (false, _) => linux.class_loss,
            (true, BudgetMeans::Quota) => linux.quota_loss,
            (true, BudgetMeans::Deadline) => linux.deadline_loss,
        }
    }

    /// How Linux schedules a unit of this pool.
    pub(super) fn rule(&self, item: &str, params: &UnitParams, losses: &mut Losses) -> LinuxScheduling {
        let policy = self.pool.policy.info;
        if params.best_effort {
            if self.quotas {
                let why = "it is no longer below the others: Linux's fair class shares the processor between \
                           it and units with quota left";
                losses.add(item, UnitParams::BEST_EFFORT, why);
            }
            if !self.is_fair() {
                return LinuxScheduling::Fair { weight: None, cap_percent: None };
            }
            let why = "it is no longer below the others: Linux's fair class gives it the smallest weight";
            losses.add(item, UnitParams::BEST_EFFORT, why);
            return LinuxScheduling::Fair { weight: Some(1), cap_percent: None };
        }
        if self.budgets {
            if policy.extratime(params) {
                losses.add(item, "extratime", "units get no spare time beyond their budgets");
            }
            let (budget, period) = budget_and_period(policy, params);
            return LinuxScheduling::Budget { budget, period };
        }
        if !self.levels.is_empty() {
            let rank = self.levels.binary_search(&priority(params)).unwrap_or(self.levels.len());
            let below = rank.min(usize::from(FIFO_TOP) - 1) as u8;
            return LinuxScheduling::Fifo(FIFO_TOP - below);
        }
        if policy.linux.class == LinuxClass::RoundRobin {
            return LinuxScheduling::RoundRobin;
        }
        let default = || policy.unit_param(UnitParams::WEIGHT)?.default_count().map(|weight| weight as u32);
        LinuxScheduling::Fair {
            weight: params.weight.or_else(default).filter(|_| policy.reads(UnitParams::WEIGHT)),
            cap_percent: params.cap_percent.filter(|&cap| policy.reads(UnitParams::CAP_PERCENT) && cap > 0),
        }
    }

    /// Are the pool's units threads of the fair class, with weights or without?
    fn is_fair(&self) -> bool {
        let class = self.pool.policy.info.linux.class;
        !self.budgets && self.levels.is_empty() && class != LinuxClass::RoundRobin
    }

    /// The machine's processors for the threads of a domain that are no vCPUs.
    pub(super) fn helpers<'d>(&'d self, domain: &'d Domain, losses: &mut Losses) -> &'d [usize] {
        let given = domain.live.helpers.processors.as_deref();
        if given.is_none() && self.free == self.pool.processors {
            let why = "every processor is in a pool, so the helper threads run on the pool's own, beside the \
                       vCPUs; leave a processor out of the pools, or give the domain `helpers`";
            losses.add(&domain.name, "helpers", why);
        }
        given.unwrap_or(&self.free)
    }

    /// The machine's processors for a unit.
    pub(super) fn processors(&self, params: &UnitParams) -> Vec<usize> {
        processors(self.pool, params.affinity.as_ref())
    }
}

/// The weight of a group of units in a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupWeight {
    /// Within the target's limits.
    pub(super) weight: u32,
    /// The sum of the units' weights.
    pub(super) sum: u64,
    /// Are the proportions to the other groups kept exactly?
    pub(super) is_exact: bool,
}

/// The weights of the groups of a pool, each of which is its units' weights together. All are multiplied by
/// the same number if that brings them within `limits`. `None` for a group without a fair unit that has a
/// weight, and for all of them if they are alike.
pub(super) fn group_weights(
    groups: &[Vec<LinuxScheduling>],
    limits: &RangeInclusive<u32>,
) -> Vec<Option<GroupWeight>> {
    let weight = |rule: &LinuxScheduling| match rule {
        LinuxScheduling::Fair { weight, .. } => weight.map(u64::from),
        LinuxScheduling::Budget { .. } | LinuxScheduling::Fifo(_) | LinuxScheduling::RoundRobin => None,
    };
    let sum = |rules: &Vec<LinuxScheduling>| rules.iter().map(weight).sum::<Option<u64>>();
    let sums: Vec<Option<u64>> = groups.iter().map(sum).collect();
    let given = || sums.iter().flatten().copied();
    let (Some(least), Some(most)) = (given().min(), given().max()) else { return vec![None; sums.len()] };
    let (low, high) = (u64::from(*limits.start()), u64::from(*limits.end()));
    // Multiplied while that keeps the greatest within the limits, else scaled down to it.
    let times = low.div_ceil(least.max(1)).max(1);
    let (times, over) = match (most.saturating_mul(times) <= high, most > high) {
        (true, _) => (times, 1),
        (false, true) => (high, most),
        (false, false) => (1, 1),
    };
    let group = |sum: u64| {
        let product = u128::from(sum) * u128::from(times);
        let rounded = (product + u128::from(over / 2)) / u128::from(over);
        let weight = rounded.clamp(u128::from(low), u128::from(high)) as u32;
        let is_exact = u128::from(weight) * u128::from(over) == product;
        GroupWeight { weight, sum, is_exact }
    };
    sums.into_iter().map(|sum| sum.map(group)).collect()
}

/// The unit's budget and period under a policy that keeps budgets.
pub(super) fn budget_and_period(policy: &PolicyInfo, params: &UnitParams) -> (Duration, Duration) {
    let known = policy.budget(params).zip(policy.period(params));
    known.expect("the parser gave every unit to its policy, which refuses units without a budget")
}

/// The parameters of all units of a pool.
fn units(host: &Host, pool: PoolIx) -> impl Iterator<Item = &UnitParams> {
    let parent = Parent::Pool(pool);
    host.vcpus_of(parent).map(|(_, v)| &v.params).chain(host.tasks_of(parent).map(|(_, t)| &t.params))
}

/// A unit without a priority ranks below all that have one.
fn priority(params: &UnitParams) -> u32 {
    params.priority.unwrap_or(u32::MAX)
}

fn free(host: &Host, pool: &Pool) -> Vec<usize> {
    let in_no_pool = |n: &usize| host.pools.iter().all(|pool| pool.processors.binary_search(n).is_err());
    let free: Vec<usize> = (0..host.processors).filter(in_no_pool).collect();
    if free.is_empty() { pool.processors.clone() } else { free }
}
