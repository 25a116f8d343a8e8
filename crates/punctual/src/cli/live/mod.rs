//! What `punctual run`, `attach` and `restore` share: options of a run, and printing what happened.

mod events;
mod evidence;
mod replay;
mod steps;
mod switches;
pub(super) mod targets;
pub(super) mod trace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use punctual_analysis::{FairServer, fair_server_warnings, vcpu_warnings};
use punctual_doctor::doctor::{self, Root};
use punctual_enforce::driver::{LateOverrun, Settings};
use punctual_enforce::journal::Restored;
use punctual_enforce::session::LinuxScheduler;
use punctual_model::host::{Domain, Enforce, Host};
use punctual_model::live::Backend;
use punctual_model::results::SwitchResult;
use punctual_report::format::fmt_duration;
use punctual_report::json;
use punctual_run::config::{DefaultBackend, Hooks, NetworkConfig, RunConfig, RunView};
use punctual_run::events::Events;
use punctual_run::host::{Outcome, run_host};
use punctual_run::run::{self, Measurements, RunError};
use punctual_sched::Duration;

use super::error::Error;
use super::input::Label;
use super::interrupt;
use super::output::{OutFile, Ui, keep_inputs};

pub(super) use events::{plain_printer, printer};
pub(super) use evidence::{evidence, restored};
pub(super) use replay::{replay, text as replay_text};
pub(super) use steps::Steps;
pub(super) use switches::table as switch_table;

/// Options of enforcement that `run` and `attach` share.
#[derive(clap::Args, Debug)]
pub(super) struct EnforcementArgs {
    /// Print results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write results as JSON to a file.
    #[arg(long, value_name = "OUT.json")]
    pub output: Option<PathBuf>,
    /// For the time of the run, change the reversible settings that threaten latency; `punctual doctor` lists
    /// them.
    #[arg(long)]
    pub apply: bool,
    /// Write a report as one HTML page: verdicts, results and, for a single Punctual policy, the analysis.
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
    /// Write a Perfetto trace of a run under a single policy; it is also the report's timeline. Records
    /// context switches, which makes --blame exact about other threads.
    #[arg(long, value_name = "OUT.pftrace")]
    pub trace: Option<PathBuf>,
    /// Show progress on standard error even if it is not a terminal.
    #[arg(long)]
    pub progress: bool,
    #[command(flatten)]
    pub label: Label,
    /// Start even if the pools take every processor.
    #[arg(long)]
    pub starve: bool,
    /// End the run and undo its changes if enforcement hangs for this long.
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = in_range(200..=600_000))]
    pub silence_ms: u64,
    /// Give up on a VM that has not booted, or a guest program that does not respond, after this long.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = in_range(1..=3_600))]
    pub boot_s: u64,
    /// Shortest interval at which to check a budget that is about to end.
    #[arg(long, value_name = "US", default_value_t = 20, value_parser = in_range(1..=100_000))]
    pub granularity_us: u64,
    /// Whether a unit pays back time that it ran beyond its budget because a check came late.
    #[arg(long, value_name = "HOW", default_value = "owed")]
    pub late_overrun: LateOverrunArg,
    /// What enforces the policies, instead of what the host file says.
    #[arg(long, value_name = "BACKEND")]
    pub enforce: Option<EnforceArg>,
    /// Permit `auto` to load a scheduler into the kernel. A bug of the kernel there can hang the machine.
    #[arg(long)]
    pub allow_sched_ext: bool,
    /// Make the processors of every pool an isolated cpuset partition for the time of the run, as `isolate`
    /// in the host file does for one pool.
    #[arg(long)]
    pub isolate: bool,
}

/// What enforces policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EnforceArg {
    /// The best that the machine has and the command line permits.
    Auto,
    /// An enforcer in user space, with real-time priorities and the freezer of cgroups.
    Freezer,
    /// A scheduler in the kernel (sched_ext).
    SchedExt,
}

impl From<EnforceArg> for Enforce {
    fn from(name: EnforceArg) -> Enforce {
        match name {
            EnforceArg::Auto => Enforce::Auto,
            EnforceArg::Freezer => Enforce::Freezer,
            EnforceArg::SchedExt => Enforce::SchedExt,
        }
    }
}

/// What happens to an overrun that a late check caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LateOverrunArg {
    /// The unit's next budgets are reduced by it.
    Owed,
    /// The overrun is ignored.
    Forgiven,
}

impl EnforcementArgs {
    /// Refuses an output that would replace the host file.
    ///
    /// # Errors
    /// An output is the host file.
    pub(super) fn keep_inputs(&self, file: &Path) -> Result<(), Error> {
        keep_inputs(&[file.into()], &[&self.output, &self.report, &self.trace])
    }

    /// The run that these options describe, under a scheduler of plain Linux if one is given.
    ///
    /// # Errors
    /// This program's file is not known.
    pub(super) fn config<'a>(
        &self,
        default_backend: DefaultBackend,
        linux: Option<LinuxScheduler>,
        networks: NetworkConfig<'a>,
    ) -> Result<RunConfig<'a>, Error> {
        Ok(RunConfig {
            linux,
            networks,
            starve: self.starve,
            silence: StdDuration::from_millis(self.silence_ms),
            boot: StdDuration::from_secs(self.boot_s),
            driver: Settings {
                granularity: Duration::from_us(self.granularity_us),
                late_overrun: self.late_overrun.into(),
                ..Settings::default()
            },
            apply: self.apply,
            trace: self.trace.is_some(),
            enforce: self.enforce.map(Enforce::from),
            allows_sched_ext: self.allow_sched_ext,
            isolate: self.isolate,
            ..RunConfig::new(own_program()?, default_backend)
        })
    }
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
pub(super) fn scheduler_of(name: Option<&str>) -> (Option<LinuxScheduler>, Option<String>) {
    match name.and_then(LinuxScheduler::find) {
        Some(linux) => (Some(linux), None),
        None => (None, name.map(str::to_owned)),
    }
}

/// Runs a host on this machine, and prints on the way what happens. Returns also what the switches of its
/// networks counted, as text.
pub(super) fn run_and_record(
    host: &Host,
    config: &RunConfig<'_>,
    args: &EnforcementArgs,
    steps: &Steps,
    ui: &Ui,
) -> Result<(Measurements, String), Error> {
    interrupt::install();
    interrupt::be_graceful();
    of_vcpus(host, ui);
    if config.linux.is_none() && !config.apply {
        beside_fair_server(host, Path::new("/"))?.iter().for_each(|text| ui.warn(text));
    }
    let outcome = run_host(host, config, hooks(printer(ui, steps), &mut |_| ()));
    let Outcome { mut measured, switches_for, violation } =
        outcome.map_err(|error| ended_early(error, ui))?;
    let of_switches = measured.results.switches.iter().zip(switches_for);
    let text = |(of, elapsed): (&SwitchResult, Duration)| {
        format!("\nswitch of {}, {}\n{}", of.network, of.discipline, switch_table(of, elapsed))
    };
    let switches = of_switches.map(text).collect();
    measured.results.label.clone_from(&args.label.name);
    warn(&measured, host, ui);
    if let Some(path) = &args.trace {
        trace::write(path, host, &measured.trace, Duration::from_ns(measured.results.duration_ns))?;
    }
    if let Some(path) = &args.output {
        let mut out = OutFile::create(path)?;
        out.write_all(json::to_json(&measured.results).as_bytes())?;
        out.finish()?;
    }
    check_restored([&measured.report.restored], Vec::new())?;
    match violation {
        Some(violation) => Err(Error::Violation(violation)),
        None => Ok((measured, switches)),
    }
}

/// How this program's runs talk.
pub(super) fn hooks<'a>(events: Events, watch: &'a mut dyn FnMut(&RunView<'_>)) -> Hooks<'a> {
    Hooks { events, stop: interrupt::stopped, end: interrupt::end_for_guardian, watch }
}

/// This program's file, for the guardian.
pub(super) fn own_program() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|e| Error::Usage(format!("cannot find the program's own executable: {e}")))
}

/// The error of a failed run, with what was put back.
fn ended_early(error: RunError, ui: &Ui) -> Error {
    let RunError::Failed { error, restored: put_back } = error else { return error.into() };
    let put_back = match put_back.map(|done| (check_restored([&done], Vec::new()), done)) {
        Some((Err(Error::NotRestored(failures)), _)) => {
            return Error::NotRestored(format!("{error}\n{failures}"));
        }
        // Groups and parameters of the run itself, before a thread or process was touched.
        Some((_, done))
            if (done.threads, done.children) == (0, 0) && !matches!(*error, run::Error::Stopped) =>
        {
            "nothing is left changed".to_owned()
        }
        Some((_, done)) => restored(&done),
        None => "nothing had been changed".to_owned(),
    };
    match *error {
        run::Error::Stopped => {
            ui.warn(&format!("stopped before anything was measured; {put_back}"));
            Error::Interrupted
        }
        error => Error::Usage(format!("{error}\n{put_back}")),
    }
}

/// Prints what the user should know of a run beside its results.
fn warn(outcome: &Measurements, host: &Host, ui: &Ui) {
    let length = fmt_duration(Duration::from_ns(outcome.results.duration_ns));
    let is_attached = |domain: &Domain| matches!(domain.live.backend, Backend::Attach(_));
    if outcome.stopped && host.domains.iter().all(is_attached) {
        // It runs until it is stopped, and nothing reports jobs.
        eprintln!("detached after {length}");
    } else if outcome.stopped {
        ui.warn(&format!(
            "stopped after {length}; results include the jobs that guests had reported by then"
        ));
    }
    for notice in &outcome.notices {
        ui.warn(&notice.to_string());
    }
    for change in &outcome.unchanged {
        ui.warn(&format!("could not be changed: {change}"));
    }
}

/// Was everything put back? `errors` are those of journals that were not undone at all.
pub(super) fn check_restored<'a>(
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

/// Warns of domains with more vCPUs than processors.
pub(super) fn of_vcpus(host: &Host, ui: &Ui) {
    for warning in vcpu_warnings(host) {
        ui.warn(&format!("{}: {}", warning.about, warning.text));
    }
}

/// Pools whose budgets leave the fair class less than the fair server of the machine below `root` takes.
pub(super) fn beside_fair_server(host: &Host, root: &Path) -> Result<Vec<String>, Error> {
    let processors = host.pools.iter().flat_map(|pool| pool.processors.iter().copied()).collect();
    let share = doctor::fair_server(Root::new(root), processors).map_err(|error| {
        Error::Usage(format!("{} is not a running Linux system: {error}", root.display()))
    })?;
    let server = share.map(|(runtime, period)| FairServer {
        runtime: Duration::from_ns(runtime),
        period: Duration::from_ns(period),
    });
    let warnings = server.map(|server| fair_server_warnings(host, server)).unwrap_or_default();
    Ok(warnings.into_iter().map(|warning| format!("{}: {}", warning.about, warning.text)).collect())
}
