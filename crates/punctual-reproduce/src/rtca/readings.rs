//! What other assumptions make of RTCA's figures: where the 70 us of an undisturbed round trip go, and how
//! much the periodic tasks ask for. The paper prints neither.

use punctual_model::Histogram;
use punctual_model::host::Host;
use punctual_model::results::Results;
use punctual_sched::Duration;

use super::{KERNELS, LEVELS, ORIGINAL, POLICIES, RTCA, at_level, flow, us};
use crate::error::Error;
use crate::measures::number;
use crate::options::Options;
use crate::papers::Rtca;
use crate::reproduction::{Outcome, Table};
use crate::scenario::{Progress, Scenario, as_written, miss_percent, run_all};

/// A split of a round trip between guests and domain 0.
pub(super) struct Split {
    pub id: &'static str,
    pub title: &'static str,
    /// `network.lan.costs.KEY=VALUE`. A guest's sending and receiving and the three stages with their rounds
    /// are 26 us one way, as calibrated; copying takes what the stages and the 2 us of events leave of the
    /// 45.4 us for a segment (`papers/rtca/calibration.toml`).
    pub costs: &'static [(&'static str, &'static str)],
}

/// s.III: a domain sends in less than 10 us.
pub(super) const SPLITS: [Split; 4] = [
    Split { id: "calibrated", title: "a guest 5.5 us, a stage 5 us (calibrated)", costs: &[] },
    Split {
        id: "guest-6500",
        title: "a guest 6.5 us, a stage 4.33 us",
        costs: &[("guest", "6500ns"), ("stage", "4233ns"), ("copy_per_kib", "373ns")],
    },
    Split {
        id: "guest-7000",
        title: "a guest 7 us, a stage 4 us",
        costs: &[("guest", "7000ns"), ("stage", "3900ns"), ("copy_per_kib", "396ns")],
    },
    Split {
        id: "guest-8000",
        title: "a guest 8 us, a stage 3.33 us",
        costs: &[("guest", "8000ns"), ("stage", "3233ns"), ("copy_per_kib", "443ns")],
    },
];

impl Split {
    pub(super) fn set(&self, scenario: Scenario) -> Scenario {
        self.costs.iter().fold(scenario, |scenario, (cost, value)| {
            let keys: &[&str] = match *cost {
                "guest" => &["guest_send", "guest_receive"],
                "stage" => &["tx", "softnet", "rx"],
                other => &[other],
            };
            keys.iter().fold(scenario, |s, key| s.set(format!("network.lan.costs.{key}={value}")))
        })
    }
}

/// Table I and Fig. 3 under each split.
pub(crate) fn splits(options: &Options, paper: &Rtca, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = other_cores(options, paper, progress)?;
    let Outcome { tables, measures, .. } = same_core(options, progress)?;
    out.tables.extend(tables);
    out.measures.extend(measures);
    Ok(out)
}

/// Shorter than the experiments themselves: 500 round trips.
fn short(options: &Options, scenario: Scenario) -> Scenario {
    scenario.duration(Duration::from_secs(if options.quick { 1 } else { 5 }))
}

fn other_cores(options: &Options, paper: &Rtca, progress: Progress<'_>) -> Result<Outcome, Error> {
    // The paper's kernels.
    let kernels = &KERNELS[..4];
    let mut scenarios = Vec::new();
    for split in &SPLITS {
        for level in 0..LEVELS.len() {
            let scenario = |kernel: &super::Kernel| kernel.set(Scenario::new("rtca", "other-cores"));
            let scenario = |kernel| short(options, split.set(at_level(scenario(kernel), level)));
            scenarios.extend(kernels.iter().map(scenario));
        }
    }
    let keep = |_: &Host, results: &Results| flow(results, "probe").map(|probe| probe.latency.clone());
    let all = run_all("Readings", &scenarios, progress, as_written, keep)?;
    let all: Vec<Histogram> = all.into_iter().collect::<Result<_, _>>()?;
    let mut out = Outcome::default();
    let columns = ["level", "reading", "original", "rtca-1", "rtca-64", "rtca-238"];
    let title = "Table I under other splits of the same undisturbed round trip: medians in us";
    let mut table = Table::new("readings", title, &columns);
    for (l, level) in LEVELS.iter().enumerate() {
        let printed = paper.table1.row("median", l).iter().copied().map(number);
        table.rows.push([level.to_string(), "the paper".into()].into_iter().chain(printed).collect());
        for (split, runs) in SPLITS.iter().zip(all.chunks(LEVELS.len() * kernels.len())) {
            let mut row = vec![level.to_string(), split.title.to_string()];
            for (kernel, latency) in kernels.iter().zip(&runs[l * kernels.len()..]) {
                let prefix = format!("readings.{}.{level}.{}", split.id, kernel.id);
                for (name, ppm) in [("median", 500_000), ("p75", 750_000), ("p95", 950_000)] {
                    out.measures.set_one(format!("{prefix}.{name}_us"), us(latency.quantile_ppm(ppm)));
                }
                row.push(number(us(latency.quantile_ppm(500_000))));
            }
            table.rows.push(row);
        }
    }
    table.notes.push("500 round trips each.".into());
    out.tables.push(table);
    Ok(out)
}

fn same_core(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut cells = Vec::new();
    let mut scenarios = Vec::new();
    for split in &SPLITS {
        for (name, policy) in POLICIES {
            for kernel in [ORIGINAL, RTCA] {
                let scenario = Scenario::new("rtca", "same-core").set(format!("pool.guests.policy={policy}"));
                scenarios.push(short(options, split.set(kernel.set(scenario))));
                cells.push((split, name, kernel));
            }
        }
    }
    let keep = |_: &Host, results: &Results| {
        let busy = results.processors[0].busy_ns as f64 / results.duration_ns as f64 * 100.0;
        flow(results, "probe").map(|probe| (probe.latency.clone(), busy))
    };
    let all = run_all("Readings", &scenarios, progress, as_written, keep)?;
    let mut out = Outcome::default();
    let columns = ["reading", "policy", "kernel", "30 %, us", "90 %, us", "95 %, us", "domain 0 busy"];
    let mut table = Table::new("readings-fig3", "Fig. 3 under the same splits", &columns);
    for ((split, policy, kernel), measured) in cells.into_iter().zip(all) {
        let (latency, busy) = measured?;
        let prefix = format!("readings.{}.{policy}.{}", split.id, kernel.id);
        let mut row = vec![split.title.to_string(), policy.to_string(), kernel.id.to_string()];
        for percent in [30, 90, 95] {
            let value = us(latency.quantile_ppm(percent * 10_000));
            out.measures.set_one(format!("{prefix}.p{percent}_us"), value);
            row.push(number(value));
        }
        out.measures.set_one(format!("{prefix}.dom0_busy_percent"), busy);
        row.push(format!("{} %", number(busy)));
        table.rows.push(row);
    }
    out.tables.push(table);
    Ok(out)
}

/// What tasks 2, 3 and 4 of Fig. 10 may ask for: with the chain, so much of a domain's 60 %.
const DEMANDS: [(&str, &str); 3] = [
    ("1ms", "1 ms each, as above: 83 and 67 % of budget and cap"),
    ("1900us", "1.9 ms each: 98 and 97 %"),
    ("2050us", "2.05 ms each: 101 and 102 %"),
];

/// Table II without other processors' traffic, whatever the periodic tasks ask for. They are released between
/// Credit's ticks, which would not see them otherwise.
pub(crate) fn demands(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    const TASKS: [&str; 3] = ["domain.d1.task.task2", "domain.d2.task.task3", "domain.d2.task.task4"];
    let mut cells = Vec::new();
    let mut scenarios = Vec::new();
    for (cost, title) in DEMANDS {
        for (name, policy) in POLICIES {
            let scenario = Scenario::new("rtca", "end-to-end").set(format!("pool.guests.policy={policy}"));
            let scenario = at_level(RTCA.set(scenario), 0).set("domain.d1.task.sense.offset=7ms");
            let set =
                |s: Scenario, task| s.set(format!("{task}.cost={cost}")).set(format!("{task}.offset=7ms"));
            scenarios.push(short(options, TASKS.into_iter().fold(scenario, set)));
            cells.push((cost, title, name));
        }
    }
    let keep = |_: &Host, results: &Results| {
        let missed =
            |name: &str| results.tasks.iter().find(|t| t.name == name).map(|t| miss_percent(&t.jobs));
        ["task2", "task3", "task4"].map(|name| missed(name).unwrap_or(0.0))
    };
    let all = run_all("Readings", &scenarios, progress, as_written, keep)?;
    let mut out = Outcome::default();
    let columns = ["tasks 2, 3 and 4", "policy", "task 2", "task 3", "task 4"];
    let title = "Table II, base, RTCA, with other costs of the periodic tasks: deadlines missed, %";
    let mut table = Table::new("readings-table2", title, &columns);
    for ((cost, title, policy), missed) in cells.into_iter().zip(all) {
        let mut row = vec![title.to_string(), policy.to_string()];
        for (task, percent) in (2..=4).zip(missed) {
            out.measures.set_one(format!("readings.{cost}.{policy}.task{task}"), percent);
            row.push(number(percent));
        }
        table.rows.push(row);
    }
    out.tables.push(table);
    Ok(out)
}
