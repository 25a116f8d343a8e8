//! Units that share processors: in which order of priority, with which periods, and with which smallest
//! budgets.

use super::trial::{Placed, Trial};
use super::{Failure, Stopped, name_of};
use crate::host::Unit;

/// Rounds of Audsley's assignment with the budgets of the round before.
const AUDSLEY_ROUNDS: usize = 8;

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

/// Finds the smallest budgets for `units`, which share so many processors.
///
/// # Errors
/// Who cannot be guaranteed.
pub(super) fn solve(trial: &mut Trial, units: &[Unit], processors: usize) -> Result<Solution, Failure> {
    let effort = trial.options.effort;
    solve_within(trial, units, processors, effort)
}

/// The same with so many analyses at most, apart from those of the first solution.
pub(super) fn solve_within(
    trial: &mut Trial,
    units: &[Unit],
    processors: usize,
    effort: u64,
) -> Result<Solution, Failure> {
    let mut search = Search::new(trial, units, processors, effort);
    if search.free_order {
        if search.all_given {
            // The file's order is as good a guess as any, and so much faster to search that it bounds the
            // rest.
            search.free_order = false;
            search.descend(&[])?;
            (search.free_order, search.exact) = (true, true);
        }
        search.audsley()?;
    }
    search.descend(&[])?;
    search.finish()
}

struct Search<'t, 'a> {
    trial: &'t mut Trial<'a>,
    units: Vec<Unit>,
    processors: usize,
    /// May the search choose priorities?
    free_order: bool,
    /// Has the file priorities for all units?
    all_given: bool,
    /// Is there anything to choose but budgets?
    choices: bool,
    best: Option<(u64, Vec<Placed>)>,
    /// Analyses after which the search is content with a solution.
    end: u64,
    exact: bool,
    /// The longest list that could not go on, and the place in it of the unit that failed.
    unmet: Option<(Vec<Placed>, usize)>,
}

impl<'t, 'a> Search<'t, 'a> {
    fn new(trial: &'t mut Trial<'a>, units: &[Unit], processors: usize, effort: u64) -> Self {
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

    fn finish(mut self) -> Result<Solution, Failure> {
        let renumber = self.free_order;
        let Some((_, best)) = self.best.take() else {
            let Some((list, at)) = self.unmet.take() else {
                let why = vec!["the search ended before it found anything; try more effort".into()];
                return Err(Failure::Unmet { name: String::new(), why });
            };
            let name = name_of(self.trial.given(), list[at].unit);
            let why = self.trial.why_not(&list, at, self.processors);
            return Err(Failure::Unmet { name, why });
        };
        let (best, changed) = self.shrink(best)?;
        Ok(Solution { units: best, exact: self.exact && !changed, renumber })
    }

    /// Takes a granule off every budget that still suffices without it, until none does.
    fn shrink(&mut self, mut list: Vec<Placed>) -> Result<(Vec<Placed>, bool), Stopped> {
        let granule = self.trial.options.granularity.as_ns().max(1);
        let (mut any, mut changed) = (false, true);
        while changed {
            changed = false;
            for at in 0..list.len() {
                if self.trial.reservation(list[at].unit).is_some() || list[at].budget <= granule {
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
    fn given(&self, unit: Unit) -> Option<u32> {
        self.trial.params(unit).priority.filter(|_| !self.trial.options.free_priorities)
    }

    /// May `unit` come before all the `others`?
    fn may_lead(&self, unit: Unit, others: &[Unit]) -> bool {
        let Some(own) = self.given(unit) else { return true };
        let at = |unit: Unit| self.units.iter().position(|u| *u == unit);
        let before = |other: &&Unit| self.given(**other).is_some_and(|p| (p, at(**other)) < (own, at(unit)));
        !others.iter().any(|other| before(&other))
    }

    /// The list with one more unit, budgets as small as they may be; `None` if someone has none.
    fn extend(&mut self, list: &[Placed], unit: Unit, period: u64) -> Result<Option<Vec<Placed>>, Stopped> {
        let mut list = list.to_vec();
        list.push(Placed { unit, period, budget: 0 });
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

    /// Raises budgets until everybody has the smallest that suffices beside the others; from below, so nobody
    /// gets more than in any other solution.
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
    fn complete(&mut self, list: &[Placed]) -> Result<(), Stopped> {
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
        if self.unmet.as_ref().is_none_or(|(longest, _)| list.len() > longest.len()) {
            self.unmet = Some((list, at));
        }
    }

    /// Branch and bound: all that may follow after `list`, the most promising first.
    ///
    /// What a unit needs right after the list is the least it can need anywhere later, so the sum of these is
    /// a lower bound, and a unit that cannot be guaranteed there never can.
    fn descend(&mut self, list: &[Placed]) -> Result<(), Stopped> {
        let there = |unit: &Unit| list.iter().any(|placed| placed.unit == *unit);
        let left: Vec<Unit> = self.units.iter().copied().filter(|unit| !there(unit)).collect();
        if left.is_empty() {
            return self.complete(list);
        }
        let mut bound = total(list);
        let mut children = Vec::new();
        for (i, &unit) in left.iter().enumerate() {
            let next = if self.free_order { self.may_lead(unit, &left) } else { i == 0 };
            if !next && !self.choices {
                continue;
            }
            let mut least: Option<u64> = None;
            for period in self.trial.periods(unit) {
                let Some(child) = self.extend(list, unit, period)? else { continue };
                let own = child[list.len()].share();
                least = Some(least.map_or(own, |least| least.min(own)));
                if next {
                    children.push((own, child));
                }
            }
            let Some(least) = least else {
                let period = self.trial.periods(unit).first().copied().unwrap_or(1);
                let mut list = list.to_vec();
                list.push(Placed { unit, period, budget: 0 });
                let last = list.len() - 1;
                self.failed(list, last);
                return Ok(());
            };
            bound = bound.saturating_add(least);
            // For the bound of each child: what it costs beyond the cheapest choice for its unit.
            let of_unit = |(_, child): &&mut (u64, Vec<Placed>)| child[list.len()].unit == unit;
            children.iter_mut().filter(of_unit).for_each(|(own, _)| *own -= least);
        }
        let period_first = self.free_order;
        children.sort_by_key(|(more, child)| {
            let period = child[list.len()].period;
            (if period_first { period } else { 0 }, *more, std::cmp::Reverse(period))
        });
        for (i, (more, child)) in children.into_iter().enumerate() {
            if self.best.as_ref().is_some_and(|(best, _)| bound.saturating_add(more) >= *best) {
                continue;
            }
            // The first way down is always gone to its end.
            if self.trial.analyses > self.end && (i > 0 || self.best.is_some()) {
                self.exact = false;
                return Ok(());
            }
            self.descend(&child)?;
        }
        Ok(())
    }

    /// Audsley's assignment: the least urgent place goes to the unit that needs least more there than alone,
    /// and so on upwards. Budgets of those above are what the round before found.
    fn audsley(&mut self) -> Result<(), Stopped> {
        let mut current: Vec<Placed> = Vec::new();
        for unit in self.units.clone() {
            let mut choices = Vec::new();
            for period in self.trial.periods(unit) {
                choices.extend(self.extend(&[], unit, period)?.map(|list| list[0]));
            }
            let cheapest = choices.into_iter().min_by_key(|p| (p.share(), std::cmp::Reverse(p.period)));
            let Some(alone) = cheapest else { return Ok(()) };
            current.push(alone);
        }
        let alone = current.clone();
        let mut before: Vec<Unit> = Vec::new();
        for _ in 0..AUDSLEY_ROUNDS {
            let Some(order) = self.audsley_order(&current, &alone)? else { return Ok(()) };
            if order == before {
                return Ok(());
            }
            let mut list: Vec<Placed> = Vec::new();
            for unit in &order {
                let period = current.iter().find(|p| p.unit == *unit).map_or(1, |p| p.period);
                let Some(longer) = self.extend(&list, *unit, period)? else { break };
                list = longer;
            }
            if list.len() == order.len() {
                self.complete(&list)?;
            }
            for placed in list {
                current.iter_mut().filter(|p| p.unit == placed.unit).for_each(|p| *p = placed);
            }
            before = order;
        }
        Ok(())
    }

    fn audsley_order(&mut self, current: &[Placed], alone: &[Placed]) -> Result<Option<Vec<Unit>>, Stopped> {
        let mut above = current.to_vec();
        let mut order = Vec::new();
        while !above.is_empty() {
            let mut cheapest: Option<(u64, usize)> = None;
            for at in 0..above.len() {
                let others: Vec<Unit> = above.iter().map(|p| p.unit).collect();
                let own = above[at].unit;
                if others.iter().any(|other| *other != own && !self.may_lead(*other, &[own])) {
                    continue;
                }
                let mut list: Vec<Placed> = above.iter().copied().filter(|p| p.unit != own).collect();
                let alone = alone.iter().find(|p| p.unit == own).copied().unwrap_or(above[at]);
                list.push(alone);
                let last = list.len() - 1;
                if let Some(budget) = self.trial.smallest(&list, last, self.processors)? {
                    let more = Placed { budget, ..alone }.share() - alone.share();
                    if cheapest.is_none_or(|(least, _)| more < least) {
                        cheapest = Some((more, at));
                    }
                }
            }
            let Some((_, at)) = cheapest else { return Ok(None) };
            order.insert(0, above.remove(at).unit);
        }
        Ok(Some(order))
    }
}
