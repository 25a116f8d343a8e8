//! What `punctual run`, `attach` and `restore` share: carrying a host out on this machine, and telling what
//! happened.

mod evidence;
mod measured;
mod network;
mod replay;
mod sockets;
mod steps;
pub mod switches;
pub mod trace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration as StdDuration;

use punctual_analysis::{FairServer, fair_server_warnings};
use punctual_doctor::doctor::{self, Change, Root};
use punctual_enforce::driver::{LateOverrun, Settings};
use punctual_enforce::journal::{self, Restored};
use punctual_enforce::session::LinuxScheduler;
use punctual_model::host::Host;
use punctual_report::format::fmt_duration;
use punctual_report::json;
use punctual_run::run::{self, DefaultBackend, Outcome, RunOptions};
use punctual_run::status::{Publisher, Snapshot, snapshot};
use punctual_sched::Duration;

use super::error::Error;
use super::input::Label;
use super::interrupt;
use super::output::{OutFile, Ui};
pub use network::SwitchOptions;
use network::{FoundNetwork, Helpers, LiveNetwork, Status};
use sockets::LiveSockets;

pub use evidence::{evidence, restored};
pub use measured::{How, measured};
pub use replay::{replay, text as replay_text};
pub use sockets::take_place;
pub use steps::Steps;

/// Options of enforcement that `run` and `attach` share.
#[derive(clap::Args, Debug)]
pub struct EnforcementArgs {
    /// Print results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write results as JSON to a file.
    #[arg(long, value_name = "OUT.json")]
    pub output: Option<PathBuf>,
    /// Change what threatens latency and can be put back, as `punctual doctor` lists it, for the time of the
    /// run.
    #[arg(long)]
    pub apply: bool,
    /// Write a report as one HTML page: verdicts, results and, of a single policy of ours, the analysis.
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
    /// Write what happened as a Perfetto trace, which is also the timeline of the report; of a single policy.
    /// Reads context switches, which make --blame exact about other threads.
    #[arg(long, value_name = "OUT.pftrace")]
    pub trace: Option<PathBuf>,
    /// Say on standard error what is going on, as on a terminal.
    #[arg(long)]
    pub progress: bool,
    #[command(flatten)]
    pub label: Label,
    /// Start even if the pools take every processor.
    #[arg(long)]
    pub starve: bool,
    /// End the run, put everything back, if enforcement is silent for this long.
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = in_range(200..=600_000))]
    pub silence_ms: u64,
    /// Give up on a VM that has not booted, or a guest program that is silent, after this long.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = in_range(1..=3_600))]
    pub boot_s: u64,
    /// Never look again sooner than this just because a budget may end.
    #[arg(long, value_name = "US", default_value_t = 20, value_parser = in_range(1..=100_000))]
    pub granularity_us: u64,
    /// What a unit ran beyond its budget because a look came late is taken from its next budgets, or
    /// forgiven.
    #[arg(long, value_name = "HOW", default_value = "owed")]
    pub late_overrun: LateOverrunArg,
}

/// What happens to an overrun because of a late look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LateOverrunArg {
    /// The unit pays it back.
    Owed,
    /// It does not.
    Forgiven,
}

impl From<LateOverrunArg> for LateOverrun {
    fn from(name: LateOverrunArg) -> LateOverrun {
        match name {
            LateOverrunArg::Owed => LateOverrun::Owed,
            LateOverrunArg::Forgiven => LateOverrun::Forgiven,
        }
    }
}

/// Takes a number between both bounds.
fn in_range(bounds: std::ops::RangeInclusive<u64>) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(bounds)
}

/// What a name given by `--policy` is: a scheduler of plain Linux, or a policy for the host file.
pub fn scheduler_of(name: Option<&str>) -> (Option<LinuxScheduler>, Option<String>) {
    match name.and_then(LinuxScheduler::find) {
        Some(linux) => (Some(linux), None),
        None => (None, name.map(str::to_owned)),
    }
}

/// What stands for domains and networks of a host file.
#[derive(Clone, Copy)]
pub struct Backends<'a> {
    /// For domains that do not say.
    pub default_backend: DefaultBackend,
    /// Other programs in place of the guest program, by domain.
    pub guest_programs: &'a [(String, PathBuf)],
    /// For networks.
    pub switches: SwitchOptions<'a>,
}

/// Runs a host on this machine, and says on the way what happens to it. Returns also what the switches of its
/// networks counted, as text.
pub fn carry_out(
    host: &Host,
    backends: Backends<'_>,
    linux: Option<LinuxScheduler>,
    args: &EnforcementArgs,
    steps: &Steps,
    ui: &Ui,
) -> Result<(Outcome, String), Error> {
    let Backends { default_backend, guest_programs, switches } = backends;
    interrupt::install();
    interrupt::be_graceful();
    undo_abandoned(ui)?;
    let program = std::env::current_exe()
        .map_err(|e| Error::Usage(format!("the program's own file is not known: {e}")))?;
    let changes = if args.apply { reversible_changes(host)? } else { Vec::new() };
    if linux.is_none() && !args.apply {
        beside_fair_server(host, Path::new("/"))?.iter().for_each(|text| ui.warn(text));
    }
    let helpers = Helpers::default();
    let (networks, mut ends) = network::start(host, default_backend, switches, (&helpers, ui))?;
    let found = if switches.finds { network::find(host, &helpers) } else { Vec::new() };
    let (servers, sockets) = sockets::start(host, default_backend, ui)?;
    ends.outside.extend(sockets.outside);
    let restored = Arc::<OnceLock<Restored>>::default();
    let mut publisher = None;
    let options = RunOptions {
        program,
        default_backend,
        guest_programs,
        interfaces: ends.interfaces,
        outside: ends.outside,
        sockets: sockets.guests,
        linux,
        starve: args.starve,
        silence: StdDuration::from_millis(args.silence_ms),
        boot: StdDuration::from_secs(args.boot_s),
        driver: Settings {
            granularity: Duration::from_us(args.granularity_us),
            late_overrun: args.late_overrun.into(),
            ..Settings::default()
        },
        serving: helpers.serving.clone(),
        changes,
        trace: args.trace.is_some(),
        progress: &|line| steps.say(line),
        stop: interrupt::stopped,
        end: interrupt::end_for_guardian,
        restored: restored.clone(),
        watch: &mut |view| {
            // Opened once there is a guardian, which removes the socket of a run that is killed.
            if let Some(publisher) = publisher.get_or_insert_with(|| Publisher::open().ok()) {
                let mut of = Status::default();
                let found = found.iter().map(FoundNetwork::status);
                for status in networks.iter().map(LiveNetwork::status).chain(found) {
                    of.ports.extend(status.ports);
                    of.planes.extend(status.planes);
                }
                let snapshot = snapshot(host, linux.map(LinuxScheduler::name), view);
                let sockets = servers.iter().map(LiveSockets::status).collect();
                publisher.publish(&Snapshot { ports: of.ports, planes: of.planes, sockets, ..snapshot });
            }
        },
    };
    let mut outcome = run::run(host, options).map_err(|error| ended_early(error, restored.get(), ui))?;
    let ended: Vec<network::Ended> = networks.into_iter().map(LiveNetwork::end).collect();
    let violation = ended.iter().find_map(|switch| switch.violation.clone());
    let mut switches: String = ended.iter().map(|switch| switch.text.as_str()).collect();
    outcome.results.switches = ended.into_iter().map(|switch| switch.result).collect();
    for found in found.into_iter().filter_map(FoundNetwork::end) {
        switches += &network::text(&found, Duration::from_ns(outcome.results.duration_ns));
        outcome.results.switches.push(found);
    }
    outcome.results.sockets = servers.into_iter().map(LiveSockets::end).collect();
    outcome.results.label.clone_from(&args.label.name);
    warn(&outcome, ui);
    if let Some(path) = &args.trace {
        trace::write(path, host, &outcome.trace, Duration::from_ns(outcome.results.duration_ns))?;
    }
    if let Some(path) = &args.output {
        let mut out = OutFile::create(path)?;
        out.write_all(json::to_json(&outcome.results).as_bytes())?;
        out.finish()?;
    }
    check_restored([&outcome.report.restored], Vec::new())?;
    match violation {
        Some(violation) => Err(Error::Violation(violation)),
        None => Ok((outcome, switches)),
    }
}

/// The error of a run that did not come to its end; says what was put back.
fn ended_early(error: run::Error, put_back: Option<&Restored>, ui: &Ui) -> Error {
    let put_back = match put_back.map(|done| (done, check_restored([done], Vec::new()))) {
        Some((_, Err(Error::NotRestored(failures)))) => {
            return Error::NotRestored(format!("{error}\n{failures}"));
        }
        Some((done, _)) => restored(done),
        None => "nothing had been changed".to_owned(),
    };
    match error {
        run::Error::Stopped => {
            ui.warn(&format!("stopped before anything was measured; {put_back}"));
            Error::Interrupted
        }
        error => Error::Usage(format!("{error}\n{put_back}")),
    }
}

/// Prints what the user should know of a run beside its results.
fn warn(outcome: &Outcome, ui: &Ui) {
    if outcome.stopped {
        let length = fmt_duration(Duration::from_ns(outcome.results.duration_ns));
        ui.warn(&format!("stopped after {length}; jobs are counted as the guests had told by then"));
    }
    for notice in &outcome.notices {
        ui.warn(&notice.to_string());
    }
    for change in &outcome.unchanged {
        ui.warn(&format!("could not be changed: {change}"));
    }
}

/// Was everything put back? `errors` are those of journals that were not undone at all.
pub fn check_restored<'a>(
    all: impl IntoIterator<Item = &'a Restored>,
    errors: Vec<String>,
) -> Result<(), Error> {
    let failures = all.into_iter().flat_map(|done| done.failures.iter().cloned());
    let failures: Vec<String> = failures.chain(errors).collect();
    if failures.is_empty() {
        return Ok(());
    }
    Err(Error::NotRestored(format!("not everything could be put back:\n  {}", failures.join("\n  "))))
}

/// What the doctor would change on the host's processors.
fn reversible_changes(host: &Host) -> Result<Vec<Change>, Error> {
    // Those of other runs as well: a parameter that both change must keep the kernel off all of them.
    let others = journal::claimed_processors()
        .map_err(|e| Error::Usage(format!("{}: {e}", journal::directory().display())))?;
    let own = host.pools.iter().flat_map(|pool| pool.processors.iter().copied());
    let processors = own.chain(others).collect();
    let findings = doctor::examine(Root::new(Path::new("/")), Some(processors))
        .map_err(|error| Error::Usage(format!("this is no running Linux: {error}")))?;
    Ok(doctor::reversible_changes(&findings))
}

/// Pools whose budgets leave the fair class less than the fair server of the machine below `root` takes.
pub fn beside_fair_server(host: &Host, root: &Path) -> Result<Vec<String>, Error> {
    let processors = host.pools.iter().flat_map(|pool| pool.processors.iter().copied()).collect();
    let share = doctor::fair_server(Root::new(root), processors)
        .map_err(|error| Error::Usage(format!("{} is no running Linux: {error}", root.display())))?;
    let server = share.map(|(runtime, period)| FairServer {
        runtime: Duration::from_ns(runtime),
        period: Duration::from_ns(period),
    });
    let warnings = server.map(|server| fair_server_warnings(host, server)).unwrap_or_default();
    Ok(warnings.into_iter().map(|warning| format!("{}: {}", warning.about, warning.text)).collect())
}

/// A run must not build on what a dead one left.
pub fn undo_abandoned(ui: &Ui) -> Result<(), Error> {
    for path in abandoned()? {
        if let Some(done) = undo(&path).map_err(Error::Usage)? {
            ui.warn(&format!("an earlier run ended together with its guardian; {}", restored(&done)));
            for failure in &done.failures {
                ui.warn(&format!("not put back: {failure}"));
            }
        }
    }
    Ok(())
}

/// Undoes the journal of a run that is over; `None` when its guardian did, which was waited for, or when the
/// run goes on after all.
pub fn undo(path: &Path) -> Result<Option<Restored>, String> {
    journal::restore_abandoned(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The journals of runs that died together with their guardians.
pub fn abandoned() -> Result<Vec<PathBuf>, Error> {
    journal::abandoned()
        .map_err(|e| Error::Usage(format!("{} cannot be read: {e}", journal::directory().display())))
}
