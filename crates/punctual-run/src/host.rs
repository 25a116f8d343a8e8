//! The one assembly of a run: undoes what dead runs left, starts switches and servers of sockets, takes the
//! host through the stages of [`crate::run`], and ends everything again.

use std::path::Path;

use punctual_doctor::doctor::{self, Change, Root};
use punctual_enforce::journal;
use punctual_enforce::session::LinuxScheduler;
use punctual_model::results::SwitchResult;
use punctual_model::{Host, Results};
use punctual_sched::Duration;

use crate::abandoned;
use crate::config::{Hooks, RunConfig, RunView};
use crate::error::ServeError;
use crate::network::{self, FoundNetwork, Helpers, LiveNetwork, Status};
use crate::run::{self, Measurements, RunError, StageInputs};
use crate::sockets::{self, LiveSockets};
use crate::status::{Publisher, Snapshot, snapshot};

/// What a run measured and what it left.
#[derive(Debug)]
pub struct Outcome {
    /// What the stages measured; its results have those of switches and sockets.
    pub measured: Measurements,
    /// By switch of the results, how long it was counted.
    pub switches_for: Vec<Duration>,
    /// The invariant that a switch of the run violated.
    pub violation: Option<String>,
}

/// Why the results of a run that ended without an error do not count.
#[derive(Debug)]
pub enum Incomplete {
    /// It was stopped early.
    Stopped,
    /// What could not be put back.
    NotPutBack(Vec<String>),
    /// A switch violated an invariant.
    Violation(String),
}

impl Outcome {
    /// The results of a run that is whole.
    ///
    /// # Errors
    /// [`Incomplete`].
    pub fn into_results(self) -> Result<Results, Incomplete> {
        let Measurements { results, report, stopped, .. } = self.measured;
        if stopped {
            return Err(Incomplete::Stopped);
        }
        if !report.restored.failures.is_empty() {
            return Err(Incomplete::NotPutBack(report.restored.failures));
        }
        self.violation.map_or(Ok(results), |violation| Err(Incomplete::Violation(violation)))
    }
}

/// Runs a host on this machine. While tasks run, `punctual top` can watch them.
///
/// # Errors
/// [`RunError`]; everything has been put back, or the error says what has not.
pub fn run_host(host: &Host, config: &RunConfig<'_>, hooks: Hooks<'_>) -> Result<Outcome, RunError> {
    let Hooks { events, stop, end, watch } = hooks;
    abandoned::undo_all(&events)?;
    let changes = if config.apply { reversible_changes(host)? } else { Vec::new() };
    let helpers = Helpers::default();
    let (networks, mut ends) = network::start(host, config, &helpers, &events)?;
    let found =
        if config.networks.find_running { network::find(host, &helpers, &events) } else { Vec::new() };
    let (servers, sockets) = sockets::start(host, config.default_backend, &events)?;
    ends.outside.extend(sockets.outside);
    let mut publisher = None;
    let mut show = |view: &RunView<'_>| {
        watch(view);
        // Opened once there is a guardian, which removes the socket of a run that is killed.
        if let Some(publisher) = publisher.get_or_insert_with(|| Publisher::open().ok()) {
            publisher.publish(&snapshot_of(host, config.linux, view, (&networks, &found, &servers)));
        }
    };
    let inputs = StageInputs {
        config,
        interfaces: ends.interfaces,
        outside: ends.outside,
        sockets: sockets.guests,
        serving: helpers.serving.clone(),
        changes,
        events: events.clone(),
        stop,
        end,
        watch: &mut show,
    };
    let mut measured = run::run(host, inputs)?;
    let ended: Vec<network::Ended> = networks.into_iter().map(LiveNetwork::end).collect();
    let violation = ended.iter().find_map(|switch| switch.violation.clone());
    let length = Duration::from_ns(measured.results.duration_ns);
    let found = found.into_iter().filter_map(FoundNetwork::end).map(|result| (result, length));
    let own = ended.into_iter().map(|switch| (switch.result, switch.elapsed));
    let switches: Vec<(SwitchResult, Duration)> = own.chain(found).collect();
    let (switches, switches_for) = switches.into_iter().unzip();
    measured.results.switches = switches;
    measured.results.sockets = servers.into_iter().map(LiveSockets::end).collect();
    Ok(Outcome { measured, switches_for, violation })
}

/// What a run and its switches and servers are at.
fn snapshot_of(
    host: &Host,
    linux: Option<LinuxScheduler>,
    view: &RunView<'_>,
    (networks, found, servers): (&[LiveNetwork<'_>], &[FoundNetwork], &[LiveSockets]),
) -> Snapshot {
    let mut of = Status::default();
    let found = found.iter().map(FoundNetwork::status);
    for status in networks.iter().map(LiveNetwork::status).chain(found) {
        of.ports.extend(status.ports);
        of.planes.extend(status.planes);
    }
    let sockets = servers.iter().map(LiveSockets::status).collect();
    let snapshot = snapshot(host, linux.map(LinuxScheduler::name), view);
    Snapshot { ports: of.ports, planes: of.planes, sockets, ..snapshot }
}

/// What the doctor would change on the host's processors.
fn reversible_changes(host: &Host) -> Result<Vec<Change>, ServeError> {
    // Those of other runs as well: a parameter that both change must keep the kernel off all of them.
    let others = journal::claimed_processors()
        .map_err(|error| ServeError::Refused(format!("{}: {error}", journal::directory().display())))?;
    let own = host.pools.iter().flat_map(|pool| pool.processors.iter().copied());
    let processors = own.chain(others).collect();
    let findings = doctor::examine(Root::new(Path::new("/")), Some(processors))
        .map_err(|error| ServeError::Refused(format!("this is not a running Linux system: {error}")))?;
    Ok(doctor::reversible_changes(&findings))
}
