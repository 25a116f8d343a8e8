//! `punctual run` and `punctual attach`: a host file carried out on this machine; `punctual restore`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use punctual_live::doctor::{self, Change, Root};
use punctual_live::driver::Settings;
use punctual_live::enforcer::Notice;
use punctual_live::journal::{self, Restored};
use punctual_live::run::{self as live_run, DefaultBackend, Outcome, RunOptions};
use punctual_live::session::{self, LinuxScheduler, Report};
use punctual_live::status::{Publisher, snapshot};
use punctual_model::Recorder;
use punctual_model::host::Host;
use punctual_model::live::Backend;
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_report::html::Page;
use punctual_report::{Column, json, table};
use punctual_sched::Duration;

use super::error::Error;
use super::input::{Changes, HostFile};
use super::output::{OutFile, Ui};
use super::{exit, interrupt, report};

/// Run a host file on this machine: real VMs or processes, their vCPUs under the pools' policies.
///
/// Domains are started as the file says (`vm`, `process`, `attach`; by default a VM with the project's
/// guest), run their task sets under enforcement, and are ended. Everything that was changed on this machine
/// is put back, whatever happens; `punctual restore` does it after a crash of guardian and run together.
/// Needs root (or CAP_SYS_NICE and a writable cgroup version 2), and leaves at least one processor to the
/// host.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual run examples/five-vms.toml                      five real VMs under the file's policy\n  \
    punctual run examples/five-vms.toml --as process         the same task sets without QEMU\n  \
    punctual run examples/five-vms.toml --policy linux-cfs   what plain Linux does with them\n  \
    punctual run examples/five-vms.toml --apply              with what the doctor would change\n  \
    punctual run examples/five-vms.toml --report live.html   open it in a browser\n  \
    punctual run host.toml --json > live.json && punctual sim host.toml --json > sim.json\n  \
    punctual compare sim.json live.json")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's; also linux-cfs, linux-fifo and
    /// linux-deadline, which are plain Linux for comparison. Several (repeated or with commas) run one after
    /// the other and stand side by side.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,
    /// What stands for a domain that has none of `vm`, `process` and `attach`.
    #[arg(long = "as", value_name = "FORM", default_value = "vm")]
    default_backend: DefaultBackendArg,
    #[command(flatten)]
    enforcement: EnforcementArgs,
    #[command(flatten)]
    changes: Changes,
    /// Exit with 1 if any deadline was missed.
    #[arg(long)]
    fail_on_miss: bool,
}

/// Options of enforcement that `run` and `attach` share.
#[derive(clap::Args, Debug)]
struct EnforcementArgs {
    /// Print results as JSON.
    #[arg(long)]
    json: bool,
    /// Write results as JSON to a file.
    #[arg(long, value_name = "OUT.json")]
    output: Option<PathBuf>,
    /// Change what threatens latency and can be put back, as `punctual doctor` lists it, for the time of the
    /// run.
    #[arg(long)]
    apply: bool,
    /// Write a report as one HTML page: verdicts, results and, of a single policy of ours, the analysis.
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Start even if the pools take every processor.
    #[arg(long)]
    starve: bool,
    /// End the run, put everything back, if enforcement is silent for this long.
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(200..=600_000))]
    silence_ms: u64,
    /// Give up on a VM that has not booted after this long.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    boot_s: u64,
    /// Never look again sooner than this just because a budget may end.
    #[arg(long, value_name = "US", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    granularity_us: u64,
}

/// What stands for a domain that does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DefaultBackendArg {
    /// A VM under QEMU with the project's guest.
    Vm,
    /// The guest program as a process.
    Process,
}

impl From<DefaultBackendArg> for DefaultBackend {
    fn from(name: DefaultBackendArg) -> DefaultBackend {
        match name {
            DefaultBackendArg::Vm => DefaultBackend::Vm,
            DefaultBackendArg::Process => DefaultBackend::Process,
        }
    }
}

/// Put running VMs, processes or threads under the policies of a host file, and let them go at the end.
///
/// Every domain of the file says by `attach` what it stands for: QEMU by its QMP socket or process, a libvirt
/// domain, Firecracker, Cloud Hypervisor, or thread ids. Ends with Ctrl-C or after --duration; nothing that
/// was attached to is ended, and every thread has its scheduling back.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual attach host.toml                                until Ctrl-C\n  \
    punctual attach host.toml --duration 60s --json\n  \
    punctual attach host.toml & punctual top")]
pub struct AttachArgs {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    #[command(flatten)]
    enforcement: EnforcementArgs,
    #[command(flatten)]
    changes: Changes,
}

/// Put back what a live run that ended together with its guardian left changed.
///
/// Without such a run there is nothing to do, which it says. Running ones are left alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual restore                  undo every abandoned run\n  \
    punctual restore --json")]
pub struct RestoreArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual run`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let file = HostFile::read(&args.file)?;
    let default_backend = args.default_backend.into();
    let names: Vec<Option<&str>> = match args.policy.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    // Every policy is judged before the first VM boots.
    let mut hosts = Vec::new();
    for name in names {
        let (linux, policy) = scheduler_of(name);
        hosts.push((name, linux, file.host(&args.changes.overrides(policy))?));
    }
    if args.enforcement.output.is_some() && hosts.len() > 1 {
        return Err(Error::Usage("--output takes the results of one policy; --json prints several".into()));
    }
    let several = hosts.len() > 1;
    let page = args.enforcement.report.as_deref().map(OutFile::create).transpose()?;
    // Of several policies, or none of ours, the analysis has no single answer.
    let guarantees = match hosts.as_slice() {
        [(_, None, host)] if page.is_some() => Some(punctual_analysis::analyse(host).guarantees()),
        _ => None,
    };
    let mut columns = Vec::new();
    let mut reports = String::new();
    for (name, linux, host) in hosts {
        let outcome = carry_out(&host, default_backend, linux, &args.enforcement, ui)?;
        if several {
            reports += &evidence(&outcome.report);
        } else if !args.enforcement.json {
            ui.print(table::summary(&outcome.results, ui.stdout_has_colour()))?;
            ui.print(evidence(&outcome.report))?;
        }
        let label = name.unwrap_or("file's policy").to_owned();
        columns.push(Column { label, results: outcome.results });
    }
    match (several, args.enforcement.json) {
        (true, false) => {
            ui.print(table::side_by_side(&columns, ui.stdout_has_colour()))?;
            ui.print(reports)?;
        }
        (true, true) => {
            ui.print(json::all_to_json(columns.iter().map(|column| &column.results)))?;
        }
        (false, true) => ui.print(json::to_json(&columns[0].results))?,
        (false, false) => {}
    }
    if let Some(page) = page {
        report::write(page, &Page { columns: &columns, guarantees: guarantees.as_ref(), timeline: None })?;
    }
    let missed = columns.iter().any(|column| column.results.pools.iter().any(|pool| pool.jobs.missed > 0));
    Ok(if missed && args.fail_on_miss { exit::MISSED } else { exit::OK })
}

/// Runs `punctual attach`.
pub fn attach(args: &AttachArgs, ui: &Ui) -> Result<u8, Error> {
    let (linux, policy) = scheduler_of(args.policy.as_deref());
    let mut host = HostFile::read(&args.file)?.host(&args.changes.overrides(policy))?;
    let other = host.domains.iter().find(|domain| !matches!(domain.live.backend, Backend::Attach(_)));
    if let Some(domain) = other {
        return Err(Error::Usage(format!(
            "domain `{}` does not say what to attach to\n  \
             expected for example `attach = {{ process = PID }}` in [domain.{}]; `punctual run` starts domains",
            domain.name, domain.name
        )));
    }
    if args.changes.duration.is_none() {
        // A year: until somebody stops it.
        host.duration = Duration::from_secs(365 * 24 * 3600);
    }
    let page = args.enforcement.report.as_deref().map(OutFile::create).transpose()?;
    let outcome = carry_out(&host, DefaultBackend::Process, linux, &args.enforcement, ui)?;
    match args.enforcement.json {
        true => ui.print(json::to_json(&outcome.results))?,
        false => ui.print(evidence(&outcome.report))?,
    }
    if let Some(page) = page {
        let columns = [Column { label: outcome.results.host.clone(), results: outcome.results }];
        report::write(page, &Page { columns: &columns, guarantees: None, timeline: None })?;
    }
    Ok(exit::OK)
}

/// What a name given by `--policy` is: a scheduler of plain Linux, or a policy for the host file.
fn scheduler_of(name: Option<&str>) -> (Option<LinuxScheduler>, Option<String>) {
    match name.and_then(LinuxScheduler::find) {
        Some(linux) => (Some(linux), None),
        None => (None, name.map(str::to_owned)),
    }
}

fn carry_out(
    host: &Host,
    default_backend: DefaultBackend,
    linux: Option<LinuxScheduler>,
    args: &EnforcementArgs,
    ui: &Ui,
) -> Result<Outcome, Error> {
    interrupt::install();
    interrupt::be_graceful();
    undo_abandoned(ui)?;
    let program = std::env::current_exe()
        .map_err(|e| Error::Usage(format!("the program's own file is not known: {e}")))?;
    let changes = if args.apply { reversible_changes(host)? } else { Vec::new() };
    let publisher = RefCell::new(Publisher::open().ok());
    let policy = linux.map(LinuxScheduler::name);
    let show = std::io::stderr().is_terminal();
    let outcome = live_run::run(
        host,
        &mut RunOptions {
            program,
            default_backend,
            linux,
            starve: args.starve,
            silence: StdDuration::from_millis(args.silence_ms),
            boot: StdDuration::from_secs(args.boot_s),
            driver: Settings { granularity: Duration::from_us(args.granularity_us), ..Settings::default() },
            changes,
            progress: &|line| {
                if show {
                    eprintln!("{line}");
                }
            },
            stop: &interrupt::stopped,
            watch: &mut |view| {
                if let Some(publisher) = publisher.borrow_mut().as_mut() {
                    publisher.publish(&snapshot(host, policy, view));
                }
            },
        },
    );
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(live_run::Error::Stopped) => return Err(Error::Interrupted),
        Err(live_run::Error::Session(session::Error::Refused(refusal))) => {
            return Err(Error::Usage(refusal.to_string()));
        }
        Err(error) => return Err(Error::Usage(error.to_string())),
    };
    for notice in &outcome.notices {
        match notice {
            Notice::Gone(name) => ui.warn(&format!("`{name}` ended during the run")),
            Notice::Came(name) => ui.warn(&format!("`{name}` came during the run")),
            Notice::Failed(name, why) => ui.warn(&format!("`{name}` could not be enforced any more: {why}")),
            Notice::Clock(name, ppm) => ui.warn(&format!(
                "the clock of domain `{name}` ran {:.1} % too {}: what it tells of its tasks is wrong by as much",
                ppm.unsigned_abs() as f64 / 1e4,
                if *ppm > 0 { "fast" } else { "slow" }
            )),
            Notice::Refused(name, why) => ui.warn(&format!("`{name}` was refused: {why}")),
        }
    }
    for change in &outcome.unchanged {
        ui.warn(&format!("could not be changed: {change}"));
    }
    if let Some(path) = &args.output {
        let mut out = OutFile::create(path)?;
        std::io::Write::write_all(&mut out, json::to_json(&outcome.results).as_bytes())?;
        out.finish()?;
    }
    match outcome.report.restored.failures.as_slice() {
        [] => Ok(outcome),
        failures => {
            Err(Error::Usage(format!("not everything could be put back:\n  {}", failures.join("\n  "))))
        }
    }
}

/// What the doctor would change on the host's processors.
fn reversible_changes(host: &Host) -> Result<Vec<Change>, Error> {
    let processors = host.pools.iter().flat_map(|pool| pool.processors.iter().copied()).collect();
    let findings = doctor::examine(Root::new(Path::new("/")), Some(processors))
        .map_err(|error| Error::Usage(format!("this is no running Linux: {error}")))?;
    Ok(doctor::reversible_changes(&findings))
}

/// What enforcement did and what was put back.
fn evidence(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    for pool in &report.pools {
        let processors = punctual_live::preflight::list(&pool.processors);
        let _ = writeln!(out, "\nenforcement of {} on processor {processors}", pool.policy);
        if pool.cost.is_empty() {
            let _ = writeln!(out, "  none: plain Linux");
            for difference in &pool.differences {
                out += &wrapped("  unlike the file:  ", difference);
            }
            continue;
        }
        let cost: u64 = pool.cost.iter().map(|cost| cost.as_ns()).sum();
        let share = fmt_share(cost, report.elapsed.as_ns() * pool.cost.len() as u64);
        let looks = fmt_count(pool.evidence.looks);
        let _ = writeln!(out, "  enforcer          {share} of the processor, {looks} looks");
        let _ = writeln!(out, "  budget overrun    {}", distribution(&pool.evidence.overrun));
        let _ = writeln!(out, "  replenished late  {}", distribution(&pool.evidence.replenishment_lateness));
    }
    let _ = writeln!(out, "\n{}", restored(&report.restored));
    out
}

fn wrapped(first: &str, text: &str) -> String {
    let indent = " ".repeat(first.len());
    let options = textwrap::Options::new(table::WIDTH).initial_indent(first).subsequent_indent(&indent);
    textwrap::fill(text, options) + "\n"
}

fn distribution(recorder: &Recorder) -> String {
    if recorder.count() == 0 {
        return "never".into();
    }
    let quantile = |ppm| fmt_duration(recorder.quantile_ppm(ppm));
    format!(
        "p50 {}, p99 {}, max {} ({} times)",
        quantile(500_000),
        quantile(990_000),
        fmt_duration(recorder.max()),
        fmt_count(recorder.count())
    )
}

fn restored(restored: &Restored) -> String {
    let mut parts = vec![format!("{} threads", restored.threads)];
    if restored.files > 0 {
        parts.push(format!("{} kernel parameters", restored.files));
    }
    if restored.groups > 0 {
        parts.push(format!("{} groups removed", restored.groups));
    }
    if restored.children > 0 {
        parts.push(format!("{} processes of the run ended", restored.children));
    }
    if restored.threads_gone > 0 {
        parts.push(format!("{} threads had ended", restored.threads_gone));
    }
    format!("put back: {}", parts.join(", "))
}

/// A run must not build on what a dead one left.
fn undo_abandoned(ui: &Ui) -> Result<(), Error> {
    for path in abandoned()? {
        let done = journal::restore(&path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
        ui.warn(&format!("an earlier run ended together with its guardian; {}", restored(&done)));
    }
    Ok(())
}

fn abandoned() -> Result<Vec<PathBuf>, Error> {
    journal::abandoned()
        .map_err(|e| Error::Usage(format!("{} cannot be read: {e}", journal::directory().display())))
}

/// Runs `punctual restore`.
pub fn restore(args: &RestoreArgs, ui: &Ui) -> Result<u8, Error> {
    let mut all = Vec::new();
    for path in abandoned()? {
        let done = journal::restore(&path).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
        all.push(done);
    }
    if args.json {
        ui.print_json(&all)?;
    } else if all.is_empty() {
        ui.print("nothing to put back\n")?;
    } else {
        for done in &all {
            ui.print(restored(done) + "\n")?;
        }
    }
    let failures: Vec<&str> = all.iter().flat_map(|done| &done.failures).map(String::as_str).collect();
    match failures.as_slice() {
        [] => Ok(exit::OK),
        failures => {
            Err(Error::Usage(format!("not everything could be put back:\n  {}", failures.join("\n  "))))
        }
    }
}
