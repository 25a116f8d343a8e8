//! How often the tests say less than "guaranteed" although the simulator finds no miss, by policy and load,
//! as a plot: `cargo run --release -p punctual-analysis --example tightness -- 100 >
//! docs/images/tightness.svg`
//!
//! The number is that of random hosts for each point. No miss found is no proof that there is none, so the
//! curves are upper bounds on what better tests could gain.

use punctual_analysis::analyse;
use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::PoolIx;
use punctual_report::plot::{Axis, Chart, Series, svg};
use punctual_sim::simulate;
use punctual_testkit::hosts::{exact, policy, pooled, server, task, vm};
use punctual_testkit::random::{self, Random, exhausting_offsets, ns, random_offsets};

/// Policies with the processors of their pool.
const CASES: [(&str, usize); 7] = [
    ("deferrable", 1),
    ("periodic", 1),
    ("polling", 1),
    ("sporadic", 1),
    ("rtds", 1),
    ("edf", 2),
    ("fixed-priority", 2),
];

const LOADS: [u64; 8] = [30, 40, 50, 60, 70, 80, 90, 100];

const MS: u64 = 1_000_000;

fn main() {
    let hosts = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let series = CASES.iter().map(|(name, processors)| curve(name, *processors, hosts)).collect();
    let axis = |label: &str, min: f64, max: f64, step: f64| Axis { label: label.into(), min, max, step };
    let chart = Chart {
        title: format!("Hosts without a guarantee that miss nothing ({hosts} hosts a point)"),
        x: axis("load: tasks / budgets, or tasks / processors (%)", 30.0, 100.0, 10.0),
        y: axis("no miss found among those not guaranteed (%)", 0.0, 100.0, 20.0),
        series,
    };
    print!("{}", svg(&chart));
}

/// One policy's points; those without any host that lacks a guarantee are left out.
fn curve(name: &str, processors: usize, hosts: u64) -> Series {
    let mut points = Vec::new();
    for load in LOADS {
        let (mut open, mut quiet) = (0u32, 0u32);
        for case in 0..hosts {
            let mut random = Random::new((load << 32) + case);
            let host = match processors {
                1 => servers(&mut random, name, load),
                _ => tasks(&mut random, name, processors, load),
            };
            if !analyse(&host).all_guaranteed() {
                open += 1;
                quiet += u32::from(!misses(&mut random, &host));
            }
        }
        eprintln!("{name} at {load} %: {open} of {hosts} not guaranteed, {quiet} of these without a miss");
        if open > 0 {
            points.push((load as f64, 100.0 * f64::from(quiet) / f64::from(open)));
        }
    }
    Series { name: name.into(), points }
}

/// Three VMs that share out nine tenths of a processor, with three tasks each that ask for `load` percent of
/// it.
fn servers(random: &mut Random, name: &str, load: u64) -> Host {
    let choice = if name == "rtds" { policy(name) } else { exact(name) };
    let mut host = pooled(1, ns(400 * MS), choice);
    let cut = [random.within(100, 800), random.within(100, 800)];
    let (low, high) = (cut[0].min(cut[1]), cut[0].max(cut[1]));
    let mut periods: Vec<u64> = (0..3).map(|_| random.within(4, 20)).collect();
    periods.sort_unstable();
    for (rank, share) in [low, high - low, 900 - high].into_iter().enumerate() {
        let (period, share) = (periods[rank] * MS, share.max(20));
        let mut params = server(ns(period * share / 1000), ns(period), rank as u32 + 1);
        params.extratime = Some(false);
        let guest = vm(&mut host, params);
        add_tasks(random, &mut host, guest, 3, share * load / 100, (2, 9), period);
    }
    host
}

/// Six tasks that ask for `load` percent of the processors.
fn tasks(random: &mut Random, name: &str, processors: usize, load: u64) -> Host {
    let mut host = pooled(processors, ns(400 * MS), policy(name));
    let share = 10 * load * processors as u64;
    add_tasks(random, &mut host, Parent::Pool(PoolIx(0)), 6, share, (5, 40), MS);
    for task in &mut host.tasks {
        task.params.deadline = Some(ns(random::period_of_work(&task.work)));
    }
    host
}

/// Tasks with `share` thousandths of a processor together and at most 900 each; rate-monotonic.
fn add_tasks(
    random: &mut Random,
    host: &mut Host,
    parent: Parent,
    count: usize,
    share: u64,
    multiple: (u64, u64),
    unit: u64,
) {
    let weights: Vec<u64> = (0..count).map(|_| random.within(1, 10)).collect();
    let sum: u64 = weights.iter().sum();
    let mut periods: Vec<u64> =
        (0..count).map(|_| unit * random.within(10 * multiple.0, 10 * multiple.1) / 10).collect();
    periods.sort_unstable();
    for (rank, (weight, period)) in weights.into_iter().zip(periods).enumerate() {
        let own = (share * weight / sum).min(900);
        task(host, parent, rank as u32 + 1, ns((period * own / 1000).max(1_000)), ns(period));
    }
}

/// Does the simulator find a miss under synchronous, budget-exhausting and random releases?
fn misses(random: &mut Random, host: &Host) -> bool {
    let missed = |host: &Host| {
        let results = simulate(host).expect("a valid host");
        results.tasks.iter().any(|task| task.jobs.missed > 0)
    };
    if missed(host) {
        return true;
    }
    (0..8).any(|attempt| {
        let mut host = host.clone();
        if attempt % 2 == 0 {
            exhausting_offsets(random, &mut host)
        } else {
            random_offsets(random, &mut host)
        }
        missed(&host)
    })
}
