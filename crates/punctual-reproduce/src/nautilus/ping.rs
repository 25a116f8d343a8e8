//! Nautilus: ping latency through the driver domain under Credit, RTDS partitioned and RTDS global, at four
//! loads.

use punctual_model::Histogram;
use punctual_model::results::Results;
use punctual_sched::Duration;
use punctual_sched::credit;

use crate::error::Error;
use crate::measures::number;
use crate::options::Options;
use crate::papers::{Nautilus, RoundTrips};
use crate::reproduction::{Figure, Outcome, Series, Table};
use crate::scenario::{Progress, Scenario, as_written, run_all};

/// Which tasks burn: none, the thin domain, also one of the driver domain, two of them.
const LOADS: [(&str, &[&str]); 4] = [
    ("idle", &[]),
    ("30", &["domain-0.task.load0", "domain-0.task.load1"]),
    ("60", &["domain-0.task.load0", "domain-0.task.load1", "domain-d.task.load0"]),
    ("75", &["domain-0.task.load0", "domain-0.task.load1", "domain-d.task.load0", "domain-d.task.load1"]),
];

const SCHEDULERS: [&str; 3] = [credit::NAME, "partitioned", "global"];

fn scenario(scheduler: &str, load: &[&str], quick: bool) -> Scenario {
    let mut scenario = Scenario::new("nautilus", "ping");
    if scheduler == credit::NAME {
        scenario = scenario.policy(credit::NAME);
    }
    if scheduler != "partitioned" {
        for domain in ["domain-0", "domain-d", "android"] {
            for vcpu in 0..2 {
                scenario = scenario.set(format!("domain.{domain}.vcpu.{vcpu}.affinity=[0, 1]"));
            }
        }
    }
    for task in load {
        scenario = scenario.set(format!("domain.{task}.start=0s"));
    }
    if quick { scenario.duration(Duration::from_secs(4)) } else { scenario }
}

/// What a run showed: round trips, and requests without an answer.
fn measure(results: &Results) -> (Histogram, u64) {
    let flow = &results.flows[0];
    // A request and its answer are two packets.
    (flow.latency.clone(), flow.packets.created.saturating_sub(2 * flow.latency.count()))
}

const COLUMNS: [&str; 10] = [
    "scheduler",
    "load",
    "mean, ms",
    "50 %",
    "99 %",
    "max",
    "within 1 ms",
    "within 10 ms",
    "no answer",
    "paper, ms",
];

/// Runs the three schedulers at the four loads.
pub(crate) fn run(options: &Options, paper: &Nautilus, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut scenarios = Vec::new();
    for scheduler in SCHEDULERS {
        scenarios.extend(LOADS.iter().map(|(_, load)| scenario(scheduler, load, options.quick)));
    }
    scenarios.push(scenario("global", LOADS[2].1, options.quick).set("domain.domain-d.task.most.offset=0s"));
    let all = run_all("ping", &scenarios, progress, as_written, |_, results| measure(results))?;
    let mut out = Outcome::default();
    let mut table = Table::new("ping", "Ping latency through the driver domain", &COLUMNS);
    let mut series = Vec::new();
    for (scheduler, runs) in SCHEDULERS.iter().zip(all.chunks(LOADS.len())) {
        for (at, ((load, _), (latency, lost))) in LOADS.iter().zip(runs).enumerate() {
            let mut row = vec![scheduler.to_string(), load.to_string()];
            row.extend(measures(&mut out, &format!("ping.{scheduler}.{load}"), latency, *lost));
            row.push(printed(&paper.round_trips, scheduler, at));
            table.rows.push(row);
            series.push(curve(format!("{scheduler}, {load}"), latency));
        }
    }
    if let [.., (latency, lost)] = &all[..] {
        let mut row = vec!["global".to_string(), "60 and a task of 90 %".into()];
        row.extend(measures(&mut out, "ping.global.most", latency, *lost));
        row.push("-".into());
        table.rows.push(row);
    }
    table.notes = vec![
        "100 pings each, as in the paper; a domain has two vCPUs. Partitioned: the driver domain on \
         processor 1, the others on processor 0."
            .into(),
        "The last row is 75 with a task in the driver domain that asks for 90 % of a processor in place of \
         one that burns."
            .into(),
        "The paper measures from netback to the answer under Credit, from the host under RTDS; here always \
         from the PC and back."
            .into(),
        "The lines of the paper's table for Credit have no names; its table for global scheduling has no \
         numbers."
            .into(),
    ];
    out.tables.push(table);
    out.figures.push(Figure {
        id: "ping".into(),
        title: "Nautilus: ping latency".into(),
        x: "round trip (ms)".into(),
        y: "share of pings (%)".into(),
        series,
    });
    Ok(out)
}

/// Adds the measures of a run and returns its columns.
fn measures(out: &mut Outcome, prefix: &str, latency: &Histogram, lost: u64) -> Vec<String> {
    let values = [
        ("mean_ms", ms(latency.mean())),
        ("p50_ms", ms(latency.quantile_ppm(500_000))),
        ("p99_ms", ms(latency.quantile_ppm(990_000))),
        ("max_ms", ms(latency.max())),
        ("within_1ms_percent", within_percent(latency, 1)),
        ("within_10ms_percent", within_percent(latency, 10)),
    ];
    let mut row = Vec::new();
    for (name, value) in values {
        out.measures.set_one(format!("{prefix}.{name}"), value);
        let unit = if name.ends_with("percent") { " %" } else { "" };
        row.push(format!("{}{unit}", number(value)));
    }
    out.measures.set_one(format!("{prefix}.min_ms"), ms(latency.min()));
    out.measures.set_one(format!("{prefix}.lost"), lost as f64);
    row.push(lost.to_string());
    row
}

fn ms(time: Duration) -> f64 {
    time.as_ns() as f64 / 1e6
}

/// The distribution as a curve: every fifth percentile.
fn curve(name: String, latency: &Histogram) -> Series {
    let point = |percent: u32| {
        let y = f64::from(percent);
        [ms(latency.quantile_ppm(percent * 10_000)), y, y, y]
    };
    Series { name, points: (1..20).map(|i| point(5 * i)).collect() }
}

/// How many of the answers came in less than `limit` ms.
fn within_percent(latency: &Histogram, limit: u64) -> f64 {
    let limit = limit * 1_000_000;
    let within: u64 = latency.ranges_ns().filter(|(_, high, _)| *high < limit).map(|(_, _, n)| n).sum();
    100.0 * within as f64 / latency.count().max(1) as f64
}

/// What the paper's tables have for the load.
fn printed(paper: &RoundTrips, scheduler: &str, load: usize) -> String {
    match scheduler {
        credit::NAME => paper.credit_ms.map(|line| number(line[load])).join(", "),
        "partitioned" => {
            let [mean, max] = [paper.partitioned_mean_ms[load], paper.partitioned_max_ms[load]].map(number);
            format!("mean {mean}, most {max}")
        }
        _ => "-".into(),
    }
}
