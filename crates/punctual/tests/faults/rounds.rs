//! Many rounds at random moments: run, `attach` and its guardian are killed while homes vanish, children are
//! forked and a second `attach` tries to have the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_linux::os::cgroup;
use punctual_linux::partition;
use punctual_linux::preflight::{self, RT_RUNTIME};

use crate::common::faults::{guardian_of, kill_with_guardian, moment, signal_if_there, wait};
use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::{Desk, Machine, Run, Scope};

/// How many rounds: seconds in the gate, minutes with 300, an hour with 5000.
fn rounds() -> u64 {
    std::env::var("PUNCTUAL_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
}

/// What happens while the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// The run starts its domain.
    Run,
    Attach,
    AttachTwice,
    HomeRemoved,
    ForkedChildren,
    /// As `Run` and `Attach`, with an isolated partition.
    IsolatedRun,
    Isolated,
}

/// Those that this machine's kernel permits.
fn scenarios() -> Vec<Scenario> {
    use Scenario::*;
    let mut scenarios = vec![Run, Attach, AttachTwice, HomeRemoved, ForkedChildren];
    let mount = cgroup::mount().expect("mounted");
    match partition::check(&mount, &[PROCESSOR], &preflight::online()) {
        Ok(()) => scenarios.extend([IsolatedRun, Isolated]),
        Err(error) => eprintln!("skipped: isolated partitions: {error}"),
    }
    scenarios
}

/// Who is killed.
const KILLED: [&str; 3] = ["run", "guardian", "both"];

/// What a row of the table counts.
#[derive(Default)]
struct Row {
    rounds: u64,
    /// Rounds in which something was changed when the kill came.
    changed: u64,
    vms_killed: u64,
    residues: Vec<String>,
}

/// One round's setting.
struct Round {
    scenario: Scenario,
    machine: Machine,
    /// The process beside it, without which its home would be empty once it has left.
    other: Option<Machine>,
    /// Removed when nobody is in it any more.
    scope: Scope,
    desk: Desk,
    /// The groups of runs that were there before, of others and of those that nobody undid.
    groups_before: Vec<String>,
}

/// The groups of runs below the mount.
fn groups_of_runs() -> Vec<String> {
    let mount = std::fs::read_dir(cgroup::mount().expect("mounted")).expect("readable");
    let names = mount.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("punctual-")).collect()
}

impl Round {
    fn prepare(scenario: Scenario) -> Round {
        let (desk, mut scope) = (Desk::make("rounds"), Scope::make("rounds"));
        let machine = Machine::start(scope.directory());
        let other = (scenario == Scenario::HomeRemoved).then(|| {
            let group = scope.directory().join("other");
            std::fs::create_dir(&group).expect("a group");
            Machine::start(&group)
        });
        scope.watch();
        Round { scenario, machine, other, scope, desk, groups_before: groups_of_runs() }
    }

    fn start(&self) -> Run {
        let isolates = matches!(self.scenario, Scenario::IsolatedRun | Scenario::Isolated);
        let isolate = isolates.then_some("--isolate");
        let options = |of: &[&'static str]| of.iter().copied().chain(isolate).collect::<Vec<_>>();
        match self.scenario {
            Scenario::Run | Scenario::IsolatedRun => {
                let process = "process = { command = [\"sleep\", \"1000\"] }";
                let domain =
                    format!("[domain.vm]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n{process}\n");
                let host = self.desk.host("rounds", 1, &domain);
                let more = options(&["--as", "process", "--duration", "60s"]);
                self.desk.start(&[&["run", &host], &more[..]].concat())
            }
            _ => {
                let host = self.desk.host("rounds", 1, &self.machine.domain("vm"));
                self.desk.start(&[&["attach", &host], &options(&[])[..]].concat())
            }
        }
    }

    /// Lets happen what the scenario says, until the moment of the kill.
    fn happen(&mut self, moment: Duration) -> Option<Run> {
        let half = moment / 2;
        std::thread::sleep(half);
        let mut second = None;
        match self.scenario {
            Scenario::Run | Scenario::Attach | Scenario::IsolatedRun | Scenario::Isolated => {}
            Scenario::AttachTwice => {
                let host = self.desk.host("second", 0, &self.machine.domain("vm"));
                second = Some(self.desk.start(&["attach", &host]));
            }
            Scenario::HomeRemoved => self.other = None,
            Scenario::ForkedChildren => {
                self.machine.fork();
            }
        }
        std::thread::sleep(half);
        if self.scenario == Scenario::ForkedChildren {
            self.machine.fork();
        }
        second
    }

    /// What is not as it was.
    fn residue(&self, rt_runtime: &str) -> Option<String> {
        let [scope, slice] = self.scope.groups();
        let homes = if self.scope.directory().exists() { [&scope, &scope] } else { [&slice, &scope] };
        let residue = self.machine.residue(homes[0]);
        let limit = std::fs::read_to_string(RT_RUNTIME).expect("readable");
        residue
            .or_else(|| (limit != rt_runtime).then(|| format!("the real-time limit is {limit}")))
            .or_else(|| self.desk.left().first().map(|left| format!("{left} is left")))
            .or_else(|| {
                let left = groups_of_runs().into_iter().find(|name| !self.groups_before.contains(name));
                left.map(|name| format!("group {name} is left"))
            })
    }
}

/// Kills at once; returns whether a `restore` is needed.
fn kill(run: &mut Run, who: &str) {
    let guardian = guardian_of(run.id());
    match (who, guardian) {
        // A run that was refused, or ends by itself, takes its guardian with it.
        ("guardian", Some(guardian)) => {
            signal_if_there(guardian, "KILL");
        }
        ("both", Some(_)) => kill_with_guardian(run.id()),
        _ => run.signal("KILL"),
    }
    run.wait();
    if let Some(guardian) = guardian.filter(|_| who == "both") {
        wait("the guardian ends", || !Path::new(&format!("/proc/{guardian}")).exists());
    }
}

/// How long `attach` takes on this machine until what it attaches to is under enforcement.
fn until_enforced() -> Duration {
    let round = Round::prepare(Scenario::Attach);
    let start = Instant::now();
    let mut run = round.start();
    round.machine.wait_until_enforced();
    let took = start.elapsed();
    run.signal("INT");
    run.wait();
    took
}

fn round(number: u64, until_enforced: Duration, scenario: Scenario, who: &str, row: &mut Row) {
    let rt_runtime = std::fs::read_to_string(RT_RUNTIME).expect("readable");
    let mut round = Round::prepare(scenario);
    let mut run = round.start();
    let second = round.happen(moment(number, until_enforced));
    row.rounds += 1;
    row.changed += u64::from(round.desk.has_change());
    kill(&mut run, who);
    if let Some(mut second) = second {
        // The one that came later was refused, or has it now.
        second.signal("INT");
        second.wait();
    }
    let restored = round.desk.punctual(&["restore"]).output().expect("it runs");
    if restored.status.code() != Some(0) {
        row.residues.push(format!("round {number}: {}", String::from_utf8_lossy(&restored.stderr)));
    }
    row.vms_killed += u64::from(!round.machine.is_alive());
    if let Some(residue) = round.residue(&rt_runtime) {
        row.residues.push(format!("round {number}: {residue}; {}", run.said()));
    }
}

#[test]
fn an_isolated_pool_is_refused_where_the_kernel_has_no_partitions() {
    let Some(_turn) = needs() else { return };
    let mount = cgroup::mount().expect("mounted");
    let Err(error) = partition::check(&mount, &[PROCESSOR], &preflight::online()) else {
        return eprintln!("skipped: this kernel has isolated partitions");
    };
    let round = Round::prepare(Scenario::Isolated);
    let mut run = round.start();
    assert_eq!(run.wait(), 2, "{}", run.said());
    assert!(run.said().contains(&format!("`isolate`: {error}")), "{}", run.said());
    let rt_runtime = std::fs::read_to_string(RT_RUNTIME).expect("readable");
    assert_eq!(round.residue(&rt_runtime), None);
}

#[test]
fn killed_at_random_moments_no_vm_dies_and_nothing_is_left() {
    let Some(_turn) = needs() else { return };
    let until_enforced = until_enforced();
    println!("a run takes {until_enforced:.1?} until it has changed everything");
    let scenarios = scenarios();
    let mut table: BTreeMap<(usize, &str), Row> = BTreeMap::new();
    for number in 0..rounds() {
        let at = (number % scenarios.len() as u64) as usize;
        let who = KILLED[(number / scenarios.len() as u64 % KILLED.len() as u64) as usize];
        round(number, until_enforced, scenarios[at], who, table.entry((at, who)).or_default());
    }
    println!("{:<16} {:<9} rounds changed VMs-killed residues", "scenario", "killed");
    for ((at, who), row) in &table {
        let name = format!("{:?}", scenarios[*at]);
        let Row { rounds, changed, vms_killed, residues } = row;
        println!("{name:<16} {who:<9} {rounds:>6} {changed:>7} {vms_killed:>10} {:>8}", residues.len());
    }
    let residues: Vec<&String> = table.values().flat_map(|row| &row.residues).collect();
    assert_eq!(residues, Vec::<&String>::new());
    assert_eq!(table.values().map(|row| row.vms_killed).sum::<u64>(), 0);
    assert!(table.values().any(|row| row.changed > 0), "nothing was changed when the kills came");
}
