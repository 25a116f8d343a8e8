//! RT-Xen's experiments on real machines (real VMs or processes under the live policies, guests of Xen), the
//! same hosts simulated, and the paper's figures, side by side. Shortened to minutes; what is measured there
//! varies from run to run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use punctual_live::Stop;
use punctual_live::driver::Settings;
use punctual_live::run::{DefaultBackend, RunOptions};
use punctual_live::session::LinuxScheduler;
use punctual_model::host::Host;
use punctual_model::results::{JobStats, Results};
use punctual_sched::Duration;
use punctual_sched::servers::deferrable;

use crate::measures::number;
use crate::papers;
use crate::rt_xen::POLICIES;
use crate::scenario::{Scenario, domain, miss_percent, most_urgent_task, set_utilisation};
use crate::xen::MANAGER;
use crate::{Error, Outcome, Table};

/// How to carry the experiments out.
pub struct LiveOptions<'a> {
    /// VMs or processes.
    pub default_backend: DefaultBackend,
    /// Shorter runs, fewer points.
    pub quick: bool,
    /// Only these experiments, by name ([`EXPERIMENTS`]); empty means all.
    pub only: Vec<String>,
    /// This program, for the guardian.
    pub program: PathBuf,
    /// Told what is going on.
    pub progress: &'a dyn Fn(&str),
    /// Should everything end?
    pub stop: Stop,
    /// Ends this process, when a guardian asks for the end of a run.
    pub end: fn() -> !,
}

/// The experiments, in order.
pub const EXPERIMENTS: [&str; 3] = ["fig5", "table2", "fig6"];

/// The seed of the one task set that is used.
const SEED: u64 = 1;
/// What the misconfigured task of Table 2 asks for, in percent (s.5.4).
const OVERLOAD_PERCENT: u64 = 10;
/// A load with more misses than this is beyond the soft real-time capacity (s.5.5).
const SIGNIFICANT_PERCENT: f64 = 5.0;

/// Where experiments are carried out.
pub(crate) trait Place {
    /// The heading of its column.
    fn column(&self) -> &'static str;

    /// A scenario as it can be carried out there.
    fn fit(&self, scenario: Scenario) -> Scenario;

    /// Schedulers of the place itself, which Table 2 has beside the policies.
    fn linux(&self) -> Vec<(&'static str, LinuxScheduler)>;

    /// Carries a host out, under a scheduler of the place itself if one is given.
    ///
    /// # Errors
    /// It failed or was refused; the machine is as it was.
    fn carry_out(&mut self, host: &Host, linux: Option<LinuxScheduler>) -> Result<Results, Error>;
}

/// Which experiments, where.
pub(crate) struct Experiments<'a> {
    pub quick: bool,
    pub only: &'a [String],
    pub progress: &'a dyn Fn(&str),
    pub place: &'a mut dyn Place,
}

/// Runs the experiments on this machine.
///
/// # Errors
/// An unknown experiment, or a run that failed or was refused; the machine is as it was.
pub fn rt_xen(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    Experiments {
        quick: options.quick,
        only: &options.only,
        progress: options.progress,
        place: &mut ThisMachine { options },
    }
    .run()
}

impl Experiments<'_> {
    /// Runs them.
    ///
    /// # Errors
    /// As [`rt_xen`].
    pub fn run(&mut self) -> Result<Outcome, Error> {
        if let Some(other) = self.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
            return Err(Error::UnknownLiveExperiment { name: other.clone(), known: &EXPERIMENTS });
        }
        let mut out = Outcome::default();
        for name in EXPERIMENTS {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            out.tables.push(match name {
                "fig5" => quantum(self)?,
                "table2" => isolation(self)?,
                _ => capacity(self)?,
            });
        }
        Ok(out)
    }

    fn scenario(&self, name: &str, policy: Option<&'static str>) -> Scenario {
        let plain = Scenario::new("rt-xen", name).seed(SEED).duration(Duration::from_secs(self.seconds()));
        let fitted = self.place.fit(plain);
        match policy {
            Some(policy) => fitted.policy(policy),
            None => fitted,
        }
    }

    /// How long a point takes.
    fn seconds(&self) -> u64 {
        if self.quick { 3 } else { 10 }
    }
}

/// Real VMs or processes under the live policies.
struct ThisMachine<'a> {
    options: &'a LiveOptions<'a>,
}

impl Place for ThisMachine<'_> {
    fn column(&self) -> &'static str {
        "live"
    }

    /// Processor 0 stays with the host.
    fn fit(&self, scenario: Scenario) -> Scenario {
        scenario.set("machine.processors=2").set("pool.guests.processors=[1]")
    }

    fn linux(&self) -> Vec<(&'static str, LinuxScheduler)> {
        LinuxScheduler::ALL.into()
    }

    fn carry_out(&mut self, host: &Host, linux: Option<LinuxScheduler>) -> Result<Results, Error> {
        let options = self.options;
        let quiet = |_: &str| {};
        let run_options = RunOptions {
            program: options.program.clone(),
            default_backend: options.default_backend,
            guest_programs: &[],
            interfaces: Vec::new(),
            outside: Vec::new(),
            sockets: Vec::new(),
            linux,
            starve: false,
            silence: StdDuration::from_secs(2),
            driver: Settings::default(),
            boot: StdDuration::from_secs(60),
            changes: Vec::new(),
            trace: false,
            progress: &quiet,
            stop: options.stop,
            end: options.end,
            restored: Arc::default(),
            watch: &mut |_| {},
        };
        let outcome = punctual_live::run::run(host, run_options)?;
        if outcome.stopped {
            return Err(Error::Interrupted);
        }
        let mut domains = outcome.results.domains.iter();
        if let Some((domain, verdict)) = domains.find_map(|domain| Some((domain, domain.verdict.as_ref()?))) {
            return Err(Error::Guest { domain: domain.name.clone(), verdict: verdict.clone() });
        }
        Ok(outcome.results)
    }
}

/// Jobs of the paper's domains that were missed, in percent.
fn missed(results: &Results) -> f64 {
    let mut sum = JobStats::default();
    for domain in results.domains.iter().filter(|domain| domain.name != MANAGER) {
        sum.due += domain.jobs.due;
        sum.missed += domain.jobs.missed;
    }
    miss_percent(&sum)
}

fn missed_by(results: &Results, name: &str) -> f64 {
    let found = results.domains.iter().find(|domain| domain.name == name);
    found.map_or(0.0, |domain| miss_percent(&domain.jobs))
}

/// s.5.2, Fig. 5, the 1 ms quantum: at which utilisation does the first deadline pass?
fn quantum(experiments: &mut Experiments<'_>) -> Result<Table, Error> {
    let (seconds, column) = (experiments.seconds(), experiments.place.column());
    let mut table = Table::new(
        "live-fig5",
        "Fig. 5, quantum 1 ms: share of missed deadlines of domain 1 beside a busy loop, by its task's cost",
        &["cost (% of the period)", column, "simulated"],
    );
    table.native = true;
    let costs: &[u64] = if experiments.quick { &[40, 46, 50] } else { &[40, 42, 44, 45, 46, 47, 48, 49, 50] };
    let mut first = None;
    for &cost in costs {
        (experiments.progress)(&format!("Fig. 5: cost {cost} ms in 100 ms"));
        let scenario =
            experiments.scenario("quantum-1ms", None).set(format!("domain.d1.task.work.cost={cost}ms"));
        let host = scenario.host()?;
        let live = experiments.place.carry_out(&host, None)?;
        let simulated = scenario.simulate(&host)?;
        let miss = |results: &Results| missed_by(results, "d1");
        if miss(&live) > 0.0 && first.is_none() {
            first = Some(cost);
        }
        table.rows.push(vec![format!("{cost}"), number(miss(&live)), number(miss(&simulated))]);
    }
    let (paper, _) = papers::rt_xen();
    let printed = paper.figure5.iter().find(|first| first.quantum_us == 1000);
    let printed = printed.map_or("-".into(), |first| format!("{} %", first.first_miss_percent));
    let ours = first.map_or("none up to the last row".into(), |cost| format!("{cost} %"));
    table.notes = vec![format!("First miss: paper says {printed}, {column} {ours}. {seconds} s a point.")];
    Ok(table)
}

/// s.5.4, Table 2: does an overloaded domain disturb the others? Also under today's Linux.
fn isolation(experiments: &mut Experiments<'_>) -> Result<Table, Error> {
    let (seconds, column) = (experiments.seconds(), experiments.place.column());
    let (paper, _) = papers::rt_xen();
    let mut table = Table::new(
        "live-table2",
        &format!("Table 2: deadline miss ratio of each domain in percent, paper | {column} | simulated"),
        &["load", "policy", "d1", "d2", "d3", "d4", "d5"],
    );
    table.native = true;
    let policies = POLICIES.iter().map(|&policy| (policy, None));
    let linux = experiments.place.linux();
    let plain = linux.iter().map(|&(name, linux)| (name, Some(linux)));
    let rows: Vec<(&'static str, Option<LinuxScheduler>)> = policies.chain(plain).collect();
    for overloaded in [false, true] {
        let load = if overloaded { "overloaded" } else { "normal" };
        let printed = if overloaded { &paper.table2.overloaded } else { &paper.table2.normal };
        for &(name, linux) in &rows {
            (experiments.progress)(&format!("Table 2, {load}: {name}"));
            let scenario = experiments.scenario("even", linux.is_none().then_some(name));
            let mut host = scenario.host()?;
            if overloaded {
                let d3 = domain(&host, "d3")?;
                let task = most_urgent_task(&host, d3)
                    .ok_or_else(|| Error::Missing("domain d3 has no periodic task".into()))?;
                set_utilisation(&mut host, task, OVERLOAD_PERCENT);
            }
            let live = experiments.place.carry_out(&host, linux)?;
            let simulated = match linux {
                None => Some(scenario.simulate(&host)?),
                Some(_) => None,
            };
            let mut row = vec![load.to_string(), name.to_string()];
            for (index, domain) in ["d1", "d2", "d3", "d4", "d5"].into_iter().enumerate() {
                let miss = |results: &Results| number(missed_by(results, domain));
                let paper = printed.row(name).map_or("-".into(), |row| number(row[index]));
                let simulated = simulated.as_ref().map_or("-".into(), miss);
                row.push(format!("{paper} | {} | {simulated}", miss(&live)));
            }
            table.rows.push(row);
        }
    }
    table.notes = vec![format!(
        "One task set by the paper's recipe at 70 % load, seed {SEED}, {seconds} s each; paper: 2 minutes of \
         its own."
    )];
    if !linux.is_empty() {
        let note = "linux-fifo has the servers' priorities and no budgets; linux-deadline may use all \
                    processors of the machine.";
        table.notes.push(note.into());
    }
    Ok(table)
}

/// s.5.5, Fig. 6, the even share under the deferrable server: misses by load.
fn capacity(experiments: &mut Experiments<'_>) -> Result<Table, Error> {
    let (seconds, column) = (experiments.seconds(), experiments.place.column());
    let mut table = Table::new(
        "live-fig6",
        "Fig. 6, even share, deferrable server: deadline miss ratio of all domains in percent, by load",
        &["load", column, "simulated"],
    );
    table.native = true;
    let loads: &[u64] = if experiments.quick { &[60, 80, 100] } else { &[50, 60, 70, 80, 85, 90, 95, 100] };
    let mut within = [None, None];
    for &load in loads {
        (experiments.progress)(&format!("Fig. 6: load {load} %"));
        let mut scenario = experiments.scenario("even", Some(deferrable::NAME));
        for domain in 1..=5 {
            scenario = scenario.set(format!("domain.d{domain}.generate.load={load}%"));
        }
        let host = scenario.host()?;
        let both = [experiments.place.carry_out(&host, None)?, scenario.simulate(&host)?];
        let misses = both.map(|results| missed(&results));
        for (capacity, miss) in within.iter_mut().zip(misses) {
            if miss <= SIGNIFICANT_PERCENT {
                *capacity = Some(load);
            }
        }
        table.rows.push(vec![format!("{load}"), number(misses[0]), number(misses[1])]);
    }
    let shown = |capacity: Option<u64>| capacity.map_or("none".into(), |load| format!("{load} %"));
    table.notes = vec![format!(
        "Greatest load of this table with at most 5 % missed: {column} {}, simulated {}. {seconds} s and one \
         task set a point; the paper's curve is in its Fig. 6.",
        shown(within[0]),
        shown(within[1])
    )];
    Ok(table)
}
