//! RT-Xen s.5.4, Table 2: does an overloaded domain disturb the others?

use punctual_model::Host;
use punctual_model::host::{Arrival, Cost, Parent, Work};
use punctual_model::index::DomainIx;
use punctual_sched::Duration;
use punctual_sched::servers::{deferrable, periodic, polling, sporadic};
use punctual_sched::{credit, sedf};

use crate::error::Error;
use crate::measures::{median, number, range, with_range};
use crate::options::Options;
use crate::papers::Table2;
use crate::reproduction::{Outcome, Table};
use crate::scenario::{
    Progress, Scenario, deadline_ms, domain, miss_percent, most_urgent_task, run_all, set_utilization,
    split_evenly, utilization_percent,
};

/// The paper's 2 minutes.
const MINUTES: u64 = 2;
/// What the misconfigured task asks for.
const OVERLOAD_PERCENT: u64 = 10;

/// A row of the table: a policy, or a reading of "the quantum was 1 ms" for Credit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub name: &'static str,
    pub policy: &'static str,
    /// Options that differ from the host file.
    pub set: &'static [&'static str],
    /// The paper's row or column.
    pub paper: &'static str,
}

const fn variant(name: &'static str) -> Variant {
    Variant { name, policy: name, set: &[], paper: name }
}

/// The six policies, and Credit in two further readings. The paper sets Credit's quantum to 1 ms without
/// saying what became of its 10 ms tick: `credit` keeps the tick, `credit-tick-1ms` shortens it as well,
/// `credit-slice-30ms` is Xen's default.
pub(crate) const VARIANTS: [Variant; 8] = [
    variant(deferrable::NAME),
    variant(periodic::NAME),
    variant(polling::NAME),
    variant(sporadic::NAME),
    variant(credit::NAME),
    Variant {
        name: "credit-tick-1ms",
        policy: credit::NAME,
        set: &["pool.guests.credit.tick=1ms"],
        paper: credit::NAME,
    },
    Variant {
        name: "credit-slice-30ms",
        policy: credit::NAME,
        set: &["pool.guests.credit.slice=30ms"],
        paper: credit::NAME,
    },
    variant(sedf::NAME),
];

/// How domain 3 is misconfigured. The paper raises one task's utilization to 10 % and does not say by what.
/// Its 20 % are only exceeded when its other tasks ask for more than 10 %, which UUniFast seldom gives them:
/// so it is raised by cost as well where the load of domain 3 is split evenly among its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Normal,
    EvenCost,
    Cost,
    Period,
}

const LOADS: [(Load, &str, &str); 4] = [
    (Load::Normal, "normal", "normal"),
    (Load::EvenCost, "overloaded-even", "overloaded (d3 split evenly, cost raised)"),
    (Load::Cost, "overloaded", "overloaded (cost raised)"),
    (Load::Period, "overloaded-period", "overloaded (period shortened)"),
];

impl Load {
    fn apply(self, host: &mut Host) -> Result<(), Error> {
        let d3 = domain(host, "d3")?;
        if self == Load::EvenCost {
            split_evenly(host, d3);
        }
        let task = most_urgent_task(host, d3)
            .ok_or_else(|| Error::Missing("domain d3 has no periodic task".into()))?;
        match self {
            Load::Normal => {}
            Load::EvenCost | Load::Cost => set_utilization(host, task, OVERLOAD_PERCENT),
            Load::Period => {
                let Work::Jobs {
                    arrival: Arrival::Periodic { period, .. },
                    cost: Cost { max, .. },
                    deadline,
                } = &mut host.tasks[task.0].work
                else {
                    return Err(Error::Missing("the tasks of domain d3 are periodic".into()));
                };
                *period = Duration::from_ns(max.as_ns() * 100 / OVERLOAD_PERCENT);
                *deadline = *period;
            }
        }
        Ok(())
    }
}

/// Raises the cost of domain 3's most urgent task, as the paper may have done.
pub(crate) fn overload(host: &mut Host) -> Result<(), Error> {
    Load::Cost.apply(host)
}

/// Misses of domains 1 to 5 in percent, and the share that domain 3 asks for.
struct Cell {
    miss: Vec<f64>,
    d3_percent: f64,
    deadline_min_ms: Vec<f64>,
}

/// Runs normal and overloaded domains under every variant, for every task set.
pub(crate) fn run(options: &Options, paper: &Table2, progress: Progress<'_>) -> Result<Outcome, Error> {
    let seeds = options.seeds();
    let seconds = if options.quick { 20 } else { 60 * MINUTES };
    let mut out = Outcome::default();
    let mut table = Table::new(
        "table2",
        "Table 2: deadline miss ratio of each domain in percent, paper | ours: median (least to greatest)",
        &["load", "policy", "d1", "d2", "d3", "d4", "d5"],
    );
    for (load, id, title) in LOADS {
        let scenarios: Vec<_> =
            VARIANTS.iter().flat_map(|v| seeds.iter().map(move |&seed| scenario(v, seed, seconds))).collect();
        for scenario in &scenarios {
            load.apply(&mut scenario.host()?)?;
        }
        let what = format!("Table 2, {title}");
        let cells = run_all(
            &what,
            &scenarios,
            progress,
            |_, host| load.apply(host).expect("applied to the same host above"),
            |host, results| Cell {
                miss: results.domains.iter().map(|d| miss_percent(&d.jobs)).collect(),
                d3_percent: domain(host, "d3")
                    .map_or(0.0, |d3| utilization_percent(host, Parent::Domain(d3))),
                deadline_min_ms: shortest_deadlines(host),
            },
        )?;
        for (variant, cells) in VARIANTS.iter().zip(cells.chunks(seeds.len())) {
            add_row(&mut out, &mut table, paper, (load, id, title), variant, cells);
        }
        let d3 = cells[..seeds.len()].iter().map(|c| c.d3_percent).collect();
        out.measures.set(format!("table2.{id}.d3_load_percent"), d3);
        for d in 0..5 {
            let shortest = cells[..seeds.len()].iter().map(|c| c.deadline_min_ms[d]).collect();
            out.measures.set(format!("table2.{id}.deadline_min_ms.d{}", d + 1), shortest);
        }
    }
    table.notes = vec![
        format!(
            "Task sets by the paper's recipe at 70 % load, seeds {seeds:?}; the paper's own sets are not \
             published with it."
        ),
        format!("{seconds} s each. Paper: one run of 2 minutes."),
    ];
    out.tables.push(table);
    Ok(out)
}

/// The shortest deadline in each domain, in ms.
pub(crate) fn shortest_deadlines(host: &Host) -> Vec<f64> {
    let of = |d| Some(deadline_ms(host, most_urgent_task(host, DomainIx(d))?));
    (0..host.domains.len()).filter_map(of).collect()
}

/// The even share at 70 % under `variant`; seeds as in Fig. 6.
pub(crate) fn scenario(variant: &Variant, seed: u64, seconds: u64) -> Scenario {
    let plain = Scenario::new("rt-xen", "even").policy(variant.policy);
    let plain = plain.seed(crate::rt_xen::fig6::seed(seed, 70)).duration(Duration::from_secs(seconds));
    variant.set.iter().fold(plain, |scenario, set| scenario.set(*set))
}

fn add_row(
    out: &mut Outcome,
    table: &mut Table,
    paper: &Table2,
    (load, id, title): (Load, &str, &str),
    variant: &Variant,
    cells: &[Cell],
) {
    let printed = if load == Load::Normal { &paper.normal } else { &paper.overloaded };
    let printed = printed.row(variant.paper);
    let mut row = vec![title.to_string(), variant.name.to_string()];
    for domain in 0..5 {
        let ours: Vec<f64> = cells.iter().map(|c| c.miss[domain]).collect();
        let (low, high) = range(&ours);
        let ours_text = with_range(median(&ours), low, high);
        let printed = printed.map_or("-".into(), |r| number(r[domain]));
        row.push(format!("{printed} | {ours_text}"));
        out.measures.set(format!("table2.{id}.{}.d{}", variant.name, domain + 1), ours);
    }
    table.rows.push(row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    const SERVERS: [&str; 5] = [deferrable::NAME, periodic::NAME, polling::NAME, sporadic::NAME, sedf::NAME];

    /// The misses of one task set for 20 s under servers and SEDF, as the measures of `id`.
    fn misses(load: Load, id: &str, set: &str) -> Measures {
        let mut measures = Measures::default();
        for policy in SERVERS {
            let scenario = scenario(&variant(policy), 1, 20).set(set);
            let mut host = scenario.host().unwrap();
            load.apply(&mut host).unwrap();
            let results = scenario.simulate(&host).unwrap();
            for (d, domain) in results.domains.iter().enumerate() {
                measures.set_one(format!("table2.{id}.{policy}.d{}", d + 1), miss_percent(&domain.jobs));
            }
            if policy == SERVERS[0] {
                let d3 = utilization_percent(&host, Parent::Domain(domain(&host, "d3").unwrap()));
                measures.set_one(format!("table2.{id}.d3_load_percent"), d3);
            }
        }
        measures
    }

    #[test]
    fn a_full_load_turns_the_claim_that_all_deadlines_are_met() {
        let claims = crate::papers::rt_xen().1;
        let of = |load| {
            let set = format!("domain.*.generate.load={load}%");
            verdict_on(&claims, "normal-all-met", &misses(Load::Normal, "normal", &set))
        };
        assert_eq!((of(70), of(100)), (Verdict::Agrees, Verdict::Differs));
    }

    #[test]
    fn a_domain_3_that_is_not_overloaded_says_nothing_about_isolation() {
        let claims = crate::papers::rt_xen().1;
        for id in ["overload-isolated", "overload-polling-sedf"] {
            let of = |load| verdict_on(&claims, id, &misses(load, "overloaded-even", "seed=1070"));
            assert_eq!((of(Load::EvenCost), of(Load::Cost)), (Verdict::Agrees, Verdict::Differs), "{id}");
        }
    }
}
