//! Nautilus: cyclictest in the driver domain under global, partitioned and mixed scheduling.
//!
//! cyclictest sleeps until the next multiple of its interval and notes how late it runs. Its threads are
//! tasks of 10 us here (the tool's own work for a wake-up), and a latency is the time from release to first
//! instruction. What is simulated is the hypervisor's share of it: waiting for a processor, a budget, another
//! vCPU. The guest kernel's own latency, interrupt delivery and the cost of switching on that board are not;
//! the paper's run without a hypervisor shows how much the kernel alone takes.

use punctual_model::{Histogram, Results};
use punctual_sched::Duration;

use crate::error::Error;
use crate::measures::number;
use crate::options::Options;
use crate::papers::{self, Listing, MeasuredLatency, Nautilus};
use crate::reproduction::{Outcome, Table};
use crate::scenario::{Progress, Scenario, as_written, run_all};
#[cfg(feature = "live")]
use crate::target::Target;

/// Domains that burn their processors: their hogs otherwise start after the end of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    ThinDomain,
    Everyone,
}

/// A configuration with the paper's output of it, if printed.
struct Config {
    id: &'static str,
    file: &'static str,
    load: Load,
    listing: Option<&'static str>,
}

const fn config(id: &'static str, file: &'static str, load: Load, listing: Option<&'static str>) -> Config {
    Config { id, file, load, listing }
}

const CONFIGS: [Config; 12] = [
    config("global-default-idle", "global-default", Load::Idle, Some("global-default")),
    config("global-default-loaded", "global-default", Load::ThinDomain, None),
    config("global-default-all-loaded", "global-default", Load::Everyone, None),
    config("global-tuned-idle", "global-tuned", Load::Idle, Some("global-tuned-idle")),
    config("global-tuned-loaded", "global-tuned", Load::ThinDomain, Some("global-tuned-loaded")),
    config("global-tuned-all-loaded", "global-tuned", Load::Everyone, None),
    config("partitioned-idle", "partitioned", Load::Idle, Some("partitioned")),
    config("partitioned-loaded", "partitioned", Load::ThinDomain, None),
    config("partitioned-all-loaded", "partitioned", Load::Everyone, None),
    config("mixed-idle", "mixed", Load::Idle, Some("mixed")),
    config("mixed-loaded", "mixed", Load::ThinDomain, None),
    config("mixed-all-loaded", "mixed", Load::Everyone, None),
];

/// With --quick in Xen, where each takes minutes of an emulator: each way to share processors once, and the
/// tuned one under load.
#[cfg(feature = "live")]
const QUICK_IN_XEN: [&str; 4] =
    ["global-tuned-idle", "global-tuned-loaded", "partitioned-idle", "mixed-idle"];

impl Config {
    fn scenario(&self, quick: bool) -> Scenario {
        let domains: &[&str] = match self.load {
            Load::Idle => &[],
            Load::ThinDomain => &["domain-0"],
            Load::Everyone => &["domain-0", "android"],
        };
        let plain = Scenario::new("nautilus", self.file);
        let plain = if quick { plain.duration(Duration::from_secs(5)) } else { plain };
        domains.iter().fold(plain, |s, d| s.set(format!("domain.{d}.task.*.start=0ns")))
    }
}

struct Measured {
    latency: Histogram,
    unfinished: u64,
    migrations_per_s: f64,
}

/// Runs every configuration idle, with the thin domain loaded, and with the guest loaded as well.
pub(crate) fn run(options: &Options, paper: &Nautilus, progress: Progress<'_>) -> Result<Outcome, Error> {
    let scenarios: Vec<_> = CONFIGS.iter().map(|c| c.scenario(options.quick)).collect();
    let measured = run_all("cyclictest", &scenarios, progress, as_written, |_, results| measure(results))?;
    let mut out = Outcome::default();
    let mut table = Table::new(
        "cyclictest",
        "cyclictest in Domain-D: latency in us",
        &[
            "configuration",
            "paper min",
            "paper avg",
            "paper max",
            "ours min",
            "ours avg",
            "ours max",
            "migrations/s",
            "in Xen avg",
            "in Xen max",
        ],
    );
    let in_xen = papers::nautilus_measured();
    let native = paper.listings.iter().find(|l| l.id == "native");
    native.iter().for_each(|l| table.rows.push(printed_row("no hypervisor", l)));
    for (config, measured) in CONFIGS.iter().zip(&measured) {
        let in_xen = in_xen.get(config.id).ok_or_else(|| Error::Missing(config.id.into()))?;
        add_row(&mut out, &mut table, paper, config, measured, in_xen);
    }
    if let Some([_, avg, max]) = native.map(summary) {
        out.measures.set_one("cyclictest.native.avg_us", avg);
        out.measures.set_one("cyclictest.native.max_us", max);
    }
    table.notes = vec![
        "Paper: least, mean and greatest over the threads it prints. Ours: what the hypervisor's scheduling \
         adds; the guest kernel's own latency (the paper's row without a hypervisor), interrupts and the \
         board's overheads are not in it."
            .into(),
        "loaded: a busy loop on each vCPU of Domain-0; all-loaded: in the Android guest as well.".into(),
        "In Xen: not of this run; recorded in papers/nautilus/measured.toml.".into(),
    ];
    out.tables.push(table);
    Ok(out)
}

/// Carries every configuration out in Xen, with `more` in each host file, beside simulation and paper.
#[cfg(feature = "live")]
pub(crate) fn run_in_xen(
    target: &mut dyn Target,
    more: &'static str,
    quick: bool,
    paper: &Nautilus,
    progress: &dyn Fn(&str),
) -> Result<Outcome, Error> {
    let mut table = Table::new(
        "xen-cyclictest",
        "cyclictest in Domain-D: latency in us",
        &[
            "configuration",
            "paper avg",
            "paper max",
            "simulated avg",
            "simulated p99",
            "simulated max",
            "in Xen avg",
            "in Xen p99",
            "in Xen max",
        ],
    );
    table.native = true;
    let seconds = if quick { 2 } else { 11 };
    for config in CONFIGS.iter().filter(|config| !quick || QUICK_IN_XEN.contains(&config.id)) {
        progress(config.id);
        let scenario = config.scenario(quick).append(more).duration(Duration::from_secs(seconds));
        let host = scenario.host()?;
        let printed = config.listing.and_then(|id| paper.listings.iter().find(|l| l.id == id));
        let mut row = vec![config.id.to_string()];
        row.extend(printed.map_or(["-"; 2].map(String::from), |l| {
            let [_, avg, max] = summary(l);
            [avg, max].map(number)
        }));
        row.extend(latencies(&measure(&scenario.simulate(&host)?)));
        match target.run_host(&host, None) {
            Ok(results) => row.extend(latencies(&measure(&results))),
            Err(Error::Xen(punctual_xen_run::error::Error::Refused(why))) => {
                row.extend(["-"; 3].map(String::from));
                table.notes.push(format!("{}: {why}", config.id));
            }
            Err(error) => return Err(error),
        }
        progress(&row.join(" | "));
        table.rows.push(row);
    }
    table.notes.push(format!(
        "{seconds} s each. The paper's Domain-0 is a guest here; Xen's own has 0.5 ms every 10 ms besides."
    ));
    Ok(Outcome { tables: vec![table], ..Outcome::default() })
}

/// Mean, 99 % quantile and maximum.
#[cfg(feature = "live")]
fn latencies(measured: &Measured) -> [String; 3] {
    let latency = &measured.latency;
    let times = [latency.mean(), latency.quantile_ppm(990_000), latency.max()];
    times.map(|time| number(time.as_ns() as f64 / 1_000.0))
}

fn measure(results: &Results) -> Measured {
    let threads = results.tasks.iter().filter(|t| t.parent == "domain-d");
    let mut latency = Histogram::new();
    let mut unfinished = 0;
    for thread in threads {
        latency.merge(&thread.jobs.start_latency);
        unfinished += thread.jobs.released - thread.jobs.completed;
    }
    let migrations: u64 = results.pools.iter().filter_map(|p| p.migrations).sum();
    let migrations_per_s = migrations as f64 * 1e9 / results.duration_ns as f64;
    Measured { latency, unfinished, migrations_per_s }
}

fn add_row(
    out: &mut Outcome,
    table: &mut Table,
    paper: &Nautilus,
    config: &Config,
    measured: &Measured,
    in_xen: &MeasuredLatency,
) {
    let us = |d: Duration| d.as_ns() as f64 / 1_000.0;
    let (min, avg, max) =
        (us(measured.latency.min()), us(measured.latency.mean()), us(measured.latency.max()));
    let printed = config.listing.and_then(|id| paper.listings.iter().find(|l| l.id == id));
    let mut row = match printed {
        Some(listing) => printed_row(config.id, listing),
        None => printed_row_of(config.id, ["-".into(), "-".into(), "-".into()]),
    };
    row.truncate(4);
    row.extend([min, avg, max, measured.migrations_per_s, in_xen.avg_us, in_xen.max_us].map(number));
    table.rows.push(row);
    let prefix = format!("cyclictest.{}", config.id);
    for (what, value) in [
        ("min_us", min),
        ("avg_us", avg),
        ("max_us", max),
        ("migrations_per_s", measured.migrations_per_s),
        ("unfinished", measured.unfinished as f64),
        ("xen_avg_us", in_xen.avg_us),
        ("xen_p99_us", in_xen.p99_us),
        ("xen_max_us", in_xen.max_us),
    ] {
        out.measures.set_one(format!("{prefix}.{what}"), value);
    }
    if let Some([min, avg, max]) = printed.map(summary) {
        out.measures.set_one(format!("{prefix}.paper_min_us"), min);
        out.measures.set_one(format!("{prefix}.paper_avg_us"), avg);
        out.measures.set_one(format!("{prefix}.paper_max_us"), max);
    }
}

/// Least minimum, mean of the averages, greatest maximum over the threads.
fn summary(listing: &Listing) -> [f64; 3] {
    let (min, _) = crate::measures::range(&listing.min_us);
    let (_, max) = crate::measures::range(&listing.max_us);
    [min, crate::measures::mean(&listing.avg_us), max]
}

fn printed_row(name: &str, listing: &Listing) -> Vec<String> {
    printed_row_of(name, summary(listing).map(number))
}

fn printed_row_of(name: &str, printed: [String; 3]) -> Vec<String> {
    let mut row = vec![name.to_string()];
    row.extend(printed);
    row.extend(["-"; 6].map(String::from));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    /// The averages and maxima of the tuned configurations, with `set` in their host files.
    fn tuned(set: &[&str]) -> Measures {
        let mut measures = Measures::default();
        for config in CONFIGS.iter().filter(|config| config.file == "global-tuned") {
            let scenario = set.iter().fold(config.scenario(true), |scenario, &one| scenario.set(one));
            let measured = measure(&scenario.simulate(&scenario.host().unwrap()).unwrap());
            let us = |time: Duration| time.as_ns() as f64 / 1_000.0;
            measures.set_one(format!("cyclictest.{}.avg_us", config.id), us(measured.latency.mean()));
            measures.set_one(format!("cyclictest.{}.max_us", config.id), us(measured.latency.max()));
            let in_xen = papers::nautilus_measured()[config.id].max_us;
            measures.set_one(format!("cyclictest.{}.xen_max_us", config.id), in_xen);
        }
        measures
    }

    #[test]
    fn a_long_period_of_the_driver_domain_turns_the_claim_about_a_short_one() {
        let claims = papers::nautilus().1;
        let long = ["domain.domain-d.budget=4ms", "domain.domain-d.period=10ms"];
        let of = |set| verdict_on(&claims, "tuned-below-1ms", &tuned(set));
        assert_eq!((of(&[]), of(&long)), (Verdict::Agrees, Verdict::Differs));
    }

    /// The table of `measurements/2026-11-26-xen-reproduce` and `papers/nautilus/measured.toml` have the same
    /// numbers.
    #[test]
    fn latencies_in_xen_are_those_of_the_measurement() {
        let record = include_str!("../../../../measurements/2026-11-26-xen-reproduce/README.md");
        let measured = papers::nautilus_measured();
        assert_eq!(measured.len(), CONFIGS.len());
        for config in &CONFIGS {
            let of = &measured[config.id];
            let [avg, p99, max] = [of.avg_us, of.p99_us, of.max_us].map(number);
            let name = config.id.replace("all-loaded", "all loaded").replace('-', ", ");
            let (first, last) = (format!("| {name} |"), format!("| {avg} | {p99} | {max} |"));
            let found = record.lines().any(|line| line.starts_with(&first) && line.ends_with(&last));
            assert!(found, "no row {first} ... {last}");
        }
    }
}
