//! Branch and bound over orders of priority and periods, with the smallest budgets for each.

use std::cmp::Reverse;

use punctual_sched::Duration;

use super::error::{Error, Shortfall};
use super::trial::{Placed, Trial};
use crate::demand::NANOSECOND;
use crate::inputs::{UnitIx, name};
use crate::watch::Stopped;

/// The cheapest parameters found for a set of units.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    /// Most urgent first, where there are priorities.
    pub(super) units: Vec<Placed>,
    /// Is nothing cheaper with the choices there are?
    pub(super) exact: bool,
    /// Are the priorities the search's own?
    pub(super) renumber: bool,
}

impl Solution {
    /// The bandwidth in parts of 10^12.
    pub(super) fn share(&self) -> u64 {
        total(&self.units)
    }
}

fn total(list: &[Placed]) -> u64 {
    list.iter().map(Placed::share).sum()
}

/// A list that could not go on.
struct Unmet {
    list: Vec<Placed>,
    /// The place in it of the unit that failed.
    at: usize,
}

/// What may follow after a list.
struct Child {
    list: Vec<Placed>,
    /// The share of the unit that it adds, beyond the least that this unit can need.
    more: u64,
}

impl Child {
    fn added(&self) -> Placed {
        self.list[self.list.len() - 1]
    }
}

/// What may follow after a list, and the least that all units together need then.
struct Children {
    all: Vec<Child>,
    bound: u64,
}

/// The search for the parameters of units that share processors.
pub(super) struct Search<'t, 'a> {
    pub(super) trial: &'t mut Trial<'a>,
    pub(super) units: Vec<UnitIx>,
    pub(super) processors: usize,
    /// May the search choose priorities?
    pub(super) free_order: bool,
    /// Has the file priorities for all units?
    pub(super) all_given: bool,
    /// Is there anything to choose but budgets?
    choices: bool,
    best: Option<(u64, Vec<Placed>)>,
    /// Analyses after which the search is content with a solution.
    end: u64,
    pub(super) exact: bool,
    unmet: Option<Unmet>,
}

impl<'t, 'a> Search<'t, 'a> {
    pub(super) fn new(trial: &'t mut Trial<'a>, units: &[UnitIx], processors: usize, effort: u64) -> Self {
        let mut units = units.to_vec();
        let ranked = trial.ranked();
        let all_given = units.iter().all(|unit| trial.params(*unit).priority.is_some());
        let free_order = ranked && (trial.options.free_priorities || !all_given) && units.len() > 1;
        if ranked {
            // Stable: equal priorities rank in the order of insertion.
            units.sort_by_key(|unit| trial.params(*unit).priority.unwrap_or(u32::MAX));
        }
        let choices = free_order || units.iter().any(|unit| trial.periods(*unit).len() > 1);
        let end = trial.analyses.saturating_add(effort);
        let (best, unmet) = (None, None);
        Search { trial, units, processors, free_order, all_given, choices, best, end, exact: true, unmet }
    }

    pub(super) fn finish(mut self) -> Result<Solution, Error> {
        let renumber = self.free_order;
        let Some((_, best)) = self.best.take() else {
            let Some(Unmet { list, at }) = self.unmet.take() else {
                return Err(Error::Unmet { name: String::new(), why: vec![Shortfall::Effort] });
            };
            let name = name(self.trial.given(), list[at].unit).to_owned();
            let why = self.trial.why_not(&list, at, self.processors);
            return Err(Error::Unmet { name, why });
        };
        let (best, changed) = self.shrink(best)?;
        Ok(Solution { units: best, exact: self.exact && !changed, renumber })
    }

    /// Takes a granule off every budget that still suffices without it, until none does.
    fn shrink(&mut self, mut list: Vec<Placed>) -> Result<(Vec<Placed>, bool), Stopped> {
        let (granule, least) = (self.trial.granule(), self.trial.least());
        let (mut any, mut changed) = (false, true);
        while changed {
            changed = false;
            for at in 0..list.len() {
                if self.trial.reservation(list[at].unit).is_some() || list[at].budget < granule + least {
                    continue;
                }
                list[at].budget -= granule;
                if self.trial.all_hold(&list, self.processors)? {
                    (any, changed) = (true, true);
                } else {
                    list[at].budget += granule;
                }
            }
        }
        Ok((list, any))
    }

    /// Priority that the file gives and the search may not change.
    fn given(&self, unit: UnitIx) -> Option<u32> {
        self.trial.params(unit).priority.filter(|_| !self.trial.options.free_priorities)
    }

    /// May `unit` come before all the `others`?
    pub(super) fn may_lead(&self, unit: UnitIx, others: &[UnitIx]) -> bool {
        let Some(own) = self.given(unit) else { return true };
        let at = |unit: UnitIx| self.units.iter().position(|u| *u == unit);
        let before =
            |other: &&UnitIx| self.given(**other).is_some_and(|p| (p, at(**other)) < (own, at(unit)));
        !others.iter().any(|other| before(&other))
    }

    /// The list with one more unit, budgets as small as they may be; `None` if some unit has none.
    pub(super) fn extend(
        &mut self,
        list: &[Placed],
        unit: UnitIx,
        period: Duration,
    ) -> Result<Option<Vec<Placed>>, Stopped> {
        let mut list = list.to_vec();
        list.push(Placed { unit, period, budget: Duration::ZERO });
        if self.trial.ranked() {
            // Those above do not feel it; `settle` looks once more at the end.
            let last = list.len() - 1;
            let budget = self.trial.smallest(&list, last, self.processors)?;
            return Ok(budget.map(|budget| {
                list[last].budget = budget;
                list
            }));
        }
        self.settle(list)
    }

    /// Raises budgets until every unit has the smallest that suffices beside the others; from below, so no
    /// unit gets more than in any other solution.
    fn settle(&mut self, mut list: Vec<Placed>) -> Result<Option<Vec<Placed>>, Stopped> {
        loop {
            let mut changed = false;
            for at in (0..list.len()).rev() {
                match self.trial.smallest(&list, at, self.processors)? {
                    None => {
                        self.failed(list, at);
                        return Ok(None);
                    }
                    Some(budget) if budget != list[at].budget => (list[at].budget, changed) = (budget, true),
                    Some(_) => {}
                }
            }
            if !changed {
                return Ok(Some(list));
            }
        }
    }

    /// A complete list: is it the best so far?
    pub(super) fn complete(&mut self, list: &[Placed]) -> Result<(), Stopped> {
        let settled = if self.trial.ranked() { self.settle(list.to_vec())? } else { Some(list.to_vec()) };
        if let Some(list) = settled {
            let cost = total(&list);
            if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
                self.best = Some((cost, list));
            }
        }
        Ok(())
    }

    fn failed(&mut self, list: Vec<Placed>, at: usize) {
        if self.unmet.as_ref().is_none_or(|unmet| list.len() > unmet.list.len()) {
            self.unmet = Some(Unmet { list, at });
        }
    }

    /// Branch and bound: all that may follow after `list`, the most promising first.
    pub(super) fn descend(&mut self, list: &[Placed]) -> Result<(), Stopped> {
        if list.len() == self.units.len() {
            return self.complete(list);
        }
        let Some(Children { mut all, bound }) = self.children(list)? else { return Ok(()) };
        let period_first = self.free_order;
        all.sort_by_key(|child| {
            let period = child.added().period;
            (period_first.then_some(period), child.more, Reverse(period))
        });
        for (i, child) in all.into_iter().enumerate() {
            if self.best.as_ref().is_some_and(|(best, _)| bound.saturating_add(child.more) >= *best) {
                continue;
            }
            // The first way down is always followed to the bottom.
            if self.trial.analyses > self.end && (i > 0 || self.best.is_some()) {
                self.exact = false;
                return Ok(());
            }
            self.descend(&child.list)?;
        }
        Ok(())
    }

    /// All that may follow after `list`; `None` when some unit can never be guaranteed.
    ///
    /// What a unit needs right after the list is the least it can need anywhere later, so the sum of these is
    /// a lower bound, and a unit that cannot be guaranteed there never can.
    fn children(&mut self, list: &[Placed]) -> Result<Option<Children>, Stopped> {
        let there = |unit: &UnitIx| list.iter().any(|placed| placed.unit == *unit);
        let left: Vec<UnitIx> = self.units.iter().copied().filter(|unit| !there(unit)).collect();
        let mut bound = total(list);
        let mut all: Vec<Child> = Vec::new();
        for (i, &unit) in left.iter().enumerate() {
            let next = if self.free_order { self.may_lead(unit, &left) } else { i == 0 };
            if !next && !self.choices {
                continue;
            }
            let mut of_unit: Vec<Child> = Vec::new();
            for period in self.trial.periods(unit) {
                if let Some(list) = self.extend(list, unit, period)? {
                    let more = list[list.len() - 1].share();
                    of_unit.push(Child { list, more });
                }
            }
            let Some(least) = of_unit.iter().map(|child| child.more).min() else {
                let period = self.trial.periods(unit).first().copied().unwrap_or(NANOSECOND);
                let mut list = list.to_vec();
                list.push(Placed { unit, period, budget: Duration::ZERO });
                let last = list.len() - 1;
                self.failed(list, last);
                return Ok(None);
            };
            bound = bound.saturating_add(least);
            if next {
                of_unit.iter_mut().for_each(|child| child.more -= least);
                all.extend(of_unit);
            }
        }
        Ok(Some(Children { all, bound }))
    }
}
