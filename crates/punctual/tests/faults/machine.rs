//! Settings of the whole machine during and after runs.

use std::fs;
use std::time::Duration;

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
