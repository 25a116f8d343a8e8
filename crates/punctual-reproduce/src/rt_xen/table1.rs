//! RT-Xen s.5.3, Table 1: how often the policies decide and switch, and what their decisions cost.

use punctual_sched::Duration;
use punctual_sched::servers::{IDLE, IN_QUANTA, deferrable, periodic, polling, sporadic};

use crate::error::Error;
use crate::measures::{number, range, spread};
use crate::native::{self, DecisionCost};
use crate::options::Options;
use crate::papers::Table1;
use crate::reproduction::{Outcome, Table};
use crate::rt_xen::table2::{VARIANTS, Variant, scenario};
use crate::scenario::{Progress, Scenario, as_written, run_all};

/// The paper's 10 s.
const SECONDS: u64 = 10;

const SERVERS: [&str; 4] = [deferrable::NAME, periodic::NAME, polling::NAME, sporadic::NAME];

struct Counts {
    decisions: f64,
    switches: f64,
}

/// Counts decisions and switches of the even share at 70 % in 10 s, and measures the decision code.
pub(crate) fn run(options: &Options, paper: &Table1, progress: Progress<'_>) -> Result<Outcome, Error> {
    let seeds = options.seeds();
    let scenarios: Vec<_> = VARIANTS.iter().flat_map(|v| seeds.iter().map(move |&s| counted(v, s))).collect();
    let counts = run_all("Table 1", &scenarios, progress, as_written, |_, results| Counts {
        decisions: results.pools[0].decisions.unwrap_or_default() as f64,
        switches: results.pools[0].context_switches.unwrap_or_default() as f64,
    })?;
    let mut out = Outcome::default();
    let mut table = Table::new(
        "table1-counts",
        "Table 1: decisions and context switches in 10 s (simulated), paper | ours",
        &["policy", "decisions", "context switches", "loss, % of the processor"],
    );
    for (variant, counts) in VARIANTS.iter().zip(counts.chunks(seeds.len())) {
        add_counts(&mut out, &mut table, paper, variant, counts);
    }
    let waiting: Vec<_> = seeds.iter().map(|&seed| scenario(&VARIANTS[0], seed, SECONDS)).collect();
    let decisions = run_all("Table 1", &waiting, progress, as_written, |_, results| {
        results.pools[0].decisions.unwrap_or_default() as f64
    })?;
    out.measures.set(format!("table1.until-work.{}.decisions", VARIANTS[0].name), decisions);
    let servers: Vec<&[f64]> =
        SERVERS.iter().filter_map(|p| out.measures.get(&format!("table1.{p}.loss_percent"))).collect();
    let spread = |set: usize| {
        let (low, high) = range(&servers.iter().map(|losses| losses[set]).collect::<Vec<_>>());
        high - low
    };
    let spread = (0..seeds.len()).map(spread).collect();
    out.measures.set("table1.server_spread_percent", spread);
    table.notes = vec![
        "Loss: our counts times the paper's medians for the policy. The paper's machine, our schedule."
            .into(),
        "Servers decide after every quantum, whether a unit runs or not (s.5.2, 5.3).".into(),
        format!(
            "Task sets by the paper's recipe, seeds {seeds:?}. Credit's three readings: slice 1 ms with \
             tick 10 ms, both 1 ms, slice 30 ms with tick 10 ms."
        ),
    ];
    out.tables.push(table);
    if options.native {
        add_native(&mut out, paper, seeds[0], progress)?;
    }
    Ok(out)
}

/// s.5.2 and 5.3: RT-Xen decides after every quantum, whether a unit runs or not; Credit and SEDF let an idle
/// processor be.
fn counted(variant: &Variant, seed: u64) -> Scenario {
    let plain = scenario(variant, seed, SECONDS);
    if SERVERS.contains(&variant.policy) {
        plain.set(format!("pool.guests.{}.{}={IN_QUANTA}", variant.policy, IDLE.name))
    } else {
        plain
    }
}

fn add_counts(out: &mut Outcome, table: &mut Table, paper: &Table1, variant: &Variant, counts: &[Counts]) {
    let decisions: Vec<f64> = counts.iter().map(|c| c.decisions).collect();
    let switches: Vec<f64> = counts.iter().map(|c| c.switches).collect();
    let mut row = vec![variant.name.to_string()];
    let column = paper.column(variant.paper);
    let beside = |column: &[f64], at: Option<usize>| at.map_or("-".to_string(), |i| number(column[i]));
    row.push(format!("{} | {}", beside(&paper.decisions, column), spread(&decisions)));
    row.push(format!("{} | {}", beside(&paper.switches, column), spread(&switches)));
    if let Some(i) = column {
        let loss = |c: &Counts| {
            let ns = c.decisions * paper.decision_median_ns[i] + c.switches * paper.switch_median_ns[i];
            100.0 * ns / Duration::from_secs(SECONDS).as_ns() as f64
        };
        let loss: Vec<f64> = counts.iter().map(loss).collect();
        row.push(format!("{} | {}", number(paper.loss_percent[i]), spread(&loss)));
        let decide: Vec<f64> = decisions.iter().map(|d| d * paper.decision_median_ns[i] / 1_000.0).collect();
        let switch: Vec<f64> = switches.iter().map(|s| s * paper.switch_median_ns[i] / 1_000.0).collect();
        out.measures.set(format!("table1.{}.loss_percent", variant.name), loss);
        out.measures.set(format!("table1.{}.decision_total_us", variant.name), decide);
        out.measures.set(format!("table1.{}.switch_total_us", variant.name), switch);
    }
    if let Some(i) = column {
        add_consistency(out, paper, variant, i, &decisions);
    }
    out.measures.set(format!("table1.{}.decisions", variant.name), decisions);
    out.measures.set(format!("table1.{}.switches", variant.name), switches);
    table.rows.push(row);
}

/// What the paper's quantiles say about its totals: the most that its switches can have taken together (half
/// of them no longer than the median, 49 % than the 99 % quantile, the rest than the maximum), and the loss
/// if every decision had been counted as a switch, with its decisions and with ours.
fn add_consistency(out: &mut Outcome, paper: &Table1, variant: &Variant, column: usize, decisions: &[f64]) {
    let [median, p99, max] =
        [&paper.switch_median_ns, &paper.switch_p99_ns, &paper.switch_max_ns].map(|c| c[column]);
    let longest_ns = 0.5 * median + 0.49 * p99 + 0.01 * max;
    let prefix = format!("table1.{}", variant.name);
    out.measures.set_one(
        format!("{prefix}.paper_switch_total_bound_us"),
        paper.switches[column] * longest_ns / 1_000.0,
    );
    let loss = |decisions: f64| {
        let ns = decisions * (paper.decision_median_ns[column] + median);
        100.0 * ns / Duration::from_secs(SECONDS).as_ns() as f64
    };
    out.measures
        .set_one(format!("{prefix}.paper_loss_every_decision_percent"), loss(paper.decisions[column]));
    let ours = decisions.iter().map(|&d| loss(d)).collect();
    out.measures.set(format!("{prefix}.loss_every_decision_percent"), ours);
}

/// One policy after the other on this thread: two at once would disturb each other.
fn add_native(out: &mut Outcome, paper: &Table1, seed: u64, progress: Progress<'_>) -> Result<(), Error> {
    let mut table = Table::new(
        "table1-native",
        "Table 1: cost of one decision in ns, paper's machine | decision code of this program on this \
         machine",
        &["policy", "median", "99 %", "max", "cold median", "cold 99 %", "total in 10 s, us"],
    );
    table.native = true;
    let plain: Vec<_> = VARIANTS.iter().filter(|v| v.name == v.policy).collect();
    let mut clock_ns = 0.0;
    for (done, variant) in plain.iter().enumerate() {
        progress("Table 1, decision code", done, plain.len());
        let cost = native::measure(&scenario(variant, seed, SECONDS).host()?)?;
        clock_ns = cost.clock_ns;
        add_cost(out, &mut table, paper, variant, &cost);
    }
    progress("Table 1, decision code", plain.len(), plain.len());
    table.notes = vec![
        "Ours: charge, timers and pick of the policy object alone, replayed back to back (warm) and after a \
         walk through 8 MiB (cold). The paper's: do_schedule inside Xen 4.0 on a 2.66 GHz Q9400, locks and \
         idle handling included."
            .into(),
        format!(
            "Reading the clock takes {} ns (median), taken off. Total: the whole replay timed as one piece, \
             wake-ups and sleeps included, least of several rounds.",
            number(clock_ns)
        ),
    ];
    out.tables.push(table);
    Ok(())
}

fn add_cost(out: &mut Outcome, table: &mut Table, paper: &Table1, variant: &Variant, cost: &DecisionCost) {
    let column = paper.column(variant.paper);
    let beside = |column_of: &[f64], ours: f64| {
        format!("{} | {}", column.map_or("-".to_string(), |i| number(column_of[i])), number(ours))
    };
    let total_us = cost.mean_ns * cost.decisions as f64 / 1_000.0;
    table.rows.push(vec![
        variant.name.into(),
        beside(&paper.decision_median_ns, cost.median_ns),
        beside(&paper.decision_p99_ns, cost.p99_ns),
        beside(&paper.decision_max_ns, cost.max_ns),
        number(cost.cold_median_ns),
        number(cost.cold_p99_ns),
        beside(&paper.decision_total_us, total_us),
    ]);
    let mut set =
        |what: &str, value: f64| out.measures.set_one(format!("native.{}.{what}", variant.name), value);
    set("median_ns", cost.median_ns);
    set("mean_ns", cost.mean_ns);
    set("p99_ns", cost.p99_ns);
    set("cold_median_ns", cost.cold_median_ns);
    set("total_us", total_us);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    #[test]
    fn without_idle_quanta_the_claim_about_decisions_turns() {
        let (paper, claims) = crate::papers::rt_xen();
        let options = Options { task_sets: Some(1), native: false, ..Options::default() };
        let taken = run(&options, &paper.table1, &|_, _, _| ()).unwrap().measures;
        let of = |deferrable: &str| {
            let mut measures = Measures::default();
            for server in SERVERS {
                let from = if server == deferrable::NAME { deferrable } else { server };
                let decisions = taken.get(&format!("table1.{from}.decisions")).unwrap();
                measures.set(format!("table1.{server}.decisions"), decisions.to_vec());
            }
            verdict_on(&claims, "server-decisions", &measures)
        };
        assert_eq!((of("deferrable"), of("until-work.deferrable")), (Verdict::Agrees, Verdict::Differs));
    }
}
