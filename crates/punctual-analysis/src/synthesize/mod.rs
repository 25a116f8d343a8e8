//! The smallest budgets that guarantee every deadline.
//!
//! The tests of [`crate::analyse`] are the judge: nothing here knows how a policy works beyond whether its
//! servers have priorities. What makes the search short is that a vCPU's tasks need no less when others take
//! more. So smallest budgets are found one by one from below, the most urgent vCPU first, and repeated where
//! everybody affects everybody. Orders of priority, periods and processors are chosen by branch and bound
//! over such solutions, starting from Audsley's assignment (Audsley 1991; for servers Davis & Burns, *An
//! Investigation into Server Parameter Selection for Hierarchical Fixed Priority Pre-emptive Systems*, RTNS
//! 2008).
//!
//! The chosen host is analysed again as a whole before it is returned, and no budget in it can be smaller by
//! one granule.

mod place;
mod search;
mod trial;

use std::ops::ControlFlow;

use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};
use serde::Serialize;

use crate::analyse;
use crate::host::{Analysis, Index, Unit, only_processor};
use crate::pool::{Group, is_partitioned};
use crate::report::{Report, Verdict};
use search::Solution;
use trial::Trial;

/// Which periods the search may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Periods {
    /// Those of the file.
    Given,
    /// The best of these for each vCPU; if there are none, of the file's, of whole ms in steps of 1, 2, 5,
    /// and of those that divide the periods of the vCPU's tasks.
    Free(Vec<Duration>),
}

/// How vCPUs without an affinity get their processors under partitioned policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// [`Placement::Exact`] up to eight of them, otherwise the cheapest of the three orders of fit.
    Auto,
    /// The first processor on which they fit, greatest demand first.
    FirstFit,
    /// The fullest processor on which they fit, greatest demand first.
    BestFit,
    /// The emptiest processor on which they fit, greatest demand first.
    WorstFit,
    /// Branch and bound.
    Exact,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Budgets are multiples of this; above zero.
    pub granularity: Duration,
    /// Every cost may grow by so many millionths and all deadlines still hold.
    pub margin_ppm: u64,
    /// Periods.
    pub periods: Periods,
    /// May the priorities in the file be changed? Where there are none they are always chosen.
    pub free_priorities: bool,
    /// Processors.
    pub placement: Placement,
    /// Analyses at most for each set of vCPUs before the search settles for the best it has.
    pub effort: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            granularity: Duration::from_us(100),
            margin_ppm: 0,
            periods: Periods::Given,
            free_priorities: false,
            placement: Placement::Auto,
            effort: 100_000,
        }
    }
}

/// What the search is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// So many analyses so far.
    Search(u64),
    /// So many tasks of this many have been asked how much they may grow.
    Growth(usize, usize),
}

/// Told about progress; [`ControlFlow::Break`] ends the search.
pub type Watch<'a> = &'a mut dyn FnMut(Stage) -> ControlFlow<()>;

/// What was found for one unit of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// A vCPU, or a task that the pool schedules itself.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// The only processor of the machine that it runs on, if there is only one.
    pub processor: Option<usize>,
    /// Priority, under policies that have them; a smaller number is more urgent.
    pub priority: Option<u32>,
    /// Budget in every period, in ns.
    pub budget_ns: u64,
    /// Period, in ns.
    pub period_ns: u64,
    /// Budget / period in millionths, rounded up.
    pub bandwidth_ppm: u64,
    /// Budget before, in ns.
    pub budget_before_ns: Option<u64>,
    /// Period before, in ns.
    pub period_before_ns: Option<u64>,
}

/// A host in which every deadline is guaranteed.
#[derive(Clone, Debug)]
pub struct Synthesis {
    /// The host with the chosen parameters.
    pub host: Host,
    /// One entry per unit with a budget, in the host's order.
    pub chosen: Vec<Chosen>,
    /// Is there nothing cheaper with the given choices, as far as the tests can tell? Otherwise the search
    /// ended early.
    pub exact: bool,
    /// The analysis of the host.
    pub report: Report,
}

impl Synthesis {
    /// All budgets / periods in millionths of a processor, each rounded up.
    pub fn bandwidth_ppm(&self) -> u64 {
        self.chosen.iter().map(|c| c.bandwidth_ppm).sum()
    }
}

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing suffices for this.
    Unmet {
        /// A vCPU, or a task.
        name: String,
        /// Which of its tasks have no guarantee, and why.
        why: Vec<String>,
    },
    /// The watch said so.
    Stopped,
}

/// The watch wants an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped;

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Failure::Stopped
    }
}

/// Policies whose units have budgets.
pub(crate) fn has_budgets(policy: &str) -> bool {
    is_partitioned(policy) || ["rtds", "cbs"].contains(&policy)
}

const NETWORKS: &str = "how often packets come depends on the budgets of all domains that they pass, and the search looks \
                        at one after the other; try budgets with `punctual check`";

/// Finds the smallest total bandwidth that guarantees every deadline of the host.
///
/// # Errors
/// For whom nothing suffices, or that the watch stopped the search.
pub fn synthesize(host: &Host, options: &Options, watch: Watch) -> Result<Synthesis, Failure> {
    if let Some(network) = host.networks.first().filter(|_| !host.flows.is_empty() || !host.chains.is_empty())
    {
        return Err(Failure::Unmet { name: network.name.clone(), why: vec![NETWORKS.into()] });
    }
    let mut result = host.clone();
    let mut exact = true;
    for pool in 0..host.pools.len() {
        if has_budgets(host.pools[pool].policy.info.name) {
            exact &= solve_pool(&mut result, pool, options, watch)?;
        }
    }
    let report = analyse(&result);
    if let Some(task) = report.tasks.iter().find(|task| !task.verdict.is_guaranteed()) {
        return Err(Failure::Unmet { name: task.parent.clone(), why: vec![said(&task.name, &task.verdict)] });
    }
    let chosen = chosen(host, &result);
    Ok(Synthesis { host: result, chosen, exact, report })
}

/// Solves one pool in place; is the solution exact?
fn solve_pool(result: &mut Host, pool: usize, options: &Options, watch: Watch) -> Result<bool, Failure> {
    let index = Index::new(result);
    let widened = widened(result, options.margin_ppm);
    let mut trial = Trial::new(&widened, &index, pool, options, watch);
    let (solutions, exact) = solutions(&mut trial, pool)?;
    let processors = result.pools[pool].processors.len();
    let tie = is_partitioned(result.pools[pool].policy.info.name) && processors > 1;
    for (home, solution) in solutions.into_iter().enumerate() {
        for (rank, placed) in solution.units.iter().enumerate() {
            let params = params_mut(result, placed.unit);
            params.budget = Some(Duration::from_ns(placed.budget));
            params.period = Some(Duration::from_ns(placed.period));
            if solution.renumber {
                params.priority = Some(rank as u32 + 1);
            }
            if tie && only_processor(params.affinity.as_ref(), processors).is_none() {
                let mut set = CpuSet::new(processors);
                set.insert(CpuId(home as u32));
                params.affinity = Some(set);
            }
        }
    }
    Ok(exact)
}

/// A solution for each processor of a partitioned pool, or for each group of another.
fn solutions(trial: &mut Trial, pool: usize) -> Result<(Vec<Solution>, bool), Failure> {
    let host = trial.given();
    if is_partitioned(host.pools[pool].policy.info.name) {
        return place::partitioned(trial);
    }
    let groups = Analysis::new(host, trial.index()).groups(pool);
    let groups = groups
        .map_err(|why| Failure::Unmet { name: host.pools[pool].name.clone(), why: vec![why.to_string()] })?;
    let mut exact = true;
    let mut solutions = Vec::new();
    for Group { units, processors } in groups {
        let solution = search::solve(trial, &units, processors)?;
        exact &= solution.exact;
        solutions.push(solution);
    }
    Ok((solutions, exact))
}

/// The host with costs that have grown by so many millionths, rounded up.
fn widened(host: &Host, margin_ppm: u64) -> Host {
    let mut host = host.clone();
    for task in &mut host.tasks {
        if let Work::Jobs { cost, .. } = &mut task.work {
            let grown = u128::from(cost.max.as_ns()) * u128::from(1_000_000 + margin_ppm);
            cost.max = Duration::from_ns(u64::try_from(grown.div_ceil(1_000_000)).unwrap_or(u64::MAX));
        }
    }
    host
}

pub(crate) fn params_mut(host: &mut Host, unit: Unit) -> &mut UnitParams {
    match unit {
        Unit::Vcpu(v) => &mut host.vcpus[v].params,
        Unit::Task(t) => &mut host.tasks[t].params,
    }
}

fn name_of(host: &Host, unit: Unit) -> String {
    match unit {
        Unit::Vcpu(v) => host.vcpus[v].name.clone(),
        Unit::Task(t) => host.tasks[t].name.clone(),
    }
}

/// A verdict that is no guarantee, in words.
fn said(task: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Guaranteed { .. } => format!("{task}: guaranteed"),
        Verdict::NotGuaranteed { counter_example } => format!(
            "{task}: misses by {} with {}",
            Duration::from_ns(counter_example.missed_by_ns),
            counter_example.pattern
        ),
        Verdict::Unknown { why } => format!("{task}: {why}"),
    }
}

fn chosen(before: &Host, after: &Host) -> Vec<Chosen> {
    let index = Index::new(after);
    let mut all = Vec::new();
    for (pool, units) in index.in_pool.iter().enumerate() {
        let in_pool = &after.pools[pool];
        if !has_budgets(in_pool.policy.info.name) {
            continue;
        }
        let ranked = in_pool.policy.info.unit_params.iter().any(|param| param.name == "priority");
        for unit in units.all() {
            let of = |host: &'_ Host| match unit {
                Unit::Vcpu(v) => host.vcpus[VcpuIx(v).0].params.clone(),
                Unit::Task(t) => host.tasks[TaskIx(t).0].params.clone(),
            };
            let (old, new) = (of(before), of(after));
            let ns = |time: Option<Duration>| time.map(|t| t.as_ns());
            let (budget, period) = (ns(new.budget).unwrap_or(0), ns(new.period).unwrap_or(1));
            let only = only_processor(new.affinity.as_ref(), in_pool.processors.len());
            all.push(Chosen {
                name: name_of(after, unit),
                pool: in_pool.name.clone(),
                processor: only.map(|p| in_pool.processors[p]),
                priority: new.priority.filter(|_| ranked),
                budget_ns: budget,
                period_ns: period,
                bandwidth_ppm: share(budget, period, 1_000_000),
                budget_before_ns: ns(old.budget),
                period_before_ns: ns(old.period),
            });
        }
    }
    all
}

/// `budget / period` in parts of `unit`, rounded up.
fn share(budget: u64, period: u64, unit: u64) -> u64 {
    let scaled = u128::from(budget) * u128::from(unit);
    u64::try_from(scaled.div_ceil(u128::from(period.max(1)))).unwrap_or(u64::MAX)
}
