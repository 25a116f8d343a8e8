//! How long to simulate until an overload must show.
//!
//! Where the jobs of some tasks need more processor time in the long run than they can get, the backlog grows
//! without limit, so some deadline is missed, whatever the policy; which one is the policy's choice, and a
//! policy that serves the more urgent ones first may miss none of theirs. So the sums alone refute no single
//! task. They only say how long a simulation must last to show the miss: until the work that is due then
//! exceeds all that can be done by then. The same holds for budgets and the processors of a pool.

use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::{DomainIx, PoolIx, VcpuIx};
use punctual_sched::{CpuId, CpuSet, Duration};

use crate::patterns::separation;

/// Shares of a processor are counted in parts of this.
const BILLION: u128 = 1_000_000_000;

/// What is asked for, against what there is.
#[derive(Clone, Copy, Default)]
struct Balance {
    /// Asked for in the long run, in billionths of a processor; rounded down.
    asked: u128,
    /// Asked for, but not yet due at the end of an interval, at most: in ns.
    not_due_ns: u128,
    /// There is so much in the long run, in billionths of a processor; rounded up.
    there: u128,
    /// There is so much more at once, in ns.
    burst_ns: u128,
}

impl Balance {
    fn of_processors(processors: usize) -> Self {
        Balance { there: processors as u128 * BILLION, ..Balance::default() }
    }

    /// Adds `cost` in every `period`, due within `deadline` of the period's start.
    fn ask(&mut self, cost: Duration, period: Duration, deadline: Duration) {
        let (cost, period) = (u128::from(cost.as_ns()), u128::from(period.as_ns().max(1)));
        self.asked += cost * BILLION / period;
        self.not_due_ns += (cost * u128::from(deadline.as_ns())).div_ceil(period);
    }

    /// After this time more is due than can be done; `None` if that need not be.
    fn shows_after(&self) -> Option<Duration> {
        let excess = self.asked.checked_sub(self.there).filter(|excess| *excess > 0)?;
        let after = (self.not_due_ns + self.burst_ns) * BILLION / excess + 1;
        u64::try_from(after).ok().map(Duration::from_ns)
    }
}

/// How long all vCPUs must be busy until the budgets of an overloaded pool, or of units pinned to one of its
/// processors, cannot all have been delivered. The shortest such time; `None` without an overload.
pub(crate) fn of_budgets(host: &Host) -> Option<Duration> {
    let pools = (0..host.pools.len()).map(PoolIx);
    pools.flat_map(|pool| balances_of_budgets(host, pool)).filter_map(|all| all.shows_after()).min()
}

/// Of the pool as a whole, then of each of its processors.
fn balances_of_budgets(host: &Host, pool: PoolIx) -> Vec<Balance> {
    let (info, processors) = (host.pools[pool.0].policy.info, host.pools[pool.0].processors.len());
    let mut all = vec![Balance::of_processors(1); processors];
    all.push(Balance::of_processors(processors));
    for (_, vcpu) in host.vcpus.iter().enumerate().filter(|(ix, _)| host.has_own_budget(VcpuIx(*ix))) {
        let is_here = host.domains[vcpu.domain.0].parent == Parent::Pool(pool);
        let Some((budget, period)) = info.budget(&vcpu.params).zip(info.period(&vcpu.params)) else {
            continue;
        };
        if !is_here || vcpu.params.best_effort || period.is_zero() {
            continue;
        }
        // A budget is due at the end of its period.
        let budget = budget.min(period);
        all[processors].ask(budget, period, period);
        if let Some(only) = only_processor(vcpu.params.affinity.as_ref(), processors) {
            all[only].ask(budget, period, period);
        }
    }
    all
}

fn only_processor(affinity: Option<&CpuSet>, processors: usize) -> Option<usize> {
    let is_allowed = |cpu: &usize| affinity.is_none_or(|set| set.contains(CpuId(*cpu as u32)));
    let mut allowed = (0..processors).filter(is_allowed);
    allowed.next().filter(|_| allowed.next().is_none())
}

/// The same for tasks that are all released together, at their highest rate and cost: of pools against their
/// processors, of domains against the budgets of their vCPUs.
pub(crate) fn of_tasks(host: &Host) -> Option<Duration> {
    let pools = (0..host.pools.len()).map(PoolIx).map(|pool| balance_of_pool(host, pool));
    let domains = (0..host.domains.len()).map(DomainIx).filter_map(|domain| balance_of_domain(host, domain));
    pools.chain(domains).filter_map(|all| all.shows_after()).min()
}

fn balance_of_pool(host: &Host, pool: PoolIx) -> Balance {
    let mut all = Balance::of_processors(host.pools[pool.0].processors.len());
    let tasks = host.tasks.iter().filter(|task| pool_of(host, task.parent) == pool);
    tasks.for_each(|task| ask(&mut all, &task.work));
    all
}

/// `None` without budgets that limit what it gets.
fn balance_of_domain(host: &Host, domain: DomainIx) -> Option<Balance> {
    let Parent::Pool(pool) = host.domains[domain.0].parent else { return None };
    let info = host.pools[pool.0].policy.info;
    let mut all = Balance::default();
    let vcpus = host.domains[domain.0].vcpus.clone().filter(|ix| host.has_own_budget(VcpuIx(*ix)));
    for vcpu in vcpus.map(|ix| &host.vcpus[ix]) {
        let (budget, period) = info.budget(&vcpu.params).zip(info.period(&vcpu.params))?;
        let (budget, period) = (u128::from(budget.min(period).as_ns()), u128::from(period.as_ns()));
        all.there += (budget * BILLION).div_ceil(period.max(1));
        all.burst_ns += budget;
    }
    let tasks = host.tasks.iter().filter(|task| task.parent == Parent::Domain(domain));
    tasks.for_each(|task| ask(&mut all, &task.work));
    Some(all)
}

fn pool_of(host: &Host, parent: Parent) -> PoolIx {
    match parent {
        Parent::Pool(pool) => pool,
        Parent::Domain(domain) => pool_of(host, host.domains[domain.0].parent),
    }
}

fn ask(all: &mut Balance, work: &Work) {
    if let Work::Jobs { cost, deadline, .. } = work {
        all.ask(cost.max, separation(work), *deadline);
    }
}
