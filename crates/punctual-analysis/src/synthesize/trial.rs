//! One question at a time: with these parameters, does this unit hold its deadlines?

use punctual_model::Host;
use punctual_model::host::{Arrival, Work};
use punctual_sched::{Duration, UnitParams};

use super::{Options, Periods, Stage, Stopped, Watch, params_mut};
use crate::host::{Analysis, Delivery, Index, Unit};
use crate::pool::Group;

/// RTDS takes no smaller budgets (`punctual policies rtds`).
const RTDS_BUDGET_MIN: u64 = 10_000;

/// A unit with its parameters; among fixed-priority servers its place in a list is its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) unit: Unit,
    pub(super) period: u64,
    pub(super) budget: u64,
}

impl Placed {
    /// Its bandwidth in parts of 10^12, rounded up.
    pub(super) fn share(&self) -> u64 {
        super::share(self.budget, self.period, 1_000_000_000_000)
    }
}

/// A host to try parameters on.
pub(super) struct Trial<'a> {
    /// As it came.
    given: Host,
    /// With the parameters on trial.
    host: Host,
    index: &'a Index,
    pub(super) pool: usize,
    pub(super) options: &'a Options,
    watch: Watch<'a>,
    /// Analyses so far.
    pub(super) analyses: u64,
}

impl<'a> Trial<'a> {
    pub(super) fn new(
        host: &Host,
        index: &'a Index,
        pool: usize,
        options: &'a Options,
        watch: Watch<'a>,
    ) -> Self {
        Trial { given: host.clone(), host: host.clone(), index, pool, options, watch, analyses: 0 }
    }

    /// The host as it came.
    pub(super) fn given(&self) -> &Host {
        &self.given
    }

    pub(super) fn index(&self) -> &'a Index {
        self.index
    }

    pub(super) fn policy(&self) -> &'static str {
        self.host.pools[self.pool].policy.info.name
    }

    /// Do the pool's units have priorities?
    pub(super) fn ranked(&self) -> bool {
        self.host.pools[self.pool].policy.info.unit_params.iter().any(|param| param.name == "priority")
    }

    /// The unit's parameters as they came.
    pub(super) fn params(&self, unit: Unit) -> &UnitParams {
        match unit {
            Unit::Vcpu(v) => &self.given.vcpus[v].params,
            Unit::Task(t) => &self.given.tasks[t].params,
        }
    }

    /// Tasks with deadlines anywhere below the unit.
    pub(super) fn tasks_below(&self, unit: Unit) -> Vec<usize> {
        match unit {
            Unit::Task(t) if matches!(self.host.tasks[t].work, Work::Hog { .. }) => Vec::new(),
            Unit::Task(t) => vec![t],
            Unit::Vcpu(v) => {
                let below = self.index.in_domain[self.host.vcpus[v].domain.0].all();
                below.into_iter().flat_map(|unit| self.tasks_below(unit)).collect()
            }
        }
    }

    /// Periods to try, ascending.
    pub(super) fn periods(&self, unit: Unit) -> Vec<u64> {
        let given = self.params(unit).period.map(Duration::as_ns);
        let given = given.or((self.policy() == "rtds").then_some(10_000_000));
        let tasks = self.tasks_below(unit);
        let Periods::Free(candidates) = &self.options.periods else { return given.into_iter().collect() };
        if tasks.is_empty() {
            return given.into_iter().collect();
        }
        let own: Vec<u64> =
            tasks.iter().map(|t| period_of(&self.host.tasks[*t].work)).filter(|p| *p > 0).collect();
        let longest = own.iter().copied().max().unwrap_or(0);
        let mut periods: Vec<u64> = if candidates.is_empty() {
            let common = own.iter().copied().reduce(gcd).unwrap_or(1);
            let divisors = (1..=20).filter(|n| common.is_multiple_of(*n)).map(|n| common / n);
            let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map(|ms| ms * MS);
            let all = divisors.chain(steps).chain(given);
            all.filter(|p| *p >= MS && *p <= longest || Some(*p) == given).collect()
        } else {
            candidates.iter().map(|p| p.as_ns()).collect()
        };
        periods.sort_unstable();
        periods.dedup();
        periods
    }

    /// The budget of a unit that has no deadlines below it: what the file reserves for it stays.
    pub(super) fn reservation(&self, unit: Unit) -> Option<u64> {
        self.tasks_below(unit).is_empty().then(|| self.params(unit).budget.map_or(0, Duration::as_ns))
    }

    /// Gives the units their parameters.
    pub(super) fn apply(&mut self, list: &[Placed]) {
        let ranked = self.ranked();
        for (rank, placed) in list.iter().enumerate() {
            let params = params_mut(&mut self.host, placed.unit);
            params.period = Some(Duration::from_ns(placed.period));
            params.budget = Some(Duration::from_ns(placed.budget));
            if ranked {
                params.priority = Some(rank as u32 + 1);
            }
        }
    }

    fn budget(&mut self, unit: Unit, budget: u64) {
        params_mut(&mut self.host, unit).budget = Some(Duration::from_ns(budget));
    }

    /// Counts an analysis and asks whether to go on.
    fn count(&mut self) -> Result<(), Stopped> {
        self.analyses += 1;
        match (self.watch)(Stage::Search(self.analyses)) {
            std::ops::ControlFlow::Break(()) => Err(Stopped),
            std::ops::ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn analysis(&self, group: &Group, wanted: Option<Unit>) -> Analysis<'_> {
        let mut analysis = Analysis::new(&self.host, self.index);
        analysis = match wanted {
            Some(unit) => analysis.wanted(unit),
            None => analysis,
        };
        analysis.group(self.pool, group);
        analysis
    }

    /// Does the unit get its budget, and do its tasks hold their deadlines?
    fn holds(&mut self, group: &Group, unit: Unit) -> Result<(Delivery, bool), Stopped> {
        self.count()?;
        let analysis = self.analysis(group, Some(unit));
        let delivery = analysis.delivered.get(&unit).copied().unwrap_or(Delivery::Unsure);
        Ok((delivery, analysis.tasks.values().all(|task| task.verdict.is_guaranteed())))
    }

    /// Do all deadlines below the group hold?
    pub(super) fn all_hold(&mut self, list: &[Placed], processors: usize) -> Result<bool, Stopped> {
        self.apply(list);
        self.count()?;
        let analysis = self.analysis(&group(list, processors), None);
        Ok(analysis.tasks.values().all(|task| task.verdict.is_guaranteed()))
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
    ) -> Result<Option<u64>, Stopped> {
        self.apply(list);
        let Placed { unit, period, budget } = list[at];
        if let Some(reserved) = self.reservation(unit) {
            return Ok(Some(reserved));
        }
        let granule = self.options.granularity.as_ns().max(1);
        let least = if self.policy() == "rtds" { RTDS_BUDGET_MIN } else { 1 };
        let group = group(list, processors);
        let (mut low, high) = (budget.max(least).div_ceil(granule), period / granule);
        if low > high {
            return Ok(None);
        }
        // Is the answer at most so many granules, if there is one?
        let enough = |trial: &mut Self, granules: u64| -> Result<bool, Stopped> {
            trial.budget(unit, granules * granule);
            trial.holds(&group, unit).map(|(delivery, hold)| hold || delivery == Delivery::Unsure)
        };
        if !enough(self, low)? {
            // Doubling steps first: what is still missing is mostly little.
            let mut step = 1;
            let mut top = low + 1;
            while top < high && !enough(self, top)? {
                (low, step) = (top, step * 2);
                top = top.saturating_add(step);
            }
            let mut top = top.min(high);
            if top <= low {
                return Ok(None);
            }
            while top - low > 1 {
                let middle = low + (top - low) / 2;
                if enough(self, middle)? { top = middle } else { low = middle }
            }
            low = top;
        }
        self.budget(unit, low * granule);
        let (delivery, hold) = self.holds(&group, unit)?;
        Ok((delivery == Delivery::Sure && hold).then_some(low * granule))
    }

    /// Why a unit's tasks do not hold their deadlines beside the others of the list, with the largest budget
    /// that it surely gets.
    pub(super) fn why_not(&mut self, list: &[Placed], at: usize, processors: usize) -> Vec<String> {
        self.apply(list);
        let Placed { unit, period, .. } = list[at];
        let granule = self.options.granularity.as_ns().max(1);
        let group = group(list, processors);
        let mut possible = |granules: u64| {
            self.budget(unit, granules * granule);
            let analysis = self.analysis(&group, Some(unit));
            analysis.delivered.get(&unit).is_some_and(|delivery| *delivery != Delivery::Unsure)
        };
        let (mut low, mut high) = (0, period / granule + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if possible(middle) { low = middle } else { high = middle }
        }
        let period = Duration::from_ns(period);
        let budget = Duration::from_ns(low * granule);
        if low == 0 {
            return vec![format!(
                "not even {} in every {period} is surely left for it",
                self.options.granularity
            )];
        }
        let with = format!("with {budget} in every {period}, the most it surely gets");
        self.budget(unit, low * granule);
        let analysis = self.analysis(&group, Some(unit));
        let missing = analysis.tasks.values().filter(|task| !task.verdict.is_guaranteed());
        std::iter::once(with).chain(missing.map(|task| super::said(&task.name, &task.verdict))).collect()
    }
}

pub(super) fn group(list: &[Placed], processors: usize) -> Group {
    Group { units: list.iter().map(|placed| placed.unit).collect(), processors }
}

const MS: u64 = 1_000_000;

fn period_of(work: &Work) -> u64 {
    match work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, .. } => period.as_ns(),
        Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, .. } => separation.as_ns(),
        // Released by packets: nothing says how often.
        Work::Served { .. } | Work::Hog { .. } => 0,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
