//! What experiments run on: this machine, guests of Xen, or the simulator in tests.

use std::path::PathBuf;

use punctual_enforce::session::LinuxScheduler;
use punctual_linux::Stop;
use punctual_model::host::Host;
use punctual_model::results::Results;
use punctual_run::calibrate;
use punctual_run::config::{DefaultBackend, Hooks, NetworkConfig, RunConfig};
use punctual_run::error::ServeError;
use punctual_run::events::Events;
use punctual_run::host::{Incomplete, run_host};
use punctual_run::run::RunError;

use crate::costs::MeasuredCosts;
use crate::error::Error;
use crate::scenario::Scenario;

/// What RT-Xen's and Nautilus' experiments run on.
pub(crate) trait Target {
    /// The heading of its column.
    fn column(&self) -> &'static str;

    /// A scenario as it can run there.
    fn fit(&self, scenario: Scenario) -> Scenario;

    /// The target's own schedulers, which Table 2 has beside the policies.
    fn linux(&self) -> Vec<(&'static str, LinuxScheduler)>;

    /// Runs a host, under a scheduler of the target itself if one is given.
    ///
    /// # Errors
    /// It failed or was refused; the machine's settings are restored.
    fn run_host(&mut self, host: &Host, linux: Option<LinuxScheduler>) -> Result<Results, Error>;
}

/// What experiments with packets run on.
pub(crate) trait Machine {
    /// Runs a host, its networks by switches.
    ///
    /// # Errors
    /// It failed or was refused; the machine's settings are restored.
    fn run_host(&self, host: &Host, variant: Variant) -> Result<Results, Error>;

    /// Measures what scheduling and the steps of the network of this name cost, undisturbed: settings of a
    /// host file, `path=value`.
    ///
    /// # Errors
    /// As [`Machine::run_host`].
    fn calibrate(&self, network: &str) -> Result<Vec<String>, Error>;
}

/// How a host is run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant {
    /// A scheduler of plain Linux in place of the policies.
    pub linux: Option<LinuxScheduler>,
    /// Urgent interfaces of a network share a plane of its switch with the others.
    pub one_plane: bool,
}

/// How to run experiments on this machine.
pub struct LiveOptions<'a> {
    /// This program's file, for the guardian.
    pub program: PathBuf,
    /// How domains run that do not say.
    pub default_backend: DefaultBackend,
    /// What runs report.
    pub events: Events,
    /// Ends this process, when the guardian asks for it.
    pub end: fn() -> !,
    /// What scheduling and packets cost, measured earlier; measured again without.
    pub costs: Option<MeasuredCosts>,
    /// Shorter runs, fewer points.
    pub quick: bool,
    /// Only these experiments, by name; empty means all.
    pub only: Vec<String>,
    /// Learns what is going on.
    pub progress: &'a dyn Fn(&str),
    /// Should everything end?
    pub stop: Stop,
}

impl Machine for LiveOptions<'_> {
    fn run_host(&self, host: &Host, variant: Variant) -> Result<Results, Error> {
        let networks = NetworkConfig { one_plane: variant.one_plane, ..NetworkConfig::default() };
        let config = RunConfig {
            linux: variant.linux,
            networks,
            boot: calibrate::BOOT,
            ..RunConfig::new(self.program.clone(), self.default_backend)
        };
        let hooks = Hooks { events: self.events.clone(), stop: self.stop, end: self.end, watch: &mut |_| () };
        let outcome = run_host(host, &config, hooks).map_err(of_run)?;
        outcome.into_results().map_err(|incomplete| match incomplete {
            Incomplete::Stopped => Error::Interrupted,
            Incomplete::NotPutBack(failures) => not_put_back(failures),
            Incomplete::Violation(text) => Error::Live(text),
        })
    }

    fn calibrate(&self, network: &str) -> Result<Vec<String>, Error> {
        if let Some(costs) = &self.costs {
            return Ok(costs.settings(network));
        }
        let machine = calibrate::Machine {
            program: self.program.clone(),
            events: self.events.clone(),
            stop: self.stop,
            end: self.end,
            done: &|_| (),
        };
        let seconds = if self.quick { 2 } else { 5 };
        calibrate::settings(network, seconds, &machine).map_err(|error| match error {
            calibrate::Error::Stopped => Error::Interrupted,
            calibrate::Error::Host(errors) => Error::Host(errors),
            calibrate::Error::Run(error) => of_run(error),
            calibrate::Error::NotPutBack(failures) => not_put_back(failures),
            error => Error::Live(error.to_string()),
        })
    }
}

fn not_put_back(failures: Vec<String>) -> Error {
    Error::NotPutBack(calibrate::Error::NotPutBack(failures).to_string())
}

fn of_run(error: RunError) -> Error {
    match error {
        error if !error.not_put_back().is_empty() => not_put_back(error.not_put_back().to_vec()),
        error if error.is_stopped() => Error::Interrupted,
        RunError::Refused(ServeError::Host(errors)) => Error::Host(errors),
        error => Error::Live(error.to_string()),
    }
}
