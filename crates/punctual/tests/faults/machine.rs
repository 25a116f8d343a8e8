//! Settings of the whole machine during and after runs.

use std::fs;
use std::time::Duration;

use punctual_linux::preflight::{RT_RUNTIME, rt_limit};

use crate::common::faults::wait;
use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::{Desk, Machine, Scope};

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
