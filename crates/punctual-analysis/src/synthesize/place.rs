//! Units of a partitioned pool to its processors.

use punctual_sched::CpuId;

use super::search::{Solution, solve, solve_within};
use super::trial::Trial;
use super::{Failure, Placement, Stopped, name_of};
use crate::host::{Unit, only_processor};

/// Analyses for one look at one processor beyond the first solution.
const GLANCE: u64 = 200;

/// Up to this many free units [`Placement::Auto`] tries all placements.
const EXACT_MAX: usize = 8;

/// Placements that the exact search looks at before it settles for the best.
const NODES_MAX: u64 = 20_000;

/// A solution for each processor, and is their sum the smallest possible?
pub(super) fn partitioned(trial: &mut Trial) -> Result<(Vec<Solution>, bool), Failure> {
    let pool = trial.pool;
    let processors = trial.given().pools[pool].processors.len();
    let mut at: Vec<Vec<Unit>> = vec![Vec::new(); processors];
    let mut free = Vec::new();
    for unit in trial.index().in_pool[pool].all() {
        match only_processor(trial.params(unit).affinity.as_ref(), processors) {
            Some(only) => at[only].push(unit),
            None => free.push(unit),
        }
    }
    let (at, exact) = if free.is_empty() { (at, true) } else { place(trial, at, free)? };
    let solutions: Result<Vec<Solution>, Failure> = at.iter().map(|units| solve(trial, units, 1)).collect();
    let solutions = solutions?;
    let exact = exact && solutions.iter().all(|solution| solution.exact);
    Ok((solutions, exact))
}

type Placed = Vec<Vec<Unit>>;

/// May the unit run on the pool's processor number `at`?
fn allowed(trial: &Trial, unit: Unit, at: usize) -> bool {
    trial.params(unit).affinity.as_ref().is_none_or(|set| set.contains(CpuId(at as u32)))
}

fn place(trial: &mut Trial, tied: Placed, free: Vec<Unit>) -> Result<(Placed, bool), Failure> {
    // Greatest demand first; of equals the file's order.
    let mut alone = Vec::new();
    for unit in free {
        alone.push((solve_within(trial, &[unit], 1, GLANCE)?.share(), unit));
    }
    alone.sort_by_key(|(share, _)| std::cmp::Reverse(*share));
    if tied.len() == 1 {
        return Ok((
            vec![alone.into_iter().map(|(_, unit)| unit).chain(tied.into_iter().flatten()).collect()],
            true,
        ));
    }
    let orders: &[Placement] = match trial.options.placement {
        Placement::Auto | Placement::Exact => &[Placement::BestFit, Placement::FirstFit, Placement::WorstFit],
        Placement::FirstFit => &[Placement::FirstFit],
        Placement::BestFit => &[Placement::BestFit],
        Placement::WorstFit => &[Placement::WorstFit],
    };
    let exact = match trial.options.placement {
        Placement::Exact => true,
        Placement::Auto => alone.len() <= EXACT_MAX,
        _ => false,
    };
    let mut best: Option<(u64, Placed)> = None;
    let mut failure = None;
    for order in orders {
        match fit(trial, tied.clone(), &alone, *order) {
            Ok((share, placed)) if best.as_ref().is_none_or(|(least, _)| share < *least) => {
                best = Some((share, placed));
            }
            Ok(_) => {}
            Err(Failure::Stopped) => return Err(Failure::Stopped),
            Err(unmet) => failure = failure.or(Some(unmet)),
        }
    }
    let mut complete = false;
    if exact {
        let alike = alone.iter().all(|(_, unit)| trial.params(*unit).affinity.is_none());
        let mut branches = Branches { trial, units: &alone, best, nodes: 0, alike };
        let shares = branches.shares(&tied)?;
        branches.descend(0, tied, shares)?;
        complete = branches.nodes <= NODES_MAX;
        best = branches.best;
    }
    let unmet = || Failure::Unmet { name: "placement".into(), why: vec!["no placement was found".into()] };
    best.map(|(_, placed)| (placed, complete)).ok_or_else(|| failure.unwrap_or_else(unmet))
}

/// The units one after the other, each on the processor that `order` prefers among those on which it fits.
fn fit(
    trial: &mut Trial,
    mut placed: Placed,
    units: &[(u64, Unit)],
    order: Placement,
) -> Result<(u64, Placed), Failure> {
    let mut shares = Vec::new();
    for units in &placed {
        shares.push(solve_within(trial, units, 1, GLANCE)?.share());
    }
    for &(_, unit) in units {
        let mut chosen: Option<(u64, usize)> = None;
        let mut why = Vec::new();
        for at in (0..placed.len()).filter(|at| allowed(trial, unit, *at)).collect::<Vec<_>>() {
            let mut here = placed[at].clone();
            here.push(unit);
            match solve_within(trial, &here, 1, GLANCE) {
                Ok(solution) => {
                    let share = solution.share();
                    let better = chosen.is_none_or(|(before, _)| match order {
                        Placement::BestFit => share > before,
                        Placement::WorstFit => share < before,
                        _ => false,
                    });
                    if better {
                        chosen = Some((share, at));
                    }
                }
                Err(Failure::Unmet { name, why: reason }) => {
                    let processor = trial.given().pools[trial.pool].processors[at];
                    why.push(format!("on processor {processor} {name}: {}", reason.join("; ")));
                }
                Err(Failure::Stopped) => return Err(Failure::Stopped),
            }
        }
        let Some((share, at)) = chosen else {
            return Err(Failure::Unmet { name: name_of(trial.given(), unit), why });
        };
        shares[at] = share;
        placed[at].push(unit);
    }
    Ok((shares.iter().sum(), placed))
}

/// Branch and bound over placements.
struct Branches<'t, 'a, 'u> {
    trial: &'t mut Trial<'a>,
    /// With what each needs alone: never less than that beside others.
    units: &'u [(u64, Unit)],
    best: Option<(u64, Placed)>,
    nodes: u64,
    /// May every unit run on every processor?
    alike: bool,
}

impl Branches<'_, '_, '_> {
    fn shares(&mut self, placed: &Placed) -> Result<Vec<u64>, Failure> {
        placed.iter().map(|units| Ok(solve_within(self.trial, units, 1, GLANCE)?.share())).collect()
    }

    fn descend(&mut self, next: usize, placed: Placed, shares: Vec<u64>) -> Result<(), Stopped> {
        self.nodes += 1;
        let sum: u64 = shares.iter().sum();
        let rest: u64 = self.units[next..].iter().map(|(alone, _)| alone).sum();
        if self.nodes > NODES_MAX || self.best.as_ref().is_some_and(|(best, _)| sum + rest >= *best) {
            return Ok(());
        }
        let Some(&(_, unit)) = self.units.get(next) else {
            self.best = Some((sum, placed));
            return Ok(());
        };
        for at in 0..placed.len() {
            // Empty processors are alike for those who may run anywhere.
            let seen = self.alike && placed[at].is_empty() && placed[..at].iter().any(Vec::is_empty);
            if seen || !allowed(self.trial, unit, at) {
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
                Err(Failure::Unmet { .. }) => {}
                Err(Failure::Stopped) => return Err(Stopped),
            }
        }
        Ok(())
    }
}
