//! RTCA: round trips, throughput and end-to-end tasks between domains, as shipped and with priorities in
//! domain 0.

pub(crate) mod in_xen;
pub(crate) mod limitations;
pub(crate) mod readings;

use punctual_model::host::Host;
use punctual_model::results::{FlowResult, Results};
use punctual_model::{Histogram, results};
use punctual_sched::Duration;
use punctual_sched::credit;
use punctual_sched::servers::deferrable;

use crate::error::Error;
use crate::measures::{mean, number};
use crate::options::Options;
use crate::papers::Rtca;
use crate::ranges::RangeFigure;
use crate::reproduction::{Figure, Outcome, Series, Table};
use crate::scenario::{Progress, Scenario, as_written, miss_percent, run_all};

/// Levels of interference (s.VI.B): how many of the three domains on each of three processors send.
pub(crate) const LEVELS: [&str; 4] = ["base", "light", "medium", "heavy"];

/// A packet discipline of domain 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub id: &'static str,
    discipline: &'static str,
    batch: Option<u32>,
}

const fn kernel(id: &'static str, discipline: &'static str, batch: Option<u32>) -> Kernel {
    Kernel { id, discipline, batch }
}

pub(crate) const ORIGINAL: Kernel = kernel("original", "netback", None);
pub(crate) const RTCA: Kernel = kernel("rtca-1", "rtca", Some(1));
/// As the paper's tables order them, and the third discipline, which is not the paper's.
pub(crate) const KERNELS: [Kernel; 5] = [
    ORIGINAL,
    RTCA,
    kernel("rtca-64", "rtca", Some(64)),
    kernel("rtca-238", "rtca", Some(238)),
    kernel("preemptive", "preemptive", None),
];

/// Deadline of the end-to-end task, which is its period.
const END_TO_END_DEADLINE_NS: f64 = 10e6;

/// The policies over guests, and what the paper calls them.
const POLICIES: [(&str, &str); 2] = [("rt-xen", deferrable::NAME), (credit::NAME, credit::NAME)];

impl Kernel {
    pub(crate) fn set(self, scenario: Scenario) -> Scenario {
        let scenario = scenario.set(format!("network.lan.discipline={}", self.discipline));
        match self.batch {
            Some(batch) => scenario.set(format!("network.lan.{}.batch={batch}", self.discipline)),
            None => scenario,
        }
    }
}

/// Domains that send at a level: `n1`, `n4`, `n7` are the first on their processors, and so on.
fn quiet(level: usize) -> impl Iterator<Item = usize> {
    (1..=9).filter(move |n| (n - 1) % 3 >= level)
}

fn at_level(scenario: Scenario, level: usize) -> Scenario {
    quiet(level).fold(scenario, |s, n| s.set(format!("flow.storm{n}.start=1000s")))
}

fn flow<'r>(results: &'r Results, name: &str) -> Result<&'r FlowResult, Error> {
    let found = results.flows.iter().find(|f| f.name == name);
    found.ok_or_else(|| Error::Missing(format!("there is no flow {name}")))
}

fn us(time: Duration) -> f64 {
    time.as_ns() as f64 / 1e3
}

/// Fig. 6: the example, packet by packet.
pub(crate) fn fig6(progress: Progress<'_>) -> Result<Outcome, Error> {
    let kernels = [ORIGINAL, kernel("rtca", "rtca", Some(2)), kernel("preemptive", "preemptive", Some(2))];
    let scenarios: Vec<_> = kernels.iter().map(|k| k.set(Scenario::new("rtca", "example"))).collect();
    let response = |results: &Results| -> Result<Vec<u64>, Error> {
        let latency = |name: &String| Ok(flow(results, name)?.latency.max().as_ns() / 10_000);
        let names = ["t3", "t2", "t1"].iter().flat_map(|t| (1..=3).map(move |n| format!("{t}-{n}")));
        names.map(|name| latency(&name)).collect()
    };
    let all = run_all("Fig. 6", &scenarios, progress, as_written, |_, results| response(results))?;
    let mut out = Outcome::default();
    let columns = ["kernel", "T3", "T2", "T1 (most urgent)"];
    let mut table = Table::new("fig6", "Fig. 6: response times of three packets of each domain", &columns);
    for (kernel, times) in kernels.iter().zip(all) {
        let times = times?;
        let mut row = vec![kernel.id.to_string()];
        for (domain, times) in ["t3", "t2", "t1"].iter().zip(times.chunks(3)) {
            row.push(times.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
            for (n, &time) in times.iter().enumerate() {
                out.measures.set_one(format!("fig6.{}.{domain}.{}", kernel.id, n + 1), time as f64);
            }
        }
        table.rows.push(row);
    }
    table.notes = vec![
        "Time is in units that a packet takes in each stage; batches of 2, as the paper has them.".into(),
        "The paper prints 5, 5, 3 for T1 under RTCA. Its third packet is released at 5, so 3 would be the \
         instant at which the first one leaves. By Algorithm 1 as printed the TX round that takes it goes \
         on with a packet of T2, the batch being 2, which makes 8; without that packet it would be 7."
            .into(),
    ];
    out.tables.push(table);
    Ok(out)
}

/// A round trip's distribution as a curve: every fifth percentile, as the paper plots it.
fn curve(name: String, latency: &Histogram) -> Series {
    let point = |percent: u32| {
        let x = us(latency.quantile_ppm(percent * 10_000));
        let y = f64::from(percent);
        [x, y, y, y]
    };
    Series { name, points: (1..20).map(|i| point(5 * i)).collect() }
}

/// Fig. 3: ten domains on one processor, under Credit and RT-Xen, as shipped and RTCA.
pub(crate) fn fig3(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut cells = Vec::new();
    let mut scenarios = Vec::new();
    for (name, policy) in POLICIES {
        for kernel in [ORIGINAL, RTCA] {
            let scenario = Scenario::new("rtca", "same-core").set(format!("pool.guests.policy={policy}"));
            let scenario = kernel.set(scenario);
            scenarios.push(if options.quick { scenario.duration(Duration::from_secs(2)) } else { scenario });
            cells.push((name, kernel));
        }
    }
    let keep = |_: &Host, results: &Results| {
        let busy = results.processors[0].busy_ns as f64 / results.duration_ns as f64 * 100.0;
        flow(results, "probe").map(|probe| (probe.latency.clone(), probe.timeouts, busy))
    };
    let all = run_all("Fig. 3", &scenarios, progress, as_written, keep)?;
    let mut out = Outcome::default();
    let percents = [5u32, 30, 50, 75, 90, 95, 99];
    let mut columns = vec!["policy".to_string(), "kernel".to_string()];
    columns.extend(percents.iter().map(|p| format!("{p} %, us")));
    columns.push("domain 0 busy".into());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table =
        Table::new("fig3", "Fig. 3: round trips beside eight bouncing domains on one processor", &columns);
    let mut series = Vec::new();
    for ((policy, kernel), measured) in cells.into_iter().zip(all) {
        let (latency, timeouts, busy) = measured?;
        let prefix = format!("fig3.{policy}.{}", kernel.id);
        let mut row = vec![policy.to_string(), kernel.id.to_string()];
        for percent in percents {
            let value = us(latency.quantile_ppm(percent * 10_000));
            out.measures.set_one(format!("{prefix}.p{percent}_us"), value);
            row.push(number(value));
        }
        row.push(format!("{} %", number(busy)));
        out.measures.set_one(format!("{prefix}.dom0_busy_percent"), busy);
        out.measures.set_one(format!("{prefix}.timeouts"), timeouts as f64);
        table.rows.push(row);
        series.push(curve(format!("{policy}, {}", kernel.id), &latency));
    }
    table.notes.push("The probe's requests leave every 10 ms; 5000 of them, as in the paper.".into());
    out.tables.push(table);
    out.figures.push(Figure {
        id: "fig3".into(),
        title: "RTCA Fig. 3: interference within one processor".into(),
        x: "round trip (us)".into(),
        y: "share of round trips (%)".into(),
        series,
    });
    Ok(out)
}

/// Table I and Fig. 4: interference from other processors.
pub(crate) fn table1(options: &Options, paper: &Rtca, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut scenarios = Vec::new();
    for level in 0..LEVELS.len() {
        for kernel in KERNELS {
            let scenario = at_level(kernel.set(Scenario::new("rtca", "other-cores")), level);
            scenarios.push(if options.quick { scenario.duration(Duration::from_secs(1)) } else { scenario });
        }
    }
    let keep = |_: &Host, results: &Results| flow(results, "probe").map(|probe| probe.latency.clone());
    let all = run_all("Table I", &scenarios, progress, as_written, keep)?;
    let all: Vec<Histogram> = all.into_iter().collect::<Result<_, _>>()?;
    let mut out = Outcome::default();
    let mut columns = vec!["level".to_string(), "quantile".into()];
    columns.extend(KERNELS.iter().map(|k| k.id.to_string()));
    columns.push("paper: original, 1, 64, 238".into());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table =
        Table::new("table1", "Table I: round trips in us beside other processors' traffic", &columns);
    for (l, (level, latencies)) in LEVELS.iter().zip(all.chunks(KERNELS.len())).enumerate() {
        for (q, quantile) in ["median", "p75", "p95"].into_iter().enumerate() {
            let mut row = vec![level.to_string(), quantile.to_string()];
            for (kernel, latency) in KERNELS.iter().zip(latencies) {
                let value = us(latency.quantile_ppm([500_000, 750_000, 950_000][q]));
                out.measures.set_one(format!("table1.{level}.{}.{quantile}_us", kernel.id), value);
                row.push(number(value));
            }
            let printed = paper.table1.row(quantile, l);
            row.push(printed.map(number).join(", "));
            for (kernel, value) in KERNELS.iter().zip(printed) {
                out.measures.set_one(format!("table1.paper.{level}.{}.{quantile}_us", kernel.id), *value);
            }
            table.rows.push(row);
        }
    }
    table.notes = vec![
        "preemptive is no kernel of the paper: it goes beyond RTCA where its s.III and s.V leave something \
         open."
            .into(),
        "Base is what the costs are calibrated with (papers/rtca/calibration.toml); the others follow from \
         mechanism."
            .into(),
    ];
    out.tables.push(table);
    out.figures.push(fig4(&all));
    Ok(out)
}

/// Fig. 4: the distributions of Table I, level by level, as shipped and with RTCA.
fn fig4(all: &[Histogram]) -> Figure {
    let series = LEVELS.iter().zip(all.chunks(KERNELS.len())).flat_map(|(level, latencies)| {
        KERNELS.iter().zip(latencies).filter(|(k, _)| matches!(k.id, "original" | "rtca-1")).map(
            move |(k, latency)| {
                let mut series = curve(format!("{level}, {}", k.id), latency);
                series.points.iter_mut().for_each(|p| p[0] /= 1e3);
                series
            },
        )
    });
    Figure {
        id: "fig4".into(),
        title: "RTCA Fig. 4: the bottleneck in domain 0".into(),
        x: "round trip (ms)".into(),
        y: "share of round trips (%)".into(),
        series: series.collect(),
    }
}

/// Fig. 8: throughput of the urgent pair.
pub(crate) fn fig8(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let seeds: Vec<u64> = (1..=if options.quick { 1 } else { 3 }).collect();
    let mut scenarios = Vec::new();
    for level in 0..LEVELS.len() {
        for kernel in KERNELS {
            for &seed in &seeds {
                let scenario = at_level(kernel.set(Scenario::new("rtca", "other-cores")), level)
                    .set("flow.iperf.start=0s")
                    .set("flow.probe.start=1000s")
                    .seed(seed);
                let time = if options.quick { Duration::from_ms(500) } else { Duration::from_secs(4) };
                scenarios.push(scenario.duration(time));
            }
        }
    }
    let keep = |_: &Host, results: &Results| {
        flow(results, "iperf").map(|f| f.packets.bytes as f64 * 8.0 / results.duration_ns as f64)
    };
    let all: Vec<f64> =
        run_all("Fig. 8", &scenarios, progress, as_written, keep)?.into_iter().collect::<Result<_, _>>()?;
    let mut out = Outcome::default();
    let mut columns = vec!["level"];
    columns.extend(KERNELS.iter().map(|k| k.id));
    let mut table = Table::new("fig8", "Fig. 8: throughput of the urgent pair, Gbit/s", &columns);
    let mut ranges = Vec::new();
    for (level, cells) in LEVELS.iter().zip(all.chunks(KERNELS.len() * seeds.len())) {
        let mut row = vec![level.to_string()];
        for (kernel, values) in KERNELS.iter().zip(cells.chunks(seeds.len())) {
            let mean = mean(values);
            out.measures.set_one(format!("fig8.{level}.{}.gbit_s", kernel.id), mean);
            row.push(number(mean));
            ranges.push(RangeFigure::bar(&format!("{level} {}", kernel.id), values));
        }
        table.rows.push(row);
    }
    table.notes.push("A stream of 64 KiB segments, as Linux hands them over; no wire is involved.".into());
    out.tables.push(table);
    out.ranges.push(RangeFigure {
        id: "fig8".into(),
        title: "RTCA Fig. 8: throughput of the urgent pair".into(),
        y: "Gbit/s".into(),
        logarithmic: false,
        columns: ranges,
    });
    Ok(out)
}

/// What Fig. 10 and Table II need of a run.
struct EndToEnd {
    jobs: results::JobStats,
    misses: [f64; 3],
}

/// A run of Fig. 10: the name of its policy in the paper, its kernel, its level.
type EndToEndCell = (&'static str, Kernel, usize);

/// Fig. 10 and Table II: end-to-end tasks and periodic tasks under both policies and kernels.
pub(crate) fn fig10(options: &Options, paper: &Rtca, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (cells, scenarios): (Vec<_>, Vec<_>) = end_to_end(options).into_iter().unzip();
    let keep = |_: &Host, results: &Results| {
        let misses = |name: &str| {
            results.tasks.iter().find(|t| t.name == name).map_or(0.0, |task| miss_percent(&task.jobs))
        };
        EndToEnd { jobs: results.chains[0].jobs.clone(), misses: ["task2", "task3", "task4"].map(misses) }
    };
    let runs = run_all("Fig. 10", &scenarios, progress, as_written, keep)?;
    let mut out = Outcome::default();
    let columns = ["policy", "kernel", "level", "25 %", "median", "75 %", "max", "missed"];
    let mut ratios =
        Table::new("fig10", "Fig. 10: response time / deadline of the end-to-end task", &columns);
    let columns = ["policy", "kernel", "level", "task 2", "task 3", "task 4", "paper: tasks 2, 3, 4"];
    let mut misses = Table::new("table2", "Table II: deadline miss ratio of the periodic tasks, %", &columns);
    let mut columns = Vec::new();
    for (&cell, run) in cells.iter().zip(&runs) {
        ratios.rows.push(ratios_of(cell, run, &mut out));
        misses.rows.push(misses_of(cell, run, paper, &mut out));
        let (policy, kernel, level) = cell;
        let label = format!("{policy} {} {}", kernel.id, LEVELS[level]);
        columns.push(RangeFigure::quartiles(&label, &run.jobs.response, END_TO_END_DEADLINE_NS));
    }
    ratios.notes.push("The deadline is the period, 10 ms; the paper does not print it.".into());
    misses.notes.push("The cost of the periodic tasks is not printed: 1 ms in 10 ms here.".into());
    out.tables.extend([ratios, misses]);
    for (policy, columns) in ["rt-xen", credit::NAME].into_iter().zip(columns.chunks(8)) {
        out.ranges.push(RangeFigure {
            id: format!("fig10-{policy}"),
            title: format!("RTCA Fig. 10: end-to-end task under {policy}"),
            y: "response time / deadline".into(),
            logarithmic: policy == credit::NAME,
            columns: columns.to_vec(),
        });
    }
    Ok(out)
}

/// The runs of Fig. 10 in the order of its columns.
fn end_to_end(options: &Options) -> Vec<(EndToEndCell, Scenario)> {
    let mut runs = Vec::new();
    for (policy, name) in POLICIES {
        for kernel in [RTCA, ORIGINAL] {
            for level in 0..LEVELS.len() {
                let scenario = Scenario::new("rtca", "end-to-end").set(format!("pool.guests.policy={name}"));
                let mut scenario = at_level(kernel.set(scenario), level);
                if options.quick {
                    scenario = scenario.duration(Duration::from_secs(1));
                }
                runs.push(((policy, kernel, level), scenario));
            }
        }
    }
    runs
}

/// The first columns of a row of Fig. 10 and Table II.
fn head((policy, kernel, level): EndToEndCell) -> Vec<String> {
    vec![policy.to_string(), kernel.id.to_string(), LEVELS[level].to_string()]
}

/// A row of Fig. 10, and its measures.
fn ratios_of(cell: EndToEndCell, run: &EndToEnd, out: &mut Outcome) -> Vec<String> {
    let response = &run.jobs.response;
    let ratio = |ppm| response.quantile_ppm(ppm).as_ns() as f64 / END_TO_END_DEADLINE_NS;
    let (q1, median, q3) = (ratio(250_000), ratio(500_000), ratio(750_000));
    let max = response.max().as_ns() as f64 / END_TO_END_DEADLINE_NS;
    let missed = miss_percent(&run.jobs);
    let prefix = format!("fig10.{}", head(cell).join("."));
    for (name, value) in
        [("p25", q1), ("median", median), ("p75", q3), ("max", max), ("miss_percent", missed)]
    {
        out.measures.set_one(format!("{prefix}.{name}"), value);
    }
    let mut row = head(cell);
    row.extend([q1, median, q3, max].map(number));
    row.push(format!("{} %", number(missed)));
    row
}

/// A row of Table II, and its measures.
fn misses_of(cell: EndToEndCell, run: &EndToEnd, paper: &Rtca, out: &mut Outcome) -> Vec<String> {
    let prefix = format!("table2.{}", head(cell).join("."));
    let mut row = head(cell);
    for (task, value) in (2..=4).zip(run.misses) {
        out.measures.set_one(format!("{prefix}.task{task}"), value);
        row.push(number(value));
    }
    let (policy, kernel, level) = cell;
    row.push(paper.table2.cell(kernel == ORIGINAL, policy, level).map(number).join(", "));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    /// The medians of RTCA's round trips at every level with this batch, as those of a batch of 1.
    fn medians(batch: u32) -> Measures {
        let mut measures = Measures::default();
        for (l, level) in LEVELS.iter().enumerate() {
            let kernel = kernel("rtca-1", "rtca", Some(batch));
            let scenario = at_level(kernel.set(Scenario::new("rtca", "other-cores")), l);
            let scenario = scenario.duration(Duration::from_ms(50));
            let results = scenario.simulate(&scenario.host().unwrap()).unwrap();
            let median = flow(&results, "probe").unwrap().latency.quantile_ppm(500_000);
            measures.set_one(format!("table1.{level}.rtca-1.median_us"), us(median));
        }
        measures
    }

    #[test]
    fn a_larger_batch_turns_the_claim_that_a_batch_of_1_stays_flat() {
        let claims = crate::papers::rtca().1;
        let of = |batch| verdict_on(&claims, "rtca-1-stays-flat", &medians(batch));
        assert_eq!((of(1), of(64)), (Verdict::Agrees, Verdict::Differs));
    }
}
