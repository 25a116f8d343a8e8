//! Units of a partitioned pool to its processors.

use std::cmp::Reverse;

use punctual_sched::CpuId;

use super::error::{Error, Shortfall};
use super::group::{solve, solve_within};
use super::options::Placement;
use super::search::Solution;
use super::trial::Trial;
use crate::inputs::{UnitIx, name, only_processor};
use crate::watch::Stopped;

/// Analyses for one look at one processor beyond the first solution.
const GLANCE: u64 = 200;

/// Up to this many free units [`Placement::Auto`] tries all placements.
const EXACT_MAX: usize = 8;

/// Placements that the exact search looks at before it settles for the best.
const NODES_MAX: u64 = 20_000;

/// By processor: its units.
type Assignment = Vec<Vec<UnitIx>>;

/// What placements are compared by: the least bandwidth; of those the one with the fewest vCPUs of a VM
/// beside each other, which may wait for each other; of those the most even one, which leaves most room for
/// what comes later. Adding a unit makes no part less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    share: u64,
    /// Pairs of vCPUs of one VM on one processor.
    together: usize,
    /// Sum of the squares of the processors' shares.
    uneven: u128,
}

impl Cost {
    fn of(trial: &Trial<'_>, placed: &Assignment, shares: &[u64]) -> Cost {
        let vm = |unit: &UnitIx| match unit {
            UnitIx::Vcpu(vcpu) => Some(trial.given().vcpus[vcpu.0].domain),
            UnitIx::Task(_) => None,
        };
        let beside = |units: &Vec<UnitIx>| -> usize {
            let vms: Vec<_> = units.iter().filter_map(vm).collect();
            (0..vms.len()).map(|at| vms[..at].iter().filter(|other| **other == vms[at]).count()).sum()
        };
        Cost {
            share: shares.iter().sum(),
            together: placed.iter().map(beside).sum(),
            uneven: shares.iter().map(|share| u128::from(*share).pow(2)).sum(),
        }
    }
}

/// A unit without a processor.
#[derive(Clone, Copy)]
struct Free {
    unit: UnitIx,
    /// What it needs alone: never less than that beside others.
    share: u64,
}

/// A solution for each processor, and is their sum the smallest possible?
pub(super) fn partitioned(trial: &mut Trial<'_>) -> Result<(Vec<Solution>, bool), Error> {
    let processors = trial.given().pools[trial.pool.0].processors.len();
    let mut tied: Assignment = vec![Vec::new(); processors];
    let mut free = Vec::new();
    for unit in trial.index().in_pool(trial.pool).all() {
        match only_processor(trial.params(unit).affinity.as_ref(), processors) {
            Some(only) => tied[only].push(unit),
            None => free.push(unit),
        }
    }
    let (placed, exact) = if free.is_empty() { (tied, true) } else { place(trial, tied, free)? };
    let solutions: Result<Vec<Solution>, Error> = placed.iter().map(|units| solve(trial, units, 1)).collect();
    let solutions = solutions?;
    let exact = exact && solutions.iter().all(|solution| solution.exact);
    Ok((solutions, exact))
}

/// May the unit run on the pool's processor number `at`?
fn is_allowed(trial: &Trial<'_>, unit: UnitIx, at: usize) -> bool {
    trial.params(unit).affinity.as_ref().is_none_or(|set| set.contains(CpuId(at as u32)))
}

/// All units on processors, and is there no cheaper way?
fn place(trial: &mut Trial<'_>, tied: Assignment, units: Vec<UnitIx>) -> Result<(Assignment, bool), Error> {
    // Greatest demand first; of equals the file's order.
    let mut free = Vec::new();
    for unit in units {
        free.push(Free { unit, share: solve_within(trial, &[unit], 1, GLANCE)?.share() });
    }
    free.sort_by_key(|free| Reverse(free.share));
    if tied.len() == 1 {
        let all = free.into_iter().map(|free| free.unit).chain(tied.into_iter().flatten());
        return Ok((vec![all.collect()], true));
    }
    let orders: &[Placement] = match trial.options.placement {
        Placement::Auto | Placement::Exact => &[Placement::BestFit, Placement::FirstFit, Placement::WorstFit],
        Placement::FirstFit => &[Placement::FirstFit],
        Placement::BestFit => &[Placement::BestFit],
        Placement::WorstFit => &[Placement::WorstFit],
    };
    let mut best: Option<(Cost, Assignment)> = None;
    let mut unmet = None;
    for order in orders {
        match fit(trial, tied.clone(), &free, *order) {
            Ok((cost, placed)) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                best = Some((cost, placed));
            }
            Ok(_) => {}
            Err(stopped @ Error::Stopped(_)) => return Err(stopped),
            Err(error) => unmet = unmet.or(Some(error)),
        }
    }
    let mut complete = false;
    let exact = match trial.options.placement {
        Placement::Exact => true,
        Placement::Auto => free.len() <= EXACT_MAX,
        _ => false,
    };
    if exact {
        let alike = free.iter().all(|free| trial.params(free.unit).affinity.is_none());
        let mut branches = Branches { trial, free: &free, best, nodes: 0, alike };
        let shares = branches.shares(&tied)?;
        branches.descend(0, tied, shares)?;
        complete = branches.nodes <= NODES_MAX;
        best = branches.best;
    }
    let none = || Error::Unmet { name: "placement".into(), why: vec![Shortfall::NoPlacement] };
    best.map(|(_, placed)| (placed, complete)).ok_or_else(|| unmet.unwrap_or_else(none))
}

/// The units one after the other, each on the processor that `order` prefers among those on which it fits.
fn fit(
    trial: &mut Trial<'_>,
    mut placed: Assignment,
    free: &[Free],
    order: Placement,
) -> Result<(Cost, Assignment), Error> {
    let mut shares = Vec::new();
    for units in &placed {
        shares.push(solve_within(trial, units, 1, GLANCE)?.share());
    }
    for &Free { unit, .. } in free {
        let (share, at) = preferred(trial, &placed, unit, order)?;
        shares[at] = share;
        placed[at].push(unit);
    }
    Ok((Cost::of(trial, &placed, &shares), placed))
}

/// The processor that `order` prefers among those on which the unit fits, and the share of all its units
/// then.
fn preferred(
    trial: &mut Trial<'_>,
    placed: &Assignment,
    unit: UnitIx,
    order: Placement,
) -> Result<(u64, usize), Error> {
    let mut chosen: Option<(u64, usize)> = None;
    let mut why = Vec::new();
    for (at, units) in placed.iter().enumerate() {
        if !is_allowed(trial, unit, at) {
            continue;
        }
        let mut here = units.clone();
        here.push(unit);
        match solve_within(trial, &here, 1, GLANCE) {
            Ok(solution) => {
                let share = solution.share();
                let is_better = chosen.is_none_or(|(before, _)| match order {
                    Placement::BestFit => share > before,
                    Placement::WorstFit => share < before,
                    _ => false,
                });
                if is_better {
                    chosen = Some((share, at));
                }
            }
            Err(Error::Unmet { name, why: reasons }) => {
                let processor = trial.given().pools[trial.pool.0].processors[at];
                why.push(Shortfall::OnProcessor { processor, name, why: reasons });
            }
            Err(stopped @ Error::Stopped(_)) => return Err(stopped),
        }
    }
    chosen.ok_or_else(|| Error::Unmet { name: name(trial.given(), unit).to_owned(), why })
}

/// Branch and bound over placements.
struct Branches<'t, 'a, 'u> {
    trial: &'t mut Trial<'a>,
    free: &'u [Free],
    best: Option<(Cost, Assignment)>,
    nodes: u64,
    /// May every unit run on every processor?
    alike: bool,
}

impl Branches<'_, '_, '_> {
    fn shares(&mut self, placed: &Assignment) -> Result<Vec<u64>, Error> {
        placed.iter().map(|units| Ok(solve_within(self.trial, units, 1, GLANCE)?.share())).collect()
    }

    fn descend(&mut self, next: usize, placed: Assignment, shares: Vec<u64>) -> Result<(), Stopped> {
        self.nodes += 1;
        let cost = Cost::of(self.trial, &placed, &shares);
        let rest: u64 = self.free[next..].iter().map(|free| free.share).sum();
        let least = Cost { share: cost.share + rest, ..cost };
        if self.nodes > NODES_MAX || self.best.as_ref().is_some_and(|(best, _)| least >= *best) {
            return Ok(());
        }
        let Some(&Free { unit, .. }) = self.free.get(next) else {
            self.best = Some((cost, placed));
            return Ok(());
        };
        for at in 0..placed.len() {
            // Empty processors are alike for units that may run anywhere.
            let seen = self.alike && placed[at].is_empty() && placed[..at].iter().any(Vec::is_empty);
            if seen || !is_allowed(self.trial, unit, at) {
                continue;
            }
            let mut longer = placed.clone();
            longer[at].push(unit);
            match solve_within(self.trial, &longer[at], 1, GLANCE) {
                Ok(solution) => {
                    let mut shares = shares.clone();
                    shares[at] = solution.share();
                    self.descend(next + 1, longer, shares)?;
                }
                Err(Error::Unmet { .. }) => {}
                Err(Error::Stopped(stopped)) => return Err(stopped),
            }
        }
        Ok(())
    }
}
