//! A host carried out for what is measured of it: without a report, a trace or options of enforcement.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use punctual_enforce::driver::Settings;
use punctual_enforce::session::LinuxScheduler;
use punctual_model::{Host, Results};
use punctual_run::run::{self, DefaultBackend, RunOptions};

use super::super::error::Error;
use super::super::interrupt;
use super::super::output::Ui;
use super::network::{self, Helpers, LiveNetwork};
use super::{SwitchOptions, check_restored, undo_abandoned};

/// How long many VMs may take to boot on one processor.
const BOOT: StdDuration = StdDuration::from_secs(180);

/// How a host is carried out.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// For domains that do not say.
    pub default_backend: DefaultBackend,
    /// A scheduler of plain Linux in place of the policies.
    pub linux: Option<LinuxScheduler>,
    /// For networks.
    pub switches: SwitchOptions<'a>,
    /// Told what is going on.
    pub say: &'a dyn Fn(&str),
}

/// Carries a host out on this machine.
///
/// # Errors
/// It failed, was refused or interrupted; the machine is as it was, or the error says what is not.
pub fn measured(host: &Host, how: How<'_>, ui: &Ui) -> Result<Results, Error> {
    interrupt::install();
    interrupt::be_graceful();
    undo_abandoned(ui)?;
    let program = std::env::current_exe()
        .map_err(|error| Error::Usage(format!("the program's own file is not known: {error}")))?;
    let (networks, ends) =
        network::start(host, how.default_backend, how.switches, (&Helpers::default(), ui))?;
    let options = RunOptions {
        program,
        default_backend: how.default_backend,
        guest_programs: &[],
        interfaces: ends.interfaces,
        outside: ends.outside,
        sockets: Vec::new(),
        linux: how.linux,
        starve: false,
        silence: StdDuration::from_secs(2),
        driver: Settings::default(),
        serving: Arc::default(),
        boot: BOOT,
        changes: Vec::new(),
        trace: false,
        progress: how.say,
        stop: interrupt::stopped,
        end: interrupt::end_for_guardian,
        restored: Arc::default(),
        watch: &mut |_| {},
    };
    let mut outcome = run::run(host, options).map_err(|error| match error {
        run::Error::Stopped => Error::Interrupted,
        error => Error::Usage(error.to_string()),
    })?;
    let ended: Vec<network::Ended> = networks.into_iter().map(LiveNetwork::end).collect();
    if outcome.stopped {
        return Err(Error::Interrupted);
    }
    check_restored([&outcome.report.restored], Vec::new())?;
    if let Some(violation) = ended.iter().find_map(|switch| switch.violation.clone()) {
        return Err(Error::Violation(violation));
    }
    outcome.results.switches = ended.into_iter().map(|switch| switch.result).collect();
    Ok(outcome.results)
}
