//! Settings of the whole machine during and after runs, and processes that outlast a run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use punctual_linux::os::{cgroup, proc};
use punctual_linux::preflight::{RT_RUNTIME, rt_limit};

use crate::common::faults::wait;
use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::{Desk, Machine, Scope};
use crate::locks::machine_wide;

/// The limit for real-time threads before a test, put back after it.
struct LimitBefore(String);

impl LimitBefore {
    /// `None` where the kernel has no limit.
    fn read() -> Option<LimitBefore> {
        if rt_limit().is_none() {
            eprintln!("skipped: this kernel has no limit for real-time threads (Linux 7.2 has none)");
            return None;
        }
        Some(LimitBefore(fs::read_to_string(RT_RUNTIME).expect("readable")))
    }
}

impl Drop for LimitBefore {
    fn drop(&mut self) {
        // The test that failed says more.
        let _ = fs::write(RT_RUNTIME, self.0.trim());
    }
}

/// A limit that no kernel has by default.
const OPERATORS: &str = "960000";

#[test]
fn a_limit_that_an_operator_sets_during_a_run_stays_and_is_said() {
    let Some(_turn) = needs() else { return };
    let Some(before) = LimitBefore::read() else { return };
    for end in ["INT", "KILL"] {
        let (desk, scope) = (Desk::make("operator"), Scope::make("operator"));
        let machine = Machine::start(scope.directory());
        let mut run = desk.start(&["attach", &desk.host("operator", PROCESSOR, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        assert_eq!(rt_limit(), None, "the run has lifted it");
        fs::write(RT_RUNTIME, OPERATORS).expect("root may");
        // The run looks several times a second.
        std::thread::sleep(Duration::from_millis(500));
        let now = || fs::read_to_string(RT_RUNTIME).expect("readable");
        assert_eq!(now().trim(), OPERATORS, "during the run");
        run.signal(end);
        run.wait();
        desk.wait_until_restored();
        assert_eq!(now().trim(), OPERATORS, "{end}: {}", run.said());
        let words = match end {
            "INT" => format!("another program set {RT_RUNTIME} to {OPERATORS} during the run"),
            // The guardian says what it put back.
            _ => format!("{RT_RUNTIME} left at {OPERATORS}, which another program has set"),
        };
        wait("it is said", || run.said().contains(&words));
        assert_eq!(machine.residue(&scope.groups()[0]), None);
        fs::write(RT_RUNTIME, before.0.trim()).expect("root may");
    }
}

#[test]
fn runs_with_different_state_directories_put_the_machine_back_together() {
    let Some(_turn) = needs() else { return };
    let Some(_limit) = LimitBefore::read() else { return };
    let before = machine_wide();
    for (first, end) in [(0, "INT"), (1, "INT"), (0, "KILL"), (1, "KILL")] {
        let (desks, scope) = (["here", "there"].map(Desk::make), Scope::make("directories"));
        let machines = [Machine::start(scope.directory()), Machine::start(scope.directory())];
        let mut runs = Vec::new();
        for (desk, machine) in desks.iter().zip(&machines) {
            let host = desk.host("directories", PROCESSOR, &machine.domain("vm"));
            runs.push(desk.start(&["attach", &host]));
            machine.wait_until_enforced();
        }
        let during = machine_wide();
        assert_ne!(during, before);
        for (nth, run) in [first, 1 - first].into_iter().enumerate() {
            runs[run].signal(end);
            runs[run].wait();
            desks[run].wait_until_restored();
            let expected = if nth == 0 { &during } else { &before };
            assert_eq!(&machine_wide(), expected, "run {first} first, {end}: after run {run}");
            assert_eq!(machines[run].residue(&scope.groups()[0]), None);
        }
        assert_eq!(links_to(&desks), 0, "of runs that are undone");
    }
}

/// How many links name journals in these directories.
fn links_to(desks: &[Desk]) -> usize {
    let links = fs::read_dir("/run/punctual/machine").into_iter().flatten().flatten();
    let journals = links.filter_map(|link| fs::read_link(link.path()).ok());
    journals.filter(|journal| desks.iter().any(|desk| journal.starts_with(desk.state()))).count()
}

/// A group of the freezer of cgroup version 1. What is frozen there cannot be killed.
struct Freezer(PathBuf);

impl Freezer {
    /// `None` where this machine has none.
    fn make(name: &str) -> Option<Freezer> {
        let directory = format!("/sys/fs/cgroup/freezer/test-{name}-{}", std::process::id());
        if fs::create_dir(&directory).is_err() {
            eprintln!("skipped: there is no freezer of cgroup version 1");
            return None;
        }
        Some(Freezer(directory.into()))
    }

    fn freeze(&self, process: i32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("it moves");
        fs::write(self.0.join("freezer.state"), "FROZEN").expect("set");
        let state = || fs::read_to_string(self.0.join("freezer.state")).expect("readable");
        wait("it is frozen", || state().trim() == "FROZEN");
    }

    fn thaw(&self) {
        fs::write(self.0.join("freezer.state"), "THAWED").expect("set");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn a_process_of_the_run_that_cannot_end_is_named_and_ended_by_restore() {
    let Some(_turn) = needs() else { return };
    let Some(freezer) = Freezer::make("frozen") else { return };
    let desk = Desk::make("frozen");
    let domain = "[domain.sleeper]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
                  process = { command = [\"sleep\", \"1000\"] }\n";
    let host = desk.host("frozen", PROCESSOR, domain);
    let mut run = desk.start(&["run", &host, "--as", "process", "--duration", "60s"]);
    let mount = cgroup::mount().expect("mounted");
    let unit = mount.join(format!("punctual-{}/domain0/unit0", run.id()));
    let sleeper = || {
        let threads = cgroup::threads_in(&unit).unwrap_or_default();
        threads.into_iter().find(|tid| proc::name(*tid).is_ok_and(|name| name == "sleep"))
    };
    wait("its domain is in its group", || sleeper().is_some());
    let process = sleeper().expect("it was there");
    freezer.freeze(process);
    run.signal("KILL");
    run.wait();
    let words = format!("process {process} (sleep) was killed and has not ended");
    wait("the guardian names it", || run.said().contains(&words));
    assert!(!desk.left().is_empty(), "the journal stays");
    freezer.thaw();
    wait("it ends", || proc::stat(process).map_or(true, |stat| matches!(stat.state, 'Z' | 'X')));
    let restored = desk.punctual(&["restore"]).output().expect("it runs");
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    assert_eq!(desk.left(), Vec::<String>::new());
    assert!(!unit.exists());
}
