//! RTCA's experiments with real VMs on the project's switch: round trips of an urgent pair beside VMs that
//! flood, and the end-to-end task.
//!
//! Alone and beside alternate within each run, so that whatever else the machine does meets both alike. The
//! simulator's prediction is for the same host with costs that were measured just before without any
//! interference, as the paper's other numbers are predicted (`papers/rtca/calibration.toml`).

use punctual_model::results::Results;
use punctual_model::{Histogram, Host};
use punctual_sched::Duration;
use punctual_sched::credit;
use punctual_sched::servers::deferrable;

use super::{PacketExperiments, chosen, trusted};
use crate::error::Error;
use crate::measures::number;
use crate::papers::{self, Rtca};
use crate::reproduction::{Outcome, Table};
use crate::rtca::{KERNELS, Kernel, LEVELS, ORIGINAL, RTCA};
use crate::scenario::{Scenario, miss_percent};
use crate::target::{LiveOptions, Variant};

/// The experiments, in order.
pub(crate) const EXPERIMENTS: [&str; 2] = ["table1", "fig10"];

/// The noisy VMs.
const NOISY: usize = 3;
/// What a noisy VM would send every millisecond: more than one under translation can.
const BURST: u32 = 64;
/// The level beyond the paper's, at which hosts outside flood the noisy VMs, as fast as this machine's own
/// programs can.
const OUTSIDE: usize = LEVELS.len();
/// After what came before has passed, a block's round trips begin.
const SETTLE_MS: u64 = 100;
/// A block's floods end so long before the next block.
const DRAIN_MS: u64 = 50;

/// Runs the experiments.
///
/// # Errors
/// An unknown experiment, or a run that failed, was refused or interrupted; the machine's settings are
/// restored.
pub(crate) fn run(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    run_on(&PacketExperiments::new(options))
}

pub(super) fn run_on(options: &PacketExperiments<'_>) -> Result<Outcome, Error> {
    let names = chosen(options.only, &EXPERIMENTS)?;
    (options.progress)("what scheduling, the switch and guests cost here, undisturbed");
    let costs = options.machine.calibrate("lan")?;
    let (paper, _) = papers::rtca();
    let mut out = Outcome::default();
    for name in names {
        match name {
            "table1" => out.tables.push(matrix(options, &costs, &paper)?),
            _ => end_to_end(options, &costs, &paper, &mut out)?,
        }
    }
    Ok(out)
}

/// How a run alternates between levels.
struct Blocks {
    block_ms: u64,
    rounds: u64,
    levels: &'static [usize],
}

impl Blocks {
    fn new(quick: bool) -> Blocks {
        if quick {
            Blocks { block_ms: 500, rounds: 2, levels: &[0, 3, OUTSIDE] }
        } else {
            Blocks { block_ms: 1_000, rounds: 3, levels: &[0, 1, 2, 3, OUTSIDE] }
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_ms(self.block_ms * self.rounds * self.levels.len() as u64)
    }

    /// The flows of all blocks, as text of a host file.
    fn flows(&self) -> String {
        let mut text = String::new();
        let mut start_ms = 0;
        for round in 0..self.rounds {
            for &level in self.levels {
                let from_ms = start_ms + SETTLE_MS;
                let count = (self.block_ms - SETTLE_MS - DRAIN_MS) / 10;
                text += &format!(
                    "\n[flow.probe{level}-{round}]\nkind = \"request\"\nfrom = \"d1\"\nto = \"d2\"\n\
                     period = \"10ms\"\nstart = \"{from_ms}ms\"\ncount = {count}\n"
                );
                for noisy in 1..=level.min(NOISY) {
                    let count = self.block_ms - DRAIN_MS;
                    text += &format!(
                        "\n[flow.flood{noisy}-{level}-{round}]\n{}\
                         start = \"{start_ms}ms\"\ncount = {count}\n",
                        flood(noisy, level == OUTSIDE)
                    );
                }
                start_ms += self.block_ms;
            }
        }
        text
    }
}

/// The flood of a noisy VM to the next one, or of a host outside to a noisy VM, as text of a host file. Hosts
/// outside send short frames: the card's bandwidth, which only the simulator has, is not their limit.
fn flood(noisy: usize, outside: bool) -> String {
    let (from, to, bytes) = if outside {
        (format!("h{noisy}"), noisy, 98)
    } else {
        (format!("n{noisy}"), noisy % NOISY + 1, 1514)
    };
    format!(
        "kind = \"periodic\"\nfrom = \"{from}\"\nto = \"n{to}\"\nperiod = \"1ms\"\nburst = {BURST}\n\
         bytes = {bytes}\n"
    )
}

fn level_name(level: usize) -> &'static str {
    LEVELS.get(level).copied().unwrap_or("outside")
}

/// What is compared: a discipline in one plane, and the switch as it comes.
const FORMS: [(&Kernel, bool, &str); 6] = [
    (&KERNELS[0], true, "original"),
    (&KERNELS[1], true, "rtca-1"),
    (&KERNELS[2], true, "rtca-64"),
    (&KERNELS[3], true, "rtca-238"),
    (&KERNELS[4], true, "preemptive"),
    (&KERNELS[4], false, "preemptive, 2 planes"),
];

/// Of these, what a quick run has.
const QUICK: [&str; 3] = ["original", "rtca-1", "preemptive, 2 planes"];

/// Table I: round trips of the urgent pair, alone and beside one, two or three VMs that flood.
fn matrix(options: &PacketExperiments<'_>, costs: &[String], paper: &Rtca) -> Result<Table, Error> {
    let blocks = Blocks::new(options.quick);
    let columns = [
        "kernel",
        "level",
        "live: p50",
        "p99",
        "mean",
        "to base: p50",
        "p99",
        "floods, packets/s",
        "simulated: p50",
        "p99",
        "mean",
        "paper: p50",
        "p95",
    ];
    let title = "Table I with real VMs: round trips in us of an urgent pair beside VMs that flood";
    let mut table = Table::new("live-table1", title, &columns);
    table.native = true;
    let forms: Vec<_> = FORMS.iter().filter(|form| !options.quick || QUICK.contains(&form.2)).collect();
    for (number, &&(kernel, one_plane, name)) in forms.iter().enumerate() {
        (options.progress)(&format!("Table I: {name}, run {} of {}", number + 1, forms.len()));
        let plain = Scenario::new("rtca", "live").duration(blocks.duration()).append(blocks.flows());
        let scenario = costs.iter().fold(kernel.set(plain), |scenario, set| scenario.set(set.clone()));
        let host = scenario.host()?;
        let variant = Variant { one_plane, ..Variant::default() };
        let live = trusted(options.machine.run_host(&host, variant)?)?;
        let simulated = scenario.simulate(&host)?;
        let row = |level: usize| Row { blocks: &blocks, live: &live, simulated: &simulated, level };
        for &level in blocks.levels {
            let mut cells = vec![name.to_string(), level_name(level).into()];
            cells.extend(row(level).cells());
            cells.extend(printed(paper, kernel, level));
            table.rows.push(cells);
        }
    }
    table.notes = notes(&blocks, costs);
    Ok(table)
}

/// A level of a run.
struct Row<'a> {
    blocks: &'a Blocks,
    live: &'a Results,
    simulated: &'a Results,
    level: usize,
}

impl Row<'_> {
    fn cells(&self) -> Vec<String> {
        let [live, base] = [self.level, 0].map(|level| round_trips(self.live, level));
        let simulated = round_trips(self.simulated, self.level);
        let times = |times: &Histogram| [us(times, 500_000), us(times, 990_000), mean_us(times)];
        let ratio = |ppm| us(&live, ppm) / us(&base, ppm).max(f64::MIN_POSITIVE);
        let mut cells: Vec<String> = times(&live).map(number).into();
        cells.extend([500_000, 990_000].map(|ppm| number(ratio(ppm))));
        let flooded = self.live.flows.iter().filter(|flow| is_flood(&flow.name, self.level));
        let flooded: u64 = flooded.map(|flow| flow.packets.delivered).sum();
        let seconds = (self.blocks.block_ms * self.blocks.rounds) as f64 / 1e3;
        cells.push(number(flooded as f64 / seconds));
        cells.extend(times(&simulated).map(number));
        cells
    }
}

fn is_flood(name: &str, level: usize) -> bool {
    name.starts_with("flood") && name.split('-').nth(1).is_some_and(|own| own == level.to_string())
}

/// The round trips of a level, of all its blocks.
fn round_trips(results: &Results, level: usize) -> Histogram {
    let prefix = format!("probe{level}-");
    let mut all = Histogram::new();
    results.flows.iter().filter(|flow| flow.name.starts_with(&prefix)).for_each(|f| all.merge(&f.latency));
    all
}

fn us(times: &Histogram, ppm: u32) -> f64 {
    times.quantile_ppm(ppm).as_ns() as f64 / 1e3
}

fn mean_us(times: &Histogram) -> f64 {
    times.mean().as_ns() as f64 / 1e3
}

/// What the paper prints for a kernel: median and 95 % quantile.
fn printed(paper: &Rtca, kernel: &Kernel, level: usize) -> [String; 2] {
    if level >= LEVELS.len() {
        return ["-", "-"].map(String::from);
    }
    let column = KERNELS.iter().position(|other| other == kernel);
    ["median", "p95"].map(|quantile| {
        let row = paper.table1.row(quantile, level);
        column.and_then(|column| row.get(column)).map_or("-".into(), |value| number(*value))
    })
}

fn notes(blocks: &Blocks, costs: &[String]) -> Vec<String> {
    vec![
        format!(
            "Each kernel in one run, in which levels take turns: {} rounds of blocks of {} ms. In one plane, \
             but for the last kernel.",
            blocks.rounds, blocks.block_ms
        ),
        "The paper has nine noisy domains on three processors and a processor for each of the pair; here \
         three noisy VMs share one processor with the pair, which goes first there. At level outside, \
         hosts outside flood the noisy VMs instead: translated VMs cannot fill the switch."
            .into(),
        format!(
            "The prediction is the simulator's for this host, with costs measured without interference just \
             before: {}.",
            costs.join(", ")
        ),
    ]
}

/// Fig. 10 and Table II: the chain and the periodic tasks, under both policies and kernels.
fn end_to_end(
    options: &PacketExperiments<'_>,
    costs: &[String],
    paper: &Rtca,
    out: &mut Outcome,
) -> Result<(), Error> {
    let columns =
        ["policy", "kernel", "level", "live: median", "max", "missed", "simulated: median", "max", "missed"];
    let title = "Fig. 10 with real VMs: response time / deadline of the end-to-end task";
    let mut ratios = Table::new("live-fig10", title, &columns);
    let columns = ["policy", "kernel", "level", "live: tasks 2, 3, 4", "simulated", "paper"];
    let title = "Table II with real VMs: deadline miss ratio of the periodic tasks, %";
    let mut misses = Table::new("live-table2", title, &columns);
    let seconds = if options.quick { 2 } else { 6 };
    for (name, policy) in [("rt-xen", deferrable::NAME), (credit::NAME, credit::NAME)] {
        for kernel in [&ORIGINAL, &RTCA] {
            for level in [0, NOISY] {
                let head = [name, kernel.id, LEVELS[level]].map(str::to_string);
                (options.progress)(&format!("Fig. 10: {}", head.join(", ")));
                let plain = Scenario::new("rtca", "live")
                    .duration(Duration::from_secs(seconds))
                    .append(chain(level))
                    .set(format!("pool.guests.policy={policy}"));
                let plain = share_out(kernel.set(plain));
                let scenario = costs.iter().fold(plain, |scenario, set| scenario.set(set.clone()));
                let host: Host = scenario.host()?;
                let variant = Variant { one_plane: true, ..Variant::default() };
                let live = trusted(options.machine.run_host(&host, variant)?)?;
                let both = [live, scenario.simulate(&host)?];
                ratios.rows.push(head.iter().cloned().chain(both.iter().flat_map(chain_cells)).collect());
                let paper = paper.table2.cell(*kernel == ORIGINAL, name, level).map(number).join(", ");
                let missed = both.iter().map(tasks_missed);
                misses.rows.push(head.iter().cloned().chain(missed).chain([paper]).collect());
            }
        }
    }
    ratios.notes = vec![format!(
        "Periods are twice the paper's, because both domains share a processor: steps of 2 ms and tasks of \
         1 ms every 20 ms, which is the chain's deadline. {seconds} s each. The paper's curves are in its \
         Fig. 10."
    )];
    for mut table in [ratios, misses] {
        table.native = true;
        out.tables.push(table);
    }
    Ok(())
}

/// The pair and the noisy ones under shares that add up to a processor.
fn share_out(scenario: Scenario) -> Scenario {
    let pair = ["d1", "d2"].into_iter().fold(scenario, |scenario, domain| {
        scenario.set(format!("domain.{domain}.budget=4ms")).set(format!("domain.{domain}.cap_percent=40"))
    });
    (1..=NOISY).fold(pair, |scenario, noisy| {
        scenario.set(format!("domain.n{noisy}.budget=500us")).set(format!("domain.n{noisy}.cap_percent=5"))
    })
}

/// The chain, the tasks and the floods, as text of a host file.
fn chain(level: usize) -> String {
    let mut text = String::from(
        "
[chain.task1]
steps = [\"d1.sense\", \"d2.compute\", \"d1.act\"]
deadline = \"20ms\"
",
    );
    for (task, keys) in [
        ("d1.task.sense", "period = \"20ms\"\ncost = \"2ms\"\npriority = 1"),
        ("d1.task.act", "on_packet = true\ncost = \"2ms\"\ndeadline = \"20ms\"\npriority = 1"),
        ("d1.task.task2", "period = \"20ms\"\ncost = \"1ms\"\npriority = 2"),
        ("d2.task.compute", "on_packet = true\ncost = \"2ms\"\ndeadline = \"20ms\"\npriority = 1"),
        ("d2.task.task3", "period = \"20ms\"\ncost = \"1ms\"\npriority = 2"),
        ("d2.task.task4", "period = \"20ms\"\ncost = \"1ms\"\npriority = 3"),
    ] {
        text += &format!("\n[domain.{task}]\n{keys}\n");
    }
    for noisy in 1..=level {
        text += &format!("\n[flow.flood{noisy}]\n{}", flood(noisy, false));
    }
    text
}

fn chain_cells(results: &Results) -> Vec<String> {
    let Some(chain) = results.chains.first() else { return vec!["-".into(); 3] };
    let ratio = |time: Duration| time.as_ns() as f64 / 20e6;
    let response = &chain.jobs.response;
    let ratios = [response.quantile_ppm(500_000), response.max()].map(|time| number(ratio(time)));
    ratios.into_iter().chain([format!("{} %", number(miss_percent(&chain.jobs)))]).collect()
}

fn tasks_missed(results: &Results) -> String {
    let missed = |name: &str| {
        let task = results.tasks.iter().find(|task| task.name == name);
        task.map_or("-".into(), |task| number(miss_percent(&task.jobs)))
    };
    ["task2", "task3", "task4"].map(missed).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_every_form_is_valid_and_simulated() {
        for quick in [true, false] {
            let blocks = Blocks::new(quick);
            let scenario =
                RTCA.set(Scenario::new("rtca", "live").duration(blocks.duration()).append(blocks.flows()));
            let host = scenario.host().expect("valid");
            let results = scenario.simulate(&host).expect("simulated");
            for &level in blocks.levels {
                let each = (blocks.block_ms - SETTLE_MS - DRAIN_MS) / 10;
                assert_eq!(round_trips(&results, level).count(), each * blocks.rounds, "level {level}");
                let floods = results.flows.iter().filter(|flow| is_flood(&flow.name, level)).count();
                assert_eq!(floods as u64, level.min(NOISY) as u64 * blocks.rounds);
            }
        }
    }

    #[test]
    fn the_chain_takes_its_steps_under_both_policies() {
        for policy in [deferrable::NAME, credit::NAME] {
            let scenario =
                Scenario::new("rtca", "live").append(chain(NOISY)).duration(Duration::from_secs(1));
            let scenario = share_out(scenario.set(format!("pool.guests.policy={policy}")));
            let results = scenario.simulate(&scenario.host().expect("valid")).expect("simulated");
            assert!(results.chains[0].jobs.completed > 10, "{policy}");
            assert!(!tasks_missed(&results).contains('-'), "{policy}");
        }
    }
}
