//! Experiments on real machines (real VMs or processes under the live policies, guests of Xen), the same
//! hosts simulated, and the paper's figures, side by side. Shortened to minutes; what is measured there
//! varies from run to run. Here are RT-Xen's, beside them those with packets: [`rtca`], [`vmm_io`].

pub(crate) mod rtca;
pub(crate) mod vmm_io;

use punctual_enforce::session::LinuxScheduler;
use punctual_model::host::Host;
use punctual_model::results::{JobStats, Results};
use punctual_sched::Duration;
use punctual_sched::servers::deferrable;

use crate::error::Error;
use crate::measures::number;
use crate::papers;
use crate::reproduction::{Outcome, Table};
use crate::rt_xen::POLICIES;
use crate::scenario::{MANAGER, Scenario, domain, miss_percent, most_urgent_task, set_utilization};
use crate::target::{LiveOptions, Machine, Target, Variant};

/// The experiments, in order.
pub(crate) const EXPERIMENTS: [&str; 3] = ["fig5", "table2", "fig6"];

/// The seed of the one task set that is used.
const SEED: u64 = 1;
/// What the misconfigured task of Table 2 asks for, in percent (s.5.4).
const OVERLOAD_PERCENT: u64 = 10;
/// A load with more misses than this is beyond the soft real-time capacity (s.5.5).
const SIGNIFICANT_PERCENT: f64 = 5.0;

/// Which experiments, where.
pub(crate) struct Experiments<'a> {
    pub quick: bool,
    pub only: &'a [String],
    pub progress: &'a dyn Fn(&str),
    pub target: &'a mut dyn Target,
}

/// Which experiments with packets, on which machine.
pub(crate) struct PacketExperiments<'a> {
    pub quick: bool,
    pub only: &'a [String],
    pub progress: &'a dyn Fn(&str),
    pub machine: &'a dyn Machine,
}

impl<'a> PacketExperiments<'a> {
    /// On this machine.
    pub(crate) fn new(options: &'a LiveOptions<'_>) -> Self {
        let LiveOptions { quick, only, progress, .. } = options;
        PacketExperiments { quick: *quick, only, progress: *progress, machine: options }
    }
}

/// Runs the experiments on this machine.
///
/// # Errors
/// An unknown experiment, or a run that failed or was refused; the machine's settings are restored.
pub(crate) fn rt_xen(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    let &LiveOptions { quick, ref only, progress, .. } = options;
    Experiments { quick, only, progress, target: &mut ThisMachine { options } }.run()
}

/// Those of the `known` experiments that are wanted: `only` these, or all.
fn chosen(only: &[String], known: &'static [&'static str]) -> Result<Vec<&'static str>, Error> {
    if let Some(other) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::UnknownLiveExperiment { name: other.clone(), known });
    }
    let is_wanted = |name: &&'static str| only.is_empty() || only.iter().any(|only| only == name);
    Ok(known.iter().copied().filter(is_wanted).collect())
}

impl Experiments<'_> {
    /// Runs them.
    ///
    /// # Errors
    /// As [`rt_xen`].
    pub(crate) fn run(&mut self) -> Result<Outcome, Error> {
        let mut out = Outcome::default();
        for name in chosen(self.only, &EXPERIMENTS)? {
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
        let fitted = self.target.fit(plain);
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

impl Target for ThisMachine<'_> {
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

    fn run_host(&mut self, host: &Host, linux: Option<LinuxScheduler>) -> Result<Results, Error> {
        trusted(self.options.run_host(host, Variant { linux, ..Variant::default() })?)
    }
}

/// The results, if no guest failed.
fn trusted(results: Results) -> Result<Results, Error> {
    let mut domains = results.domains.iter();
    if let Some((domain, verdict)) = domains.find_map(|domain| Some((domain, domain.verdict.as_ref()?))) {
        return Err(Error::Guest { domain: domain.name.clone(), verdict: verdict.clone() });
    }
    Ok(results)
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

/// s.5.2, Fig. 5, the 1 ms quantum: at which utilization does the first deadline pass?
fn quantum(experiments: &mut Experiments<'_>) -> Result<Table, Error> {
    let (seconds, column) = (experiments.seconds(), experiments.target.column());
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
        let live = experiments.target.run_host(&host, None)?;
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
    let (seconds, column) = (experiments.seconds(), experiments.target.column());
    let (paper, _) = papers::rt_xen();
    let mut table = Table::new(
        "live-table2",
        &format!("Table 2: deadline miss ratio of each domain in percent, paper | {column} | simulated"),
        &["load", "policy", "d1", "d2", "d3", "d4", "d5"],
    );
    table.native = true;
    let policies = POLICIES.iter().map(|&policy| (policy, None));
    let linux = experiments.target.linux();
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
                set_utilization(&mut host, task, OVERLOAD_PERCENT);
            }
            let live = experiments.target.run_host(&host, linux)?;
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
    let (seconds, column) = (experiments.seconds(), experiments.target.column());
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
        let both = [experiments.target.run_host(&host, None)?, scenario.simulate(&host)?];
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that does exactly what the simulator says, until `runs_max` runs.
    struct Simulated {
        runs: std::cell::Cell<u32>,
        runs_max: u32,
    }

    impl Machine for Simulated {
        fn run_host(&self, host: &Host, _: Variant) -> Result<Results, Error> {
            self.runs.set(self.runs.get() + 1);
            if self.runs.get() > self.runs_max {
                Err(Error::Interrupted)
            } else {
                Ok(punctual_sim::simulate(host).expect("simulated"))
            }
        }

        fn calibrate(&self, network: &str) -> Result<Vec<String>, Error> {
            Ok(vec![format!("network.{network}.costs.guest_wake=500us")])
        }
    }

    /// The outcome, and how many runs there were.
    fn on_a_simulated_machine(
        run: impl Fn(&PacketExperiments<'_>) -> Result<Outcome, Error>,
        only: &[&str],
        runs_max: u32,
    ) -> (Result<Outcome, Error>, u32) {
        let machine = Simulated { runs: std::cell::Cell::new(0), runs_max };
        let only: Vec<String> = only.iter().map(|name| name.to_string()).collect();
        let experiments =
            PacketExperiments { quick: true, only: &only, progress: &|_| (), machine: &machine };
        (run(&experiments), machine.runs.get())
    }

    fn column<'t>(table: &'t Table, name: &str, nth: usize) -> Vec<&'t str> {
        let columns = table.columns.iter().enumerate().filter(|(_, column)| column.ends_with(name));
        let at = columns.map(|(at, _)| at).nth(nth).unwrap_or_else(|| panic!("{name}: {:?}", table.columns));
        table.rows.iter().map(|row| row[at].as_str()).collect()
    }

    #[test]
    fn a_machine_that_does_what_the_simulator_says_shows_the_prediction() {
        let rtca = on_a_simulated_machine(rtca::run_on, &[], u32::MAX).0.expect("results");
        let ids: Vec<&str> = rtca.tables.iter().map(|table| table.id.as_str()).collect();
        assert_eq!(ids, ["live-table1", "live-fig10", "live-table2"]);
        for name in ["p50", "p99", "mean"] {
            let last = if name == "mean" { 1 } else { 2 };
            assert_eq!(column(&rtca.tables[0], name, 0), column(&rtca.tables[0], name, last), "{name}");
        }
        // What interferes with nothing is its own base; the paper's figures stand in their rows.
        assert_eq!((rtca.tables[0].rows[0][5].as_str(), rtca.tables[0].rows[0][1].as_str()), ("1", "base"));
        assert_eq!(column(&rtca.tables[0], "p50", 3)[..3], ["68", "9872", "-"]);
        assert_eq!(column(&rtca.tables[1], "missed", 0), column(&rtca.tables[1], "missed", 1));

        let vmm_io = on_a_simulated_machine(vmm_io::run_on, &[], u32::MAX).0.expect("results");
        assert_eq!(column(&vmm_io.tables[0], "mean", 0), column(&vmm_io.tables[0], "mean", 1));
        assert_eq!(vmm_io.tables[0].rows.len(), 12);
    }

    #[test]
    fn what_cannot_be_carried_out_ends_the_experiments() {
        let (ended, runs) = on_a_simulated_machine(rtca::run_on, &["table1"], 2);
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert_eq!(runs, 3);
        let (unknown, _) = on_a_simulated_machine(vmm_io::run_on, &["fig99"], u32::MAX);
        let text = unknown.map(|_| ()).expect_err("refused").to_string();
        assert!(text.contains("fig99") && text.contains("ping"), "{text}");
    }
}
