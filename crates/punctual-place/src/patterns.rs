//! Weights of units: what any plan needs of processors, although none is ever used in full.
//!
//! A *pattern* is a set of units that the analysis guarantees on one processor. If no pattern weighs more
//! than `most`, a fleet's units need at least their weight divided by `most` of processors, whatever the
//! weights are. The best weights are the dual prices of the linear program that covers all units with
//! patterns (Gilmore, Gomory, *A Linear Programming Approach to the Cutting-Stock Problem*, Operations
//! Research 9, 1961). The program is solved with some patterns; those that weigh most under its prices join
//! them, until none weighs more than a processor.
//!
//! All patterns are known: a unit more on a processor never makes a guarantee, so the sets of a size are
//! those of which every part is a pattern and that the analysis guarantees (Agrawal, Srikant, *Fast
//! Algorithms for Mining Association Rules*, VLDB 1994).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};
use rayon::prelude::*;

use crate::problem::{Problem, WHOLE};
use crate::slice::{self, Member};

/// Where there are more kinds of VMs, or sets to ask the analysis about, nothing is known. So many questions
/// take it two seconds or so.
const KINDS_MAX: usize = 256;
const ASKS_MAX: usize = 100_000;
/// Rounds of the linear program, and patterns that join it in each.
const ROUNDS_MAX: usize = 200;
const PATTERNS_MAX: usize = 40;
/// A pattern may weigh so much more than a processor by the prices of the program: it is solved with floating
/// point.
const TOLERANCE: u64 = WHOLE / 100_000;

/// Kinds of VMs, ascending, one for each unit.
pub(crate) type Pattern = Vec<usize>;
/// A pattern and the kind of hosts on whose processors it is one.
pub(crate) type Row = (usize, Pattern);

/// Weights of the units of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    /// By kind of VMs: of each of its units, in parts of [`WHOLE`].
    pub(crate) unit: Vec<u64>,
    /// By kind of hosts: what the units of a processor weigh at most.
    pub(crate) most: Vec<u64>,
    /// Patterns, each with a number of processors: together nearly as few as units need, and no more units
    /// than there are.
    pub(crate) packing: Vec<(Row, usize)>,
}

/// The best weights for the units of `pool`, the place of the pool by kind of hosts (`None`: they lack it).
/// `None`: nothing is known.
pub(crate) fn weights(problem: &Problem<'_>, pool: &[Option<usize>]) -> Option<Weights> {
    let units = Units::new(problem, pool)?;
    let all = units.patterns()?;
    let mut rows: Vec<usize> = (0..all.len()).filter(|row| all[*row].1.len() == 1).collect();
    let mut best: Option<(f64, Weights)> = None;
    for _ in 0..ROUNDS_MAX {
        let Some(unit) = units.prices(&all, &rows) else { break };
        let weight = |row: usize| all[row].1.iter().map(|vm| unit[*vm]).sum::<u64>();
        let mut most = vec![0; pool.len()];
        let mut heavy: Vec<(Reverse<u64>, usize)> = Vec::new();
        for (row, (kind, _)) in all.iter().enumerate() {
            let weight = weight(row);
            most[*kind] = weight.max(most[*kind]);
            if weight > WHOLE + TOLERANCE {
                heavy.push((Reverse(weight), row));
            }
        }
        let value = units.total(&unit) / most.iter().copied().max().unwrap_or(WHOLE).max(1) as f64;
        if best.as_ref().is_none_or(|(known, _)| value > *known) {
            best = Some((value, Weights { unit, most, packing: Vec::new() }));
        }
        if heavy.is_empty() {
            break;
        }
        heavy.sort_unstable();
        rows.extend(heavy.into_iter().take(PATTERNS_MAX).map(|(_, row)| row));
    }
    let (_, mut weights) = best?;
    weights.packing = units.packing(&all, &rows);
    Some(weights)
}

/// The units of a pool that the analysis judges by processor.
struct Units<'p, 'f> {
    problem: &'p Problem<'f>,
    /// The place of the pool by kind of hosts.
    pool: &'p [Option<usize>],
    /// By kind of VMs: units of all VMs; none where what happens on one processor depends on others.
    count: Vec<usize>,
}

impl<'p, 'f> Units<'p, 'f> {
    fn new(problem: &'p Problem<'f>, pool: &'p [Option<usize>]) -> Option<Self> {
        let fleet = problem.fleet;
        let is_alone = |(kind, place): (usize, &Option<usize>)| {
            place.is_none_or(|place| fleet.kinds[kind].is_pinned[place] && !problem.has_tasks[kind][place])
        };
        if !pool.iter().enumerate().all(is_alone) {
            return None;
        }
        let mut count = vec![0; fleet.vm_kinds.len()];
        for vm in &fleet.vms {
            count[vm.kind] += 1;
        }
        for (vm, count) in count.iter_mut().enumerate() {
            let here = problem.demands.iter().zip(pool);
            let here = here.filter_map(|(of, place)| Some((of[vm].as_ref()?, *place)));
            let units = here.map(|(demand, place)| {
                let counts = place == Some(demand.pool) && demand.unit > 0 && !demand.is_linked;
                if counts { demand.units } else { 0 }
            });
            *count *= units.min().unwrap_or(0);
        }
        let kinds = count.iter().filter(|count| **count > 0).count();
        (1..=KINDS_MAX).contains(&kinds).then_some(Units { problem, pool, count })
    }

    /// The weight of all units.
    fn total(&self, unit: &[u64]) -> f64 {
        self.count.iter().zip(unit).map(|(count, unit)| *count as f64 * *unit as f64).sum()
    }

    /// All patterns; `None`: too many.
    fn patterns(&self) -> Option<Vec<Row>> {
        let mut all = Vec::new();
        let mut asks = ASKS_MAX;
        for (kind, pool) in self.pool.iter().enumerate() {
            let Some(pool) = *pool else { continue };
            let mut level: BTreeSet<Pattern> = BTreeSet::from([Pattern::new()]);
            while !level.is_empty() {
                let wanted = self.greater(kind, &level, asks)?;
                asks -= wanted.len();
                let fits = |pattern: &Pattern| self.is_pattern(kind, pool, pattern);
                level = wanted.into_par_iter().filter(fits).collect();
                all.extend(level.iter().map(|pattern| (kind, pattern.clone())));
            }
        }
        Some(all)
    }

    /// The sets with one unit more than patterns of one size of which all parts are such patterns; `None`:
    /// there are more than `limit`.
    fn greater(&self, kind: usize, level: &BTreeSet<Pattern>, limit: usize) -> Option<Vec<Pattern>> {
        let share = |vm: usize| self.problem.demands[kind][vm].as_ref().map_or(0, |demand| demand.unit);
        let mut sets = Vec::new();
        for pattern in level {
            let room = WHOLE.saturating_sub(pattern.iter().map(|vm| share(*vm)).sum());
            for vm in pattern.last().copied().unwrap_or(0)..self.count.len() {
                let taken = pattern.iter().filter(|other| **other == vm).count();
                if self.problem.demands[kind][vm].is_none() || taken >= self.count[vm] || share(vm) > room {
                    continue;
                }
                let mut set = pattern.clone();
                set.push(vm);
                let is_part = |left_out: usize| {
                    let mut part = set.clone();
                    part.remove(left_out);
                    level.contains(&part)
                };
                if (0..pattern.len()).all(is_part) {
                    sets.push(set);
                }
            }
            if sets.len() > limit {
                return None;
            }
        }
        Some(sets)
    }

    /// Are these units guaranteed together on one processor?
    fn is_pattern(&self, kind: usize, pool: usize, pattern: &Pattern) -> bool {
        let fleet = self.problem.fleet;
        let of = &fleet.kinds[kind];
        let member = |vm: &usize| {
            let demand = self.problem.demands[kind][*vm].as_ref();
            // A VM whose vCPUs share a budget is one unit.
            let shares = demand.is_some_and(|demand| demand.units < demand.vcpus);
            let vcpus = if shares { demand.map_or(0, |demand| demand.vcpus) } else { 1 };
            let name = &fleet.vm_kinds[*vm].name;
            Member { kind: *vm, name, processors: Some(vec![vec![0]; vcpus]), vcpus }
        };
        let members: Vec<Member<'_>> = pattern.iter().map(member).collect();
        slice::is_guaranteed(&slice::host(of, &of.name, &members, Some(pool)))
    }

    /// The prices of units under which none of these patterns costs more than a processor and all units
    /// together cost most.
    fn prices(&self, all: &[Row], rows: &[usize]) -> Option<Vec<u64>> {
        let mut program = Program::new(OptimizationDirection::Maximize);
        let of = |count: &usize| (*count > 0).then(|| program.add_var(*count as f64, (0.0, 1.0)));
        let variables: Vec<Option<Variable>> = self.count.iter().map(of).collect();
        for row in rows {
            let terms = counted(&all[*row].1).filter_map(|(vm, count)| Some((variables[vm]?, count as f64)));
            program.add_constraint(terms.collect::<Vec<_>>(), ComparisonOp::Le, 1.0);
        }
        let solution = program.solve().ok()?.into_solution().ok()?;
        let value = |variable: &Option<Variable>| {
            variable.map_or(0, |of| (solution.var_value(of).clamp(0.0, 1.0) * WHOLE as f64) as u64)
        };
        Some(variables.iter().map(value).collect())
    }

    /// How often which of the patterns is used in a fractional plan of the fewest processors, rounded down.
    fn packing(&self, all: &[Row], rows: &[usize]) -> Vec<(Row, usize)> {
        let fleet = self.problem.fleet;
        let mut program = Program::new(OptimizationDirection::Minimize);
        let used: Vec<Variable> = rows.iter().map(|_| program.add_var(1.0, (0.0, f64::INFINITY))).collect();
        let mut covers: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); self.count.len()];
        let mut here: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); self.pool.len()];
        for (row, variable) in rows.iter().zip(&used) {
            let (kind, pattern) = &all[*row];
            here[*kind].push((*variable, 1.0));
            counted(pattern).for_each(|(vm, count)| covers[vm].push((*variable, count as f64)));
        }
        for (terms, count) in covers.into_iter().zip(&self.count).filter(|(terms, _)| !terms.is_empty()) {
            program.add_constraint(terms, ComparisonOp::Ge, *count as f64);
        }
        for (kind, terms) in here.into_iter().enumerate().filter(|(_, terms)| !terms.is_empty()) {
            let hosts = fleet.hosts.iter().filter(|host| host.kind == kind).count();
            let pool =
                self.pool[kind].map_or(0, |pool| fleet.kinds[kind].template.pools[pool].processors.len());
            program.add_constraint(terms, ComparisonOp::Le, (hosts * pool) as f64);
        }
        let solved = program.solve().ok().and_then(|solved| solved.into_solution().ok());
        let Some(solution) = solved else { return Vec::new() };
        let mut left = self.count.clone();
        let mut packing = Vec::new();
        for (row, variable) in rows.iter().zip(used) {
            // What is whole but for rounding counts as whole.
            let wanted = (solution.var_value(variable) + 1e-6) as usize;
            let there = counted(&all[*row].1).map(|(vm, count)| left[vm] / count).min().unwrap_or(0);
            let times = wanted.min(there);
            if times > 0 {
                counted(&all[*row].1).for_each(|(vm, count)| left[vm] -= count * times);
                packing.push((all[*row].clone(), times));
            }
        }
        packing
    }
}

/// The kinds of VMs in a pattern, each with its number of units.
pub(crate) fn counted(pattern: &Pattern) -> impl Iterator<Item = (usize, usize)> {
    pattern.chunk_by(|a, b| a == b).map(|alike| (alike[0], alike.len()))
}
