//! One question at a time: with these parameters, does this unit hold its deadlines?

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::{PoolIx, TaskIx};
use punctual_sched::registry::PolicyInfo;
use punctual_sched::{Duration, Instant, ParamError, UnitParams};

use super::chosen::{has_priorities, share};
use super::error::Shortfall;
use super::options::{Options, Periods};
use crate::demand::NANOSECOND;
use crate::findings::{Delivery, Findings};
use crate::inputs::{Index, Inputs, Load, NO_LOAD, UnitIx, params, separation};
use crate::pool::{Group, of_group};
use crate::watch::{Stage, Stopped, Watch, report};

/// Of a common period of the tasks these many parts are candidates.
const DIVISORS_MAX: u64 = 20;

/// The shortest candidate.
const PERIOD_MIN: Duration = Duration::from_ms(1);

/// Candidates whatever the tasks.
const STEPS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// A unit with its parameters; among fixed-priority servers its place in a list is its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) unit: UnitIx,
    pub(super) period: Duration,
    pub(super) budget: Duration,
}

impl Placed {
    /// Its bandwidth in parts of 10^12, rounded up.
    pub(super) fn share(&self) -> u64 {
        share(self.budget, self.period, 1_000_000_000_000)
    }
}

/// What the search in a pool takes from elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Beside<'l> {
    /// What networks add to the host's own tasks at least.
    pub(super) load: &'l Load,
    /// Units that are sized for the whole host later, and the budgets that they have here.
    pub(super) starts: BTreeMap<UnitIx, Duration>,
    /// Tasks whose deadlines are judged then.
    pub(super) tasks: BTreeSet<TaskIx>,
}

impl Beside<'_> {
    pub(super) fn nothing() -> Self {
        Beside { load: &NO_LOAD, starts: BTreeMap::new(), tasks: BTreeSet::new() }
    }
}

/// A host to try parameters on.
pub(super) struct Trial<'a> {
    given: &'a Host,
    host: Host,
    index: &'a Index,
    pub(super) pool: PoolIx,
    pub(super) options: &'a Options,
    beside: &'a Beside<'a>,
    watch: Watch<'a>,
    /// By unit: the periods to try, ascending.
    periods: BTreeMap<UnitIx, Vec<Duration>>,
    pub(super) analyses: u64,
}

impl<'a> Trial<'a> {
    pub(super) fn new(
        host: &'a Host,
        index: &'a Index,
        pool: PoolIx,
        options: &'a Options,
        beside: &'a Beside<'a>,
        watch: Watch<'a>,
    ) -> Self {
        let (given, host, periods) = (host, host.clone(), BTreeMap::new());
        let mut trial = Trial { given, host, index, pool, options, beside, watch, periods, analyses: 0 };
        trial.periods = index.in_pool(pool).all().map(|unit| (unit, trial.choices(unit))).collect();
        trial
    }

    pub(super) fn given(&self) -> &'a Host {
        self.given
    }

    pub(super) fn index(&self) -> &'a Index {
        self.index
    }

    fn policy(&self) -> &'static PolicyInfo {
        self.host.pools[self.pool.0].policy.info
    }

    /// Do the pool's units have priorities?
    pub(super) fn ranked(&self) -> bool {
        has_priorities(self.policy())
    }

    /// The unit's parameters as they came.
    pub(super) fn params(&self, unit: UnitIx) -> &'a UnitParams {
        params(self.given, unit)
    }

    /// Tasks with deadlines anywhere below the unit.
    fn tasks_below(&self, unit: UnitIx) -> Vec<TaskIx> {
        match unit {
            UnitIx::Task(t) if matches!(self.host.tasks[t.0].work, Work::Hog { .. }) => Vec::new(),
            UnitIx::Task(t) => vec![t],
            UnitIx::Vcpu(v) => {
                let below = self.index.in_domain(self.host.vcpus[v.0].domain).all();
                below.flat_map(|unit| self.tasks_below(unit)).collect()
            }
        }
    }

    /// Periods to try, ascending.
    pub(super) fn periods(&self, unit: UnitIx) -> Vec<Duration> {
        self.periods.get(&unit).cloned().unwrap_or_default()
    }

    /// Why the policy takes none of the periods for a unit, where that is so.
    pub(super) fn refusal(&self) -> Option<(UnitIx, ParamError)> {
        let without = |unit: &UnitIx| self.periods(*unit).is_empty() && !self.tasks_below(*unit).is_empty();
        let unit = self.index.in_pool(self.pool).all().find(without)?;
        let Periods::Free(candidates) = &self.options.periods else { return None };
        candidates.iter().find_map(|period| Some((unit, self.accept(unit, *period).err()?)))
    }

    /// Does the policy accept the unit with this period, all of it as its budget?
    fn accept(&self, unit: UnitIx, period: Duration) -> Result<(), ParamError> {
        let (budget, period) = (Some(period), Some(period));
        accepts(self.given, self.pool, &UnitParams { budget, period, ..self.params(unit).clone() })
    }

    fn choices(&self, unit: UnitIx) -> Vec<Duration> {
        let given = self.policy().period(self.params(unit));
        let tasks = self.tasks_below(unit);
        let candidates = match &self.options.periods {
            Periods::Free(candidates) if !tasks.is_empty() && !self.beside.starts.contains_key(&unit) => {
                candidates
            }
            Periods::Free(_) | Periods::Given => return given.into_iter().collect(),
        };
        let mut periods = match candidates.as_slice() {
            [] => self.candidates(&tasks, given),
            candidates => candidates.to_vec(),
        };
        periods.retain(|period| self.accept(unit, *period).is_ok());
        periods.sort_unstable();
        periods.dedup();
        periods
    }

    /// Steps, divisors of the tasks' common period, and the period given.
    fn candidates(&self, tasks: &[TaskIx], given: Option<Duration>) -> Vec<Duration> {
        let own = tasks.iter().map(|task| period_of(&self.host.tasks[task.0].work));
        let own: Vec<Duration> = own.filter(|period| !period.is_zero()).collect();
        let longest = own.iter().copied().max().unwrap_or_default();
        let common = own.iter().copied().reduce(greatest_divisor).unwrap_or(NANOSECOND);
        let divisors = (1..=DIVISORS_MAX).map(|n| common / n).zip(1..);
        let divisors = divisors.filter(|(part, n)| *part * *n == common).map(|(part, _)| part);
        let all = divisors.chain(STEPS_MS.map(Duration::from_ms)).chain(given);
        all.filter(|period| (PERIOD_MIN..=longest).contains(period) || Some(*period) == given).collect()
    }

    /// The budget of a unit that has no deadlines below it, which stays what the file reserves for it, or of
    /// one that is sized later.
    pub(super) fn reservation(&self, unit: UnitIx) -> Option<Duration> {
        if let Some(start) = self.beside.starts.get(&unit) {
            return Some(*start);
        }
        self.tasks_below(unit).is_empty().then(|| self.params(unit).budget.unwrap_or_default())
    }

    /// The step in which budgets are tried.
    pub(super) fn granule(&self) -> Duration {
        self.options.granularity.max(NANOSECOND)
    }

    /// The smallest budget that is tried: a multiple of the granularity that the policy accepts.
    pub(super) fn least(&self) -> Duration {
        least_budget(self.policy(), self.options)
    }

    /// Gives the units their parameters.
    fn apply(&mut self, list: &[Placed]) {
        let ranked = self.ranked();
        for (rank, placed) in list.iter().enumerate() {
            let params = params_mut(&mut self.host, placed.unit);
            params.period = Some(placed.period);
            params.budget = Some(placed.budget);
            if ranked {
                params.priority = Some(rank as u32 + 1);
            }
        }
    }

    fn set_budget(&mut self, unit: UnitIx, budget: Duration) {
        params_mut(&mut self.host, unit).budget = Some(budget);
    }

    /// Counts an analysis and asks whether to go on.
    fn count(&mut self) -> Result<(), Stopped> {
        self.analyses += 1;
        report(&mut self.watch, Stage::Search { analyses: self.analyses })
    }

    fn findings(&self, group: &Group, wanted: Option<UnitIx>) -> Findings {
        let inputs = Inputs { host: &self.host, index: self.index, load: self.beside.load };
        let mut found = of_group(inputs, self.pool, group, wanted);
        found.tasks.retain(|task, _| !self.beside.tasks.contains(task));
        found
    }

    /// Does the unit get its budget, and do its tasks hold their deadlines?
    fn holds(&mut self, group: &Group, unit: UnitIx) -> Result<(Delivery, bool), Stopped> {
        self.count()?;
        let found = self.findings(group, Some(unit));
        Ok((delivery(&found, unit), all_guaranteed(&found)))
    }

    /// Do all deadlines below the group hold?
    pub(super) fn all_hold(&mut self, list: &[Placed], processors: usize) -> Result<bool, Stopped> {
        self.apply(list);
        self.count()?;
        Ok(all_guaranteed(&self.findings(&group(list, processors), None)))
    }

    /// The smallest budget, a multiple of the granularity and at least what it has, with which the unit at
    /// `at` holds its deadlines beside the others of the list.
    ///
    /// Too little is eaten up by the scheduler itself; then more budget helps its tasks; beyond some point it
    /// is not guaranteed itself.
    pub(super) fn smallest(
        &mut self,
        list: &[Placed],
        at: usize,
        processors: usize,
    ) -> Result<Option<Duration>, Stopped> {
        self.apply(list);
        let Placed { unit, period, budget } = list[at];
        let granule = self.granule();
        let group = group(list, processors);
        if let Some(reserved) = self.reservation(unit) {
            // What is sized later needs at least this.
            self.set_budget(unit, reserved);
            let is_sized = self.beside.starts.contains_key(&unit);
            let is_lost = is_sized && self.holds(&group, unit)?.0 == Delivery::Unsure;
            return Ok((!is_lost).then_some(reserved));
        }
        let (first, last) = (budget.max(self.least()).div_ceil(granule), period.div_floor(granule));
        if first > last {
            return Ok(None);
        }
        // Is the answer at most this many granules, if there is one?
        let enough = |granules: u64| -> Result<bool, Stopped> {
            self.set_budget(unit, granule * granules);
            let (delivery, hold) = self.holds(&group, unit)?;
            Ok(hold || delivery == Delivery::Unsure)
        };
        let Some(granules) = first_that(first, last, enough)? else { return Ok(None) };
        let found = granule * granules;
        self.set_budget(unit, found);
        let (delivery, hold) = self.holds(&group, unit)?;
        Ok((delivery == Delivery::Sure && hold).then_some(found))
    }

    /// Why a unit's tasks do not hold their deadlines beside the others of the list, with the largest budget
    /// that it surely gets.
    pub(super) fn why_not(&mut self, list: &[Placed], at: usize, processors: usize) -> Vec<Shortfall> {
        self.apply(list);
        let Placed { unit, period, .. } = list[at];
        let (granule, least) = (self.granule(), self.least());
        if least > period {
            return vec![Shortfall::Granularity { budget: least, period }];
        }
        let group = group(list, processors);
        let mut possible = |granules: u64| {
            self.set_budget(unit, granule * granules);
            delivery(&self.findings(&group, Some(unit)), unit) != Delivery::Unsure
        };
        let (mut low, mut high) = (0, period.div_floor(granule) + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if possible(middle) { low = middle } else { high = middle }
        }
        if low == 0 {
            return vec![Shortfall::NoTime { budget: least, period }];
        }
        let budget = (granule * low).max(least);
        self.set_budget(unit, budget);
        let found = self.findings(&group, Some(unit));
        let missing = found.tasks.into_iter().filter(|(_, answer)| !answer.answer.is_guaranteed());
        let task = |task: TaskIx| self.host.tasks[task.0].name.clone();
        let missing = missing.map(|(at, of)| Shortfall::of_task(task(at), &of.answer, &self.host));
        std::iter::once(Shortfall::With { budget, period }).chain(missing).collect()
    }
}

/// The first number from `first` to `last` for which `enough`, which stays true once it is.
fn first_that(
    first: u64,
    last: u64,
    mut enough: impl FnMut(u64) -> Result<bool, Stopped>,
) -> Result<Option<u64>, Stopped> {
    if enough(first)? {
        return Ok(Some(first));
    }
    // Doubling steps first: what is still missing is mostly little.
    let (mut low, mut top, mut step) = (first, first + 1, 1);
    while top < last && !enough(top)? {
        (low, step) = (top, step * 2);
        top = top.saturating_add(step);
    }
    let mut top = top.min(last);
    if top <= low {
        return Ok(None);
    }
    while top - low > 1 {
        let middle = low + (top - low) / 2;
        if enough(middle)? { top = middle } else { low = middle }
    }
    Ok(Some(top))
}

fn delivery(found: &Findings, unit: UnitIx) -> Delivery {
    found.budgets.get(&unit).map_or(Delivery::Unsure, |budget| budget.delivery)
}

fn all_guaranteed(found: &Findings) -> bool {
    found.tasks.values().all(|task| task.answer.is_guaranteed())
}

fn group(list: &[Placed], processors: usize) -> Group {
    Group { units: list.iter().map(|placed| placed.unit).collect(), processors }
}

/// The smallest budget that is tried: a multiple of the granularity that the policy accepts.
pub(super) fn least_budget(policy: &PolicyInfo, options: &Options) -> Duration {
    let granule = options.granularity.max(NANOSECOND);
    let least = policy.budgets.min().unwrap_or_default().max(NANOSECOND);
    granule * least.div_ceil(granule)
}

/// Does the policy of the pool accept a unit with these parameters?
pub(super) fn accepts(host: &Host, pool: PoolIx, params: &UnitParams) -> Result<(), ParamError> {
    let pool = &host.pools[pool.0];
    let Ok(mut policy) = pool.policy.info.build(pool.processors.len(), &pool.policy.options) else {
        return Ok(());
    };
    policy.insert(Instant::ZERO, params).map(drop)
}

pub(super) fn params_mut(host: &mut Host, unit: UnitIx) -> &mut UnitParams {
    match unit {
        UnitIx::Vcpu(v) => &mut host.vcpus[v.0].params,
        UnitIx::Task(t) => &mut host.tasks[t.0].params,
    }
}

/// The least distance of a task's releases; zero when nothing says how often packets release it.
fn period_of(work: &Work) -> Duration {
    match work {
        Work::Jobs { arrival, .. } => separation(arrival),
        Work::Served { .. } | Work::Hog { .. } => Duration::ZERO,
    }
}

fn greatest_divisor(a: Duration, b: Duration) -> Duration {
    if b.is_zero() { a } else { greatest_divisor(b, a % b) }
}
