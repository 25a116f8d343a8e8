//! RT-Xen s.5.5, Fig. 6: soft real-time performance of six policies in three share cases by system load.
//!
//! The paper does not say when each domain's first period began. On its machine domains were created one
//! after another (`Start::OneByOne`, what claims are checked with); the simulator alone starts all of them at
//! once (`Start::Together`, what `punctual sim` shows). For servers with periodic replenishment that matters.

use punctual_model::host::Parent;
use punctual_model::index::DomainIx;
use punctual_sched::Duration;
use punctual_sched::servers::{deferrable, periodic, polling};

use crate::error::Error;
use crate::measures::{mean, range, spread};
use crate::options::Options;
use crate::papers::{Cases, Table4};
use crate::reproduction::{Figure, Outcome, Series, Table};
use crate::rt_xen::POLICIES;
use crate::scenario::{Progress, Scenario, as_written, miss_percent, run_all, utilization_percent};

/// The share cases of Table 3.
pub(crate) const CASES: [&str; 3] = ["decreasing", "even", "increasing"];
/// A miss ratio above this is significant (s.5.5).
const SIGNIFICANT_PERCENT: f64 = 5.0;
/// The paper's 5 minutes.
const MINUTES: u64 = 5;

/// The host seed of task set `set` at `load` percent: the paper seeds its generator with the load, so each
/// load has task sets of its own, and every policy gets the same ones.
pub(crate) fn seed(set: u64, load: u32) -> u64 {
    set * 1_000 + u64::from(load)
}

/// When the domains' periods begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At different times, see [`crate::boot`].
    OneByOne,
    Together,
}

impl Start {
    const BOTH: [Start; 2] = [Start::OneByOne, Start::Together];

    fn measures(self) -> &'static str {
        match self {
            Start::OneByOne => "fig6",
            Start::Together => "fig6-together",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Start::OneByOne => "Fig. 6: soft real-time capacity and overload, domains started one by one",
            Start::Together => "Fig. 6, all periods start together (servers with periodic replenishment)",
        }
    }

    /// Sporadic servers have no periods; Credit and SEDF are not shown: SEDF's periods make no difference.
    fn policies(self) -> &'static [&'static str] {
        match self {
            Start::OneByOne => &POLICIES,
            Start::Together => &[deferrable::NAME, periodic::NAME, polling::NAME],
        }
    }
}

struct Cell {
    miss_percent: f64,
    /// Share of the processor that the generated tasks ask for.
    asked_percent: f64,
    /// Share of the processor that idled away on budgets (periodic server).
    idled_percent: f64,
}

/// What is common to all cells.
struct Grid {
    seeds: Vec<u64>,
    loads: Vec<u32>,
    seconds: u64,
}

/// Runs every case, policy, load and task set, for both kinds of start.
pub(crate) fn run(options: &Options, paper: &Table4, progress: Progress<'_>) -> Result<Outcome, Error> {
    let grid = Grid {
        seeds: options.seeds(),
        loads: (30..=100).step_by(if options.quick { 10 } else { 5 }).collect(),
        seconds: if options.quick { 20 } else { 60 * MINUTES },
    };
    let mut out = Outcome::default();
    let mut load_error: f64 = 0.0;
    for start in Start::BOTH {
        let columns = ["share", "policy", "capacity, % load", "misses at 90 %", "misses at 100 %"];
        let mut table = Table::new(start.measures(), start.title(), &columns);
        for case in CASES {
            let cells = simulate(&grid, start, case, progress)?;
            let mut series = Vec::new();
            for (policy, cells) in
                start.policies().iter().zip(cells.chunks(grid.loads.len() * grid.seeds.len()))
            {
                let by_load: Vec<&[Cell]> = cells.chunks(grid.seeds.len()).collect();
                load_error = load_error.max(greatest_load_error(&grid.loads, &by_load));
                let prefix = format!("{}.{case}.{policy}", start.measures());
                series.push(add_policy(&mut out, &mut table, (case, policy), &prefix, &grid.loads, &by_load));
            }
            out.figures.push(figure(start, case, series));
        }
        table.notes = notes(&grid);
        out.tables.push(table);
    }
    out.measures.set_one("fig6.load_error_max_percent", load_error);
    add_guaranteed(&mut out, paper, &grid.loads);
    Ok(out)
}

/// All cells of a case: policy by policy, load by load, task set by task set.
fn simulate(grid: &Grid, start: Start, case: &str, progress: Progress<'_>) -> Result<Vec<Cell>, Error> {
    let mut scenarios = Vec::new();
    for policy in start.policies() {
        for &load in &grid.loads {
            scenarios.extend(grid.seeds.iter().map(|&set| scenario(case, policy, load, set, grid.seconds)));
        }
    }
    if start == Start::OneByOne {
        scenarios = scenarios.into_iter().map(Scenario::boot_one_by_one).collect();
    }
    let what =
        format!("{}, {case} share", if start == Start::OneByOne { "Fig. 6" } else { "Fig. 6, together" });
    run_all(&what, &scenarios, progress, as_written, |host, results| {
        let shares = (0..host.domains.len()).map(|d| utilization_percent(host, Parent::Domain(DomainIx(d))));
        let idled_ns: u64 =
            results.vcpus.iter().filter_map(|v| v.counts).map(|counts| counts.idled_away_ns).sum();
        Cell {
            miss_percent: miss_percent(&results.pools[0].jobs),
            asked_percent: shares.sum(),
            idled_percent: 100.0 * idled_ns as f64 / results.duration_ns as f64,
        }
    })
}

fn scenario(case: &str, policy: &'static str, load: u32, set: u64, seconds: u64) -> Scenario {
    Scenario::new("rt-xen", case)
        .policy(policy)
        .seed(seed(set, load))
        .set(format!("domain.*.generate.load={load}%"))
        .duration(Duration::from_secs(seconds))
}

fn greatest_load_error(loads: &[u32], by_load: &[&[Cell]]) -> f64 {
    let errors = loads
        .iter()
        .zip(by_load)
        .flat_map(|(&load, cells)| cells.iter().map(move |c| (c.asked_percent - f64::from(load)).abs()));
    errors.fold(0.0, f64::max)
}

fn figure(start: Start, case: &str, series: Vec<Series>) -> Figure {
    let together = if start == Start::Together { ", all periods start together" } else { "" };
    Figure {
        id: format!("{}-{case}", start.measures()),
        title: format!("RT-Xen Fig. 6: deadline misses, {case} share{together}"),
        x: "system load (%)".into(),
        y: "deadline miss ratio (%)".into(),
        series,
    }
}

fn notes(grid: &Grid) -> Vec<String> {
    let (first, last) = (grid.loads[0], grid.loads[grid.loads.len() - 1]);
    vec![
        format!(
            "Capacity: the greatest load with at most {SIGNIFICANT_PERCENT} % misses at it and at every \
             lower load of the grid ({first} to {last} %, step {}).",
            grid.loads[1] - first
        ),
        format!(
            "Mean (least to greatest) over the task sets: the paper's recipe, seeds {:?} x 1000 + load; {} \
             s for each cell. Credit with slice 1 ms, tick 10 ms.",
            grid.seeds, grid.seconds
        ),
    ]
}

/// Adds a policy's measures and its row, and returns its curve.
fn add_policy(
    out: &mut Outcome,
    table: &mut Table,
    (case, policy): (&str, &str),
    prefix: &str,
    loads: &[u32],
    by_load: &[&[Cell]],
) -> Series {
    let misses: Vec<Vec<f64>> =
        by_load.iter().map(|cells| cells.iter().map(|c| c.miss_percent).collect()).collect();
    let capacities: Vec<f64> = (0..misses[0].len())
        .map(|set| capacity(loads, &misses.iter().map(|m| m[set]).collect::<Vec<_>>()))
        .collect();
    let at = |load: u32| loads.iter().position(|&l| l == load).map_or("-".into(), |i| spread(&misses[i]));
    table.rows.push(vec![case.into(), policy.into(), spread(&capacities), at(90), at(100)]);
    out.measures.set(format!("{prefix}.capacity_percent"), capacities);
    if let Some(full) = loads.iter().position(|&l| l == 100) {
        let of = |value: fn(&Cell) -> f64| by_load[full].iter().map(value).collect();
        out.measures.set(format!("{prefix}.asked_percent.100"), of(|c| c.asked_percent));
        out.measures.set(format!("{prefix}.idled_percent.100"), of(|c| c.idled_percent));
    }
    let points = loads.iter().zip(&misses).map(|(&load, m)| {
        let (low, high) = range(m);
        [f64::from(load), mean(m), low, high]
    });
    let series = Series { name: policy.into(), points: points.collect() };
    for (load, m) in loads.iter().zip(misses) {
        out.measures.set(format!("{prefix}.miss_percent.{load}"), m);
    }
    series
}

/// The greatest load with no significant misses at it and below; 0 when there is none.
fn capacity(loads: &[u32], misses: &[f64]) -> f64 {
    let fine = loads.iter().zip(misses).take_while(|(_, m)| **m <= SIGNIFICANT_PERCENT);
    fine.last().map_or(0.0, |(&load, _)| f64::from(load))
}

/// Measures for Table 4: the greatest miss ratio where the paper's analysis guarantees that there is none.
fn add_guaranteed(out: &mut Outcome, paper: &Table4, loads: &[u32]) {
    for (policy, guaranteed) in [(deferrable::NAME, &paper.deferrable), (periodic::NAME, &paper.periodic)] {
        for case in CASES {
            let inside =
                |load: &&u32| of(guaranteed, case).iter().any(|[low, high]| (low..=high).contains(load));
            let worst = loads.iter().filter(inside).filter_map(|load| {
                let misses = out.measures.get(&format!("fig6.{case}.{policy}.miss_percent.{load}"))?;
                Some(range(misses).1)
            });
            let worst = worst.fold(0.0, f64::max);
            out.measures.set_one(format!("fig6.{case}.{policy}.miss_percent_guaranteed"), worst);
        }
    }
}

/// The entry of a share case.
pub(crate) fn of<'a, T>(cases: &'a Cases<T>, case: &str) -> &'a T {
    match case {
        "decreasing" => &cases.decreasing,
        "even" => &cases.even,
        _ => &cases.increasing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_ends_before_the_first_significant_load_even_if_later_ones_are_fine() {
        assert_eq!(capacity(&[30, 35, 40, 45], &[0.0, 5.0, 5.1, 0.0]), 35.0);
        assert_eq!(capacity(&[30, 35], &[6.0, 0.0]), 0.0);
        assert_eq!(capacity(&[30, 35], &[0.0, 0.0]), 35.0);
    }
}
