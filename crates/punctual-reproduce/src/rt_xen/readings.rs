//! What other assumptions make of RT-Xen's Tables 1 and 2: how a domain's utilization is split among its
//! tasks, whether costs depend on the domain, and what a run is charged. The paper prints none of them.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::DomainIx;
use punctual_sched::Duration;

use super::POLICIES;
use super::table2::{Variant, overload, scenario, shortest_deadlines};
use crate::error::Error;
use crate::measures::{number, range, spread};
use crate::options::Options;
use crate::reproduction::{Outcome, Table};
use crate::scenario::{
    Progress, Scenario, domain, miss_percent, run_all, scale_with_budget, split_evenly, utilization_percent,
};

/// An assumption in place of one of `papers/rt-xen/even.toml`.
struct Reading {
    id: &'static str,
    title: &'static str,
    set: &'static [&'static str],
    change: fn(&mut Host),
}

/// Domain 3's budget: with it as the measure, domains have costs of 5 to 10 ms on average, as in the recipe.
const BUDGET: Duration = Duration::from_ms(6);

/// RTCA s.III: RT-Xen's scheduler of 2011 charges in quanta of 1 ms, and nothing for less than half of one.
const IN_QUANTA: [&str; 4] = [
    "pool.guests.deferrable.accounting=quantum",
    "pool.guests.periodic.accounting=quantum",
    "pool.guests.polling.accounting=quantum",
    "pool.guests.sporadic.accounting=quantum",
];

const READINGS: [Reading; 4] = [
    Reading { id: "recipe", title: "as in Tables 1 and 2", set: &[], change: |_| () },
    Reading {
        id: "even",
        title: "load split evenly among a domain's tasks",
        set: &[],
        change: |host| (0..host.domains.len()).for_each(|d| split_evenly(host, DomainIx(d))),
    },
    Reading {
        id: "by-domain",
        title: "costs in proportion to the domain's budget",
        set: &[],
        change: |host| scale_with_budget(host, BUDGET),
    },
    Reading { id: "quanta", title: "runs charged in quanta", set: &IN_QUANTA, change: |_| () },
];

impl Reading {
    fn variant(&self, policy: &'static str) -> Variant {
        Variant { name: policy, policy, set: self.set, paper: policy }
    }
}

/// What a run of a task set showed: misses of domains 1 to 5 in percent, what domain 3 asks for.
struct Misses {
    of: Vec<f64>,
    d3_percent: f64,
    /// The shortest deadline in each domain.
    deadline_min_ms: Vec<f64>,
}

/// Table 2, without and with an overloaded domain 3, and Table 1's switches under each reading.
pub(crate) fn run(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let mut table = Table::new(
        "readings",
        "Readings: misses in percent of domains 1 and 3 (Table 2), switches in 10 s (Table 1); mean (range)",
        &[
            "reading",
            "policy",
            "d1",
            "d1, d3 overloaded",
            "others, d3 overloaded",
            "d3 overloaded",
            "switches",
        ],
    );
    for reading in &READINGS {
        let normal = misses(reading, options, progress, |_| ())?;
        let overloaded = misses(reading, options, progress, |host| {
            overload(host).expect("the host of Table 2 has a domain d3 with tasks");
        })?;
        let switches = switches(reading, options, progress)?;
        for (at, policy) in POLICIES.into_iter().enumerate() {
            let prefix = format!("readings.{}.{policy}", reading.id);
            let mut row = vec![reading.title.to_string(), policy.to_string()];
            let column = |misses: &[Misses], d: usize| misses.iter().map(|m| m.of[d - 1]).collect::<Vec<_>>();
            let most = |m: &Misses| [1, 2, 4, 5].map(|d: usize| m.of[d - 1]).into_iter().fold(0.0, f64::max);
            let values = [
                ("d1", column(&normal[at], 1)),
                ("overloaded.d1", column(&overloaded[at], 1)),
                ("overloaded.others", overloaded[at].iter().map(most).collect()),
                ("overloaded.d3", column(&overloaded[at], 3)),
                ("switches", switches[at].clone()),
            ];
            for (name, values) in values {
                row.push(spread(&values));
                out.measures.set(format!("{prefix}.{name}"), values);
            }
            table.rows.push(row);
        }
        for d in 0..5 {
            let shortest = normal[0].iter().map(|misses| misses.deadline_min_ms[d]).collect();
            out.measures.set(format!("readings.{}.deadline_min_ms.d{}", reading.id, d + 1), shortest);
        }
        let asked: Vec<f64> = overloaded[0].iter().map(|misses| misses.d3_percent).collect();
        let (low, high) = range(&asked);
        let (low, high) = (number(low), number(high));
        table.notes.push(format!("{}: overloaded, d3 asks for {low} to {high} %.", reading.title));
        out.measures.set(format!("readings.{}.overloaded.d3_load_percent", reading.id), asked);
    }
    out.tables.push(table);
    Ok(out)
}

/// By policy, by task set.
fn misses(
    reading: &Reading,
    options: &Options,
    progress: Progress<'_>,
    change: impl Fn(&mut Host) + Sync,
) -> Result<Vec<Vec<Misses>>, Error> {
    let seeds = options.seeds();
    let seconds = if options.quick { 10 } else { 60 };
    let scenarios: Vec<_> = POLICIES
        .iter()
        .flat_map(|policy| seeds.iter().map(|&seed| scenario(&reading.variant(policy), seed, seconds)))
        .collect();
    let cells = run_all(
        "Readings",
        &scenarios,
        progress,
        |_, host| {
            (reading.change)(host);
            change(host);
        },
        |host, results| Misses {
            of: results.domains.iter().map(|d| miss_percent(&d.jobs)).collect(),
            d3_percent: domain(host, "d3").map_or(0.0, |d3| utilization_percent(host, Parent::Domain(d3))),
            deadline_min_ms: shortest_deadlines(host),
        },
    )?;
    Ok(by_policy(cells, seeds.len()))
}

fn switches(reading: &Reading, options: &Options, progress: Progress<'_>) -> Result<Vec<Vec<f64>>, Error> {
    let seeds = options.seeds();
    let scenarios: Vec<_> = POLICIES
        .iter()
        .flat_map(|policy| seeds.iter().map(|&seed| scenario(&reading.variant(policy), seed, 10)))
        .collect();
    let change = |_: &Scenario, host: &mut Host| (reading.change)(host);
    let counted = run_all("Readings", &scenarios, progress, change, |_, results| {
        results.pools[0].context_switches.unwrap_or_default() as f64
    })?;
    Ok(by_policy(counted, seeds.len()))
}

fn by_policy<T>(cells: Vec<T>, sets: usize) -> Vec<Vec<T>> {
    let mut cells = cells.into_iter();
    POLICIES.iter().map(|_| cells.by_ref().take(sets).collect()).collect()
}
