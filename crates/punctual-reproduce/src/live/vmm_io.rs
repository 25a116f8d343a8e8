//! What applies of vmm-io with real VMs: a guest that is pinged from outside beside guests that burn and
//! receive streams, under every option of Credit and under SEDF.
//!
//! Each configuration is one run in which load is added step by step (`STEPS`). The paper's driver domain
//! is the switch here, on a processor of its own: nothing of it waits behind the guests, and there is no
//! event channel whose ports could be scanned in the wrong order, so the fix is no configuration.

use punctual_model::Histogram;
use punctual_model::results::Results;
use punctual_sched::Duration;
use punctual_sched::{credit, sedf};

use super::{PacketExperiments, chosen, trusted};
use crate::error::Error;
use crate::measures::{mean, number};
use crate::papers::{self, VmmIo};
use crate::reproduction::{Outcome, Table};
use crate::scenario::Scenario;
use crate::target::{LiveOptions, Variant};
use crate::vmm_io::{CONFIGURATIONS, Configuration};

/// The experiments.
pub(crate) const EXPERIMENTS: [&str; 1] = ["ping"];

/// What is added to the load, step by step, and the test of s.5.2 that has the same.
const STEPS: [(&str, Option<u32>); 4] = [
    ("ping x 1", None),
    ("... burn x 3", Some(4)),
    ("... the pinged guest burns", None),
    ("... stream x 2", Some(8)),
];

/// Configurations of a quick run.
const QUICK: [&str; 3] = ["all-off", "tb", "tbs"];

/// Distance of pings.
const PING_MS: u64 = 20;
/// After a step has begun, its pings do.
const SETTLE_MS: u64 = 100;
/// The last ping of a step leaves so long before its end.
const DRAIN_MS: u64 = 200;

/// Runs the experiments.
///
/// # Errors
/// An unknown experiment, or a run that failed, was refused or interrupted; the machine's settings are
/// restored.
pub(crate) fn run(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    run_on(&PacketExperiments::new(options))
}

pub(super) fn run_on(options: &PacketExperiments<'_>) -> Result<Outcome, Error> {
    chosen(options.only, &EXPERIMENTS)?;
    (options.progress)("what scheduling, the switch and guests cost here, undisturbed");
    let costs = options.machine.calibrate("lan")?;
    let (paper, _) = papers::vmm_io();
    let step_ms = if options.quick { 1_000 } else { 2_500 };
    let columns = [
        "configuration",
        "load",
        "live: mean",
        "sd",
        "p99",
        "answered",
        "simulated: mean",
        "sd",
        "p99",
        "paper: mean, ms",
    ];
    let title = "Tests 4 and 8 with real VMs: round trips of pings from outside, in ms";
    let mut pings = Table::new("live-ping", title, &columns);
    let columns =
        ["configuration", "live: each burning guest, %", "streams, Mbit/s", "simulated: each, %", "streams"];
    let mut shares = Table::new("live-shares", "Burning guests and streams of the same runs", &columns);
    let applies: Vec<&Configuration> = configurations(options.quick).collect();
    for (number, configuration) in applies.iter().enumerate() {
        (options.progress)(&format!("{}, run {} of {}", configuration.id, number + 1, applies.len()));
        let scenario = costs.iter().fold(scenario(configuration, step_ms), |s, set| s.set(set.clone()));
        let host = scenario.host()?;
        let live = trusted(options.machine.run_host(&host, Variant::default())?)?;
        let both = [live, scenario.simulate(&host)?];
        for (step, (load, test)) in STEPS.iter().enumerate() {
            pings.rows.push(ping_row(configuration, load, *test, &both, step, &paper));
        }
        let cells = both.iter().flat_map(|results| share_cells(results, step_ms));
        shares.rows.push([configuration.id.to_string()].into_iter().chain(cells).collect());
    }
    pings.notes = notes(step_ms, &costs);
    let mut out = Outcome::default();
    for mut table in [pings, shares] {
        table.native = true;
        out.tables.push(table);
    }
    Ok(out)
}

/// Those of the paper's configurations that a live policy has.
fn configurations(quick: bool) -> impl Iterator<Item = &'static Configuration> {
    // Without event channels `orig` is `tb`, and `sedf` is `sedf-fix`.
    let applies = CONFIGURATIONS.iter().filter(|configuration| configuration.patched);
    applies.filter(move |configuration| !quick || QUICK.contains(&configuration.id))
}

fn scenario(configuration: &Configuration, step_ms: u64) -> Scenario {
    let mut text = String::new();
    for step in 0..STEPS.len() as u64 {
        let start_ms = step * step_ms + SETTLE_MS;
        let count = (step_ms - SETTLE_MS - DRAIN_MS) / PING_MS;
        text += &format!(
            "\n[flow.ping{step}]\nkind = \"request\"\nfrom = \"client\"\nto = \"g1\"\n\
             period = \"{PING_MS}ms\"\nstart = \"{start_ms}ms\"\ncount = {count}\ntimeout = \"10s\"\n"
        );
    }
    for guest in [2, 3] {
        let start_ms = 3 * step_ms;
        text += &format!(
            "\n[flow.stream{guest}]\nkind = \"stream\"\nfrom = \"client\"\nto = \"g{guest}\"\nwindow = 64\n\
             start = \"{start_ms}ms\"\n"
        );
    }
    let duration = Duration::from_ms(STEPS.len() as u64 * step_ms);
    let mut scenario = Scenario::new("vmm-io", "live").duration(duration).append(text);
    for guest in [2, 3, 4] {
        scenario = scenario.set(format!("domain.g{guest}.task.burn.start={step_ms}ms"));
    }
    scenario = scenario.set(format!("domain.g1.task.burn.start={}ms", 2 * step_ms));
    match configuration.policy {
        credit::NAME => scenario
            .set(format!("pool.all.credit.tickle={}", configuration.tickle))
            .set(format!("pool.all.credit.boost={}", configuration.boost))
            .set(format!("pool.all.credit.sort={}", configuration.sort)),
        _ => scenario.set(format!("pool.all.policy={}", sedf::NAME)),
    }
}

fn ping_row(
    configuration: &Configuration,
    load: &str,
    test: Option<u32>,
    [live, simulated]: &[Results; 2],
    step: usize,
    paper: &VmmIo,
) -> Vec<String> {
    let of = |results: &Results| {
        let flow = results.flows.iter().find(|flow| flow.name == format!("ping{step}"));
        flow.map_or_else(Histogram::new, |flow| flow.latency.clone())
    };
    let ms = |time: Duration| number(time.as_ns() as f64 / 1e6);
    let times = |times: &Histogram| [times.mean(), times.stddev(), times.quantile_ppm(990_000)].map(ms);
    let (live, simulated) = (of(live), of(simulated));
    let mut row = vec![configuration.id.to_string(), load.to_string()];
    row.extend(times(&live));
    row.push(live.count().to_string());
    row.extend(times(&simulated));
    let printed = |id: &str| paper.ping.iter().find(|p| Some(p.test) == test && p.configuration == id);
    // Of `tb` the paper prints some with its fix and some without.
    let printed = printed(configuration.id).or_else(|| printed("orig").filter(|_| configuration.id == "tb"));
    row.push(printed.map_or("-".into(), |p| format!("{} ({})", number(p.mean_ms), p.configuration)));
    row
}

/// The share of each burning guest but the pinged one, and the bandwidth of streams while there were some.
fn share_cells(results: &Results, step_ms: u64) -> [String; 2] {
    let burning = results.domains.iter().filter(|domain| ["g2", "g3", "g4"].contains(&domain.name.as_str()));
    let percent = |ns: u64| ns as f64 / results.duration_ns as f64 * 100.0;
    let shares: Vec<String> = burning.map(|domain| number(percent(domain.cpu_time_ns))).collect();
    let streams = results.flows.iter().filter(|flow| flow.name.starts_with("stream"));
    let rate = |bytes: u64| bytes as f64 * 8.0 / (step_ms as f64 * 1e3);
    let rates: Vec<f64> = streams.map(|flow| rate(flow.packets.bytes)).collect();
    [shares.join(", "), number(mean(&rates))]
}

fn notes(step_ms: u64, costs: &[String]) -> Vec<String> {
    vec![
        format!(
            "Each configuration in one run; load is added every {} s. A ping every {PING_MS} ms; the paper's \
             next ping follows the answer.",
            step_ms as f64 / 1e3
        ),
        "The paper's tests 4 and 8 have seven burning guests (8: four, one of them pinged, and three \
         streams), and their driver domain shares the processor. Its 12.3 s of test 4 as shipped come from \
         there."
            .into(),
        "Not here: orig and sedf without the event-channel fix, for the switch has no event channels; \
         tests 1, 5 and 6, streams without burning guests, in which translated guests and not the \
         scheduler are the limit; test 3, which is test 4 with the pinged guest booted last."
            .into(),
        format!("The simulator's costs, measured without load just before: {}.", costs.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_every_configuration_is_valid_and_pings_are_answered_while_nothing_burns() {
        assert_eq!((configurations(false).count(), configurations(true).count()), (9, QUICK.len()));
        for configuration in configurations(false) {
            let scenario = scenario(configuration, 500);
            let results = scenario.simulate(&scenario.host().expect("valid")).expect("simulated");
            let ping = &results.flows[0];
            let expected = (500 - SETTLE_MS - DRAIN_MS) / PING_MS;
            assert_eq!(
                (ping.name.as_str(), ping.latency.count()),
                ("ping0", expected),
                "{}",
                configuration.id
            );
            let burning = share_cells(&results, 500);
            assert!(burning[0].split(", ").all(|share| share.parse::<f64>().expect("a number") > 5.0));
        }
    }
}
