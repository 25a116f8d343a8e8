//! RT-Xen s.5.2, Fig. 5: where deadline misses start for quanta of 1 ms, 100 us and 10 us.

use punctual_model::Results;
use punctual_sched::Duration;
use punctual_sched::servers::deferrable;

use crate::error::Error;
use crate::measures::number;
use crate::options::Options;
use crate::papers::{RtXen, Table1};
use crate::reproduction::{Figure, Outcome, Series, Table};
use crate::scenario::{Progress, Scenario, as_written, miss_percent, run_all};

/// Period and deadline of the one task; its cost in ms is therefore its utilization in percent.
const TASK_PERIOD_MS: u64 = 100;
/// Jobs for each cost in the paper.
const JOBS: u64 = 600;

/// The three quanta: the host file's name and the length.
const QUANTA: [(&str, u64); 3] = [("1ms", 1_000), ("100us", 100), ("10us", 10)];

/// What decisions and switches cost: quantiles of Table 1, deferrable server.
#[derive(Clone, Copy)]
struct Overhead {
    name: &'static str,
    /// Jobs for each cost. Until one misses its deadline they are all alike: the schedule repeats with the
    /// task's period, so their number does not move the first miss.
    jobs: u64,
    decision_ns: f64,
    switch_ns: f64,
}

impl Overhead {
    fn of(table: &Table1, quick: bool) -> [Overhead; 2] {
        let i = table.column(deferrable::NAME).expect("Table 1 has the deferrable server");
        let (median, p99) = (table.decision_median_ns[i], table.decision_p99_ns[i]);
        [
            Overhead {
                name: "median",
                jobs: if quick { JOBS / 60 } else { JOBS },
                decision_ns: median,
                switch_ns: table.switch_median_ns[i],
            },
            Overhead {
                name: "p99",
                jobs: if quick { JOBS / 60 } else { JOBS / 10 },
                decision_ns: p99,
                switch_ns: table.switch_p99_ns[i],
            },
        ]
    }

    fn total_ns(self) -> f64 {
        self.decision_ns + self.switch_ns
    }

    fn scenario(self, quantum: &str, cost: u64) -> Scenario {
        Scenario::new("rt-xen", &format!("quantum-{quantum}"))
            .set(format!("domain.d1.task.work.cost={cost}ms"))
            .set(format!("machine.overheads.decision={}ns", self.decision_ns))
            .set(format!("machine.overheads.context_switch={}ns", self.switch_ns))
            .duration(Duration::from_ms(TASK_PERIOD_MS * self.jobs))
    }
}

/// What one run at one cost showed.
struct Point {
    miss_percent: f64,
    switches: f64,
    /// Charged to domain 1's vCPU and not executed by its task, for each of its periods.
    loss_us: f64,
}

/// Runs every cost from 1 to 50 ms under each quantum, with both overheads.
pub(crate) fn run(options: &Options, paper: &RtXen, progress: Progress<'_>) -> Result<Outcome, Error> {
    // Quick: every fifth cost far from the first misses, and fewer jobs.
    let costs: Vec<u64> = (1..=50).filter(|c| !options.quick || *c >= 28 || c % 5 == 0).collect();
    let overheads = Overhead::of(&paper.table1, options.quick);
    let mut out = Outcome::default();
    let mut table = Table::new(
        "fig5",
        "Fig. 5: lowest utilization of domain 1 with a deadline miss, %",
        &[
            "quantum",
            "paper",
            "ours, median overheads",
            "ours, 99 % overheads",
            "loss that explains the paper, us",
        ],
    );
    let mut series = Vec::new();
    for (quantum, quantum_us) in QUANTA {
        let each = |o: Overhead| costs.iter().map(move |&c| o.scenario(quantum, c));
        let scenarios: Vec<_> = overheads.into_iter().flat_map(each).collect();
        let what = format!("Fig. 5, quantum {quantum}");
        let points = run_all(&what, &scenarios, progress, as_written, |_, r| point(r, quantum_us))?;
        let printed = paper.figure5.iter().find(|f| f.quantum_us == quantum_us).map(|f| f.first_miss_percent);
        let mut row = vec![quantum.into(), printed.map_or("-".into(), number)];
        for (overhead, points) in overheads.iter().zip(points.chunks(costs.len())) {
            row.push(add_points(&mut out, overhead, (quantum, quantum_us), &costs, points));
            let points = costs
                .iter()
                .zip(points)
                .map(|(&c, p)| [c as f64, p.miss_percent, p.miss_percent, p.miss_percent]);
            series.push(Series { name: format!("{quantum}, {}", overhead.name), points: points.collect() });
        }
        row.push(printed.map_or("-".into(), |first| add_needed(&mut out, quantum, quantum_us, first)));
        table.rows.push(row);
    }
    // At 1 us one decision and one switch take longer than the quantum itself.
    out.measures.set_one("fig5.paper_switch_share_of_quantum_percent.1us", overheads[0].total_ns() / 10.0);
    table.notes = notes(&overheads);
    out.tables.push(table);
    out.figures.push(Figure {
        id: "fig5".into(),
        title: "RT-Xen Fig. 5: deadline misses by scheduling quantum".into(),
        x: "utilization of domain 1 (%)".into(),
        y: "deadline miss ratio (%)".into(),
        series,
    });
    Ok(out)
}

fn point(results: &Results, quantum_us: u64) -> Point {
    let quanta = results.duration_ns as f64 / (1_000 * quantum_us) as f64;
    let loss_ns = results.vcpus[0].cpu_time_ns - results.tasks[0].cpu_time_ns;
    Point {
        miss_percent: miss_percent(&results.domains[0].jobs),
        switches: results.pools[0].context_switches.unwrap_or_default() as f64 / quanta,
        loss_us: loss_ns as f64 / 1_000.0 / (quanta / 2.0),
    }
}

/// Adds the measures of one curve and returns its cell.
fn add_points(
    out: &mut Outcome,
    overhead: &Overhead,
    (quantum, quantum_us): (&str, u64),
    costs: &[u64],
    points: &[Point],
) -> String {
    let first = costs.iter().zip(points).find(|(_, p)| p.miss_percent > 0.0).map(|(&c, _)| c);
    let last = points.last().expect("there are costs");
    let prefix = format!("fig5.{}.{quantum}", overhead.name);
    // No miss up to 50 %: the next step of the grid.
    let first_percent = first.unwrap_or(51) as f64;
    out.measures.set_one(format!("{prefix}.first_miss_percent"), first_percent);
    out.measures
        .set_one(format!("{prefix}.capacity_loss_percent"), 100.0 * (50.0 - first_percent).max(0.0) / 50.0);
    out.measures.set_one(format!("{prefix}.loss_us"), last.loss_us);
    out.measures.set_one(format!("{prefix}.loss_percent"), 100.0 * last.loss_us / (2 * quantum_us) as f64);
    out.measures.set_one(format!("{prefix}.switches_per_quantum"), last.switches);
    let first = first.map_or("none up to 50".into(), |c| c.to_string());
    format!("{first} (loss {} us)", number(last.loss_us))
}

fn add_needed(out: &mut Outcome, quantum: &str, quantum_us: u64, first_miss_percent: f64) -> String {
    let [low, high] = needed_loss_us(quantum_us, first_miss_percent);
    out.measures.set_one(format!("fig5.needed_loss_min_us.{quantum}"), low);
    out.measures.set_one(format!("fig5.needed_loss_max_us.{quantum}"), high);
    format!("{} to {}", number(low), number(high))
}

fn notes(overheads: &[Overhead; 2]) -> Vec<String> {
    let [median, p99] =
        overheads.map(|o| format!("{} ns a decision and {} ns a switch", o.decision_ns, o.switch_ns));
    vec![
        "Costs are whole ms in a period of 100 ms, so a first miss is known to 1 % of the processor.".into(),
        format!(
            "Overheads are those of the paper's Table 1, deferrable server: {median} (medians), {p99} (99 % \
             quantiles)."
        ),
        format!("{} and {} jobs for each cost.", overheads[0].jobs, overheads[1].jobs),
        "Loss: what decisions and switches take from domain 1 in each of its periods of two quanta.".into(),
    ]
}

/// What domain 1 must lose in each of its periods (two quanta, budget one) for the first miss to be at
/// `first_miss_percent`: more than the low end, at most the high one. A task of utilization `u` misses once
/// less than `u` is left of the 50 %; `u - 1` was still enough.
fn needed_loss_us(quantum_us: u64, first_miss_percent: f64) -> [f64; 2] {
    let period_us = 2.0 * quantum_us as f64;
    [50.0 - first_miss_percent, 51.0 - first_miss_percent].map(|percent| percent / 100.0 * period_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_miss_at_48_percent_of_a_1_ms_quantum_needs_40_to_60_us_a_period() {
        assert_eq!(needed_loss_us(1_000, 48.0).map(f64::round), [40.0, 60.0]);
    }

    #[test]
    fn no_loss_at_all_would_put_the_first_miss_beyond_50_percent() {
        assert_eq!(needed_loss_us(1_000, 51.0)[1], 0.0);
    }
}
