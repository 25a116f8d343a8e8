//! Experiments in guests of a real Xen with Punctual's scheduler, from its domain 0.

use std::path::Path;

use punctual_enforce::session::LinuxScheduler;
use punctual_linux::Stop;
use punctual_model::Host;
use punctual_model::Results;
use punctual_xen_run::control::Control;
use punctual_xen_run::error::Error as XenError;
use punctual_xen_run::run::{self, RunOptions};

use crate::error::Error;
use crate::live::Experiments;
use crate::nautilus::cyclictest;
use crate::papers;
use crate::reproduction::Outcome;
use crate::scenario::Scenario;
use crate::target::Target;

/// What it may have of the processor: above all others, for it has none of its own here.
const MANAGER_MAY: &str = r#"
[domain.Domain-0]
pool = "guests"
budget = "500us"
period = "10ms"
priority = 0
weight = 4096
cap_percent = 0
extratime = false

[domain.Domain-0.task.tools]
period = "1s"
cost = "1us"
"#;

/// What it may have beside the domains of Nautilus, on any processor: Domain-D has the whole of one if it
/// wants (400 us every 400 us), and a guest whose console is full asks for the processor again and again
/// until domain 0 has read it.
const MANAGER_OF_NAUTILUS: &str = r#"
[domain.Domain-0]
pool = "pool-0"
budget = "500us"
period = "10ms"
weight = 4096
cap_percent = 0
extratime = false

[domain.Domain-0.task.tools]
period = "1s"
cost = "1us"
"#;

/// How to carry the experiments out.
pub struct XenOptions<'a> {
    /// The scheduler in Xen.
    pub control: &'a mut Control,
    /// The Linux kernel of the guests.
    pub kernel: &'a Path,
    /// Memory of a guest.
    pub memory_mib: u32,
    /// Shorter runs, fewer points.
    pub quick: bool,
    /// Only these experiments, by name (`live::EXPERIMENTS`); empty means all.
    pub only: Vec<String>,
    /// Told what is going on.
    pub progress: &'a dyn Fn(&str),
    /// Should everything end?
    pub stop: Stop,
}

/// Runs RT-Xen's experiments.
///
/// # Errors
/// An unknown experiment, or a run that failed or was refused; Xen is as it was.
pub(crate) fn rt_xen(options: &mut XenOptions<'_>) -> Result<Outcome, Error> {
    let (quick, only, progress) = (options.quick, options.only.clone(), options.progress);
    let mut outcome = Experiments { quick, only: &only, progress, target: &mut InXen { options } }.run()?;
    for table in &mut outcome.tables {
        table.notes.push(
            "Domain 0 shares the processor with the guests (0.5 ms every 10 ms at most, above all others); \
             the paper gave it one of its own."
                .into(),
        );
    }
    Ok(outcome)
}

/// Runs cyclictest in the domains of Nautilus.
///
/// # Errors
/// As [`rt_xen`].
pub(crate) fn nautilus(options: &mut XenOptions<'_>) -> Result<Outcome, Error> {
    const EXPERIMENTS: [&str; 1] = ["cyclictest"];
    if let Some(other) = options.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
        return Err(Error::UnknownLiveExperiment { name: other.clone(), known: &EXPERIMENTS });
    }
    let (paper, _) = papers::nautilus();
    let (quick, progress) = (options.quick, options.progress);
    cyclictest::run_in_xen(&mut InXen { options }, MANAGER_OF_NAUTILUS, quick, &paper, progress)
}

struct InXen<'a, 'b> {
    options: &'a mut XenOptions<'b>,
}

impl Target for InXen<'_, '_> {
    fn column(&self) -> &'static str {
        "in Xen"
    }

    fn fit(&self, scenario: Scenario) -> Scenario {
        scenario.set("machine.processors=1").set("pool.guests.processors=[0]").append(MANAGER_MAY)
    }

    fn linux(&self) -> Vec<(&'static str, LinuxScheduler)> {
        Vec::new()
    }

    fn run_host(&mut self, host: &Host, _linux: Option<LinuxScheduler>) -> Result<Results, Error> {
        let options = RunOptions {
            kernel: self.options.kernel,
            memory_mib: self.options.memory_mib,
            progress: &|_| {},
            stop: self.options.stop,
        };
        run::run(host, self.options.control, &options).map_err(|error| match error {
            XenError::Stopped => Error::Interrupted,
            other => Error::Xen(other),
        })
    }
}
