//! `punctual run`: runs a host file on this machine.

use std::path::PathBuf;

use punctual_enforce::session::LinuxScheduler;
use punctual_model::{Host, Results};
use punctual_report::html::Page;
use punctual_report::timeline::Timeline;
use punctual_report::{Column, json, table};
use punctual_run::config::{DefaultBackend, NetworkConfig, RunConfig};

use super::error::Error;
use super::input::{Changes, HostFile, Whose};
use super::live::{
    EnforcementArgs, Steps, evidence, replay, replay_text, run_and_record, scheduler_of, trace,
};
use super::output::{OutFile, Ui};
use super::rights::{self, Needs};
use super::{exit, report};

/// Run a host file on this machine: real VMs or processes, their vCPUs under the pools' policies.
///
/// Starts each domain as the file says (`vm`, `process`, `attach`; by default a VM with the project's guest),
/// runs the task sets under enforcement, and ends the domains. All changes to this machine are undone,
/// however the run ends; `punctual restore` undoes them if the run and its guardian were both killed. Needs
/// root (or CAP_SYS_NICE and a writable cgroup v2), and leaves at least one processor to the host.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual run examples/five-vms.toml                      five real VMs under the file's policy\n  \
    punctual run examples/five-vms.toml --as process         the same task sets without QEMU\n  \
    punctual run examples/five-vms.toml --policy linux-cfs   what plain Linux does with them\n  \
    punctual run examples/five-vms.toml --apply              with what the doctor would change\n  \
    punctual run examples/five-vms.toml --report live.html   open it in a browser\n  \
    punctual run host.toml --json > live.json && punctual sim host.toml --json > sim.json\n  \
    punctual compare sim.json live.json")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's; also linux-cfs, linux-fifo and
    /// linux-deadline, which are plain Linux for comparison. Several policies (repeated or separated by
    /// commas) run one after another and are shown side by side.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,
    /// Default backend for domains that specify none of `vm`, `process` and `attach`.
    #[arg(long = "as", value_name = "FORM", default_value = "vm")]
    default_backend: DefaultBackendArg,
    #[command(flatten)]
    enforcement: EnforcementArgs,
    #[command(flatten)]
    changes: Changes,
    /// Exit with 1 if any deadline was missed, and with 6 if only jobs that the machine itself disturbed
    /// missed theirs. With `=ours`, misses of disturbed jobs are no failure.
    #[arg(long, value_name = "WHOSE", num_args = 0..=1, require_equals = true, default_missing_value = "any")]
    fail_on_miss: Option<Whose>,
    /// Explain late jobs: the parts of their response times, and the worst jobs.
    #[arg(long)]
    blame: bool,
    /// Afterwards simulate the same jobs under the same policies, with processors unavailable when they were
    /// measured to be, and show live and replayed results side by side. Plain Linux is not replayed.
    #[arg(long)]
    replay: bool,
    /// Connect an uplink to the switch of a network: [NETWORK=]KIND:WHAT[,priority=N], as `punctual switch`
    /// does. Repeat for more.
    #[arg(long, value_name = "UPLINK")]
    uplink: Vec<String>,
    /// Check the switches' invariants continuously; exit code 3 if one is violated.
    #[arg(long)]
    check: bool,
    /// Run another program instead of the guest program, for a domain that is a process. Tests use it for
    /// hostile guests.
    #[arg(long, value_name = "DOMAIN=PROGRAM", hide = true, value_parser = guest_program)]
    guest_program: Vec<(String, PathBuf)>,
}

fn guest_program(text: &str) -> Result<(String, PathBuf), &'static str> {
    let (domain, program) = text.split_once('=').ok_or("a domain, `=` and a program")?;
    Ok((domain.to_owned(), program.into()))
}

/// Default backend for domains that do not specify one.
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

/// A host under one of the policies.
struct Variant<'a> {
    name: Option<&'a str>,
    linux: Option<LinuxScheduler>,
    host: Host,
}

/// What the runs measured.
#[derive(Default)]
struct Measured {
    columns: Vec<Column>,
    /// Of those under our policies, by the position of their column, if asked for.
    replays: Vec<(usize, Column)>,
    /// Evidence of enforcement, as text.
    reports: Vec<String>,
    /// The timeline, if `--trace` was given.
    timeline: Option<Timeline>,
    stopped: bool,
}

/// Runs `punctual run`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    args.enforcement.keep_inputs(&args.file)?;
    let variants = variants(args)?;
    rights::check("run", Needs::Scheduling)?;
    let page = args.enforcement.report.as_deref().map(OutFile::create).transpose()?;
    // With several policies, or with plain Linux, there is no single analysis to show.
    let guarantees = match variants.as_slice() {
        [Variant { linux: None, host, .. }] if page.is_some() => Some(punctual_check::check(host)),
        _ => None,
    };
    let mut measured = Measured::default();
    let mut steps = Steps::new(args.enforcement.progress);
    for (number, variant) in variants.iter().enumerate() {
        if variants.len() > 1 {
            steps.begin(number + 1, variants.len(), variant.name.unwrap_or_default());
        }
        measure(variant, args, variants.len() > 1, &steps, &mut measured, ui)?;
        if measured.stopped {
            break;
        }
    }
    print(args, variants.len() > 1, &measured, ui)?;
    let Measured { columns, replays, stopped, timeline, .. } = measured;
    let exit_code = exit_code(&columns, args.fail_on_miss);
    if let Some(page) = page {
        let columns = with_replays(columns, replays);
        let timeline = timeline.as_ref().map(|timeline| (columns[0].label.as_str(), timeline));
        report::write(page, &Page { columns: &columns, guarantees: guarantees.as_ref(), timeline })?;
    }
    if stopped {
        return Err(Error::Interrupted);
    }
    Ok(exit_code)
}

/// The host under each policy; all are validated before the first VM boots.
fn variants(args: &Args) -> Result<Vec<Variant<'_>>, Error> {
    let file = HostFile::read(&args.file)?;
    let names: Vec<Option<&str>> = match args.policy.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut variants = Vec::new();
    for name in names {
        let (linux, policy) = scheduler_of(name);
        let host = file.host(&args.changes.overrides(policy))?;
        variants.push(Variant { name, linux, host });
    }
    if args.enforcement.output.is_some() && variants.len() > 1 {
        return Err(Error::Usage("--output writes the results of one policy; use --json for several".into()));
    }
    if args.enforcement.trace.is_some() && variants.len() > 1 {
        return Err(Error::Usage("--trace records a run under one policy: give at most one --policy".into()));
    }
    Ok(variants)
}

/// Runs a host under one policy; of several, shows its column at once.
fn measure(
    Variant { name, linux, host }: &Variant<'_>,
    args: &Args,
    has_others: bool,
    steps: &Steps,
    measured: &mut Measured,
    ui: &Ui,
) -> Result<(), Error> {
    let Args { enforcement, default_backend, guest_program, uplink, check, .. } = args;
    let networks = NetworkConfig { uplinks: uplink, check: *check, ..NetworkConfig::default() };
    let config = enforcement.config((*default_backend).into(), *linux, networks)?;
    let config = RunConfig { guest_programs: guest_program, ..config };
    let (outcome, switches) = run_and_record(host, &config, enforcement, steps, ui)?;
    if enforcement.trace.is_some() {
        measured.timeline = trace::timeline(host, &outcome);
    }
    measured.reports.push(evidence(&outcome.report) + &switches);
    measured.stopped = outcome.stopped;
    let label = enforcement.label.of(name.unwrap_or("file's policy"), has_others);
    let mut column = Column { label, results: outcome.results };
    enforcement.label.keep(&mut column);
    if args.replay && linux.is_none() {
        measured.replays.push((measured.columns.len(), replay(host, &column)?));
    }
    measured.columns.push(column);
    if has_others {
        let column = &measured.columns[measured.columns.len() - 1..];
        steps.show(&table::miss_columns(column, ui.stderr_has_colour()));
    }
    Ok(())
}

fn print(args: &Args, has_others: bool, measured: &Measured, ui: &Ui) -> Result<(), Error> {
    let colour = ui.stdout_has_colour();
    let Measured { columns, replays, reports, .. } = measured;
    match (has_others, args.enforcement.json) {
        (true, true) => return ui.print(json::all_to_json(columns.iter().map(|column| &column.results))),
        (false, true) => return ui.print(json::to_json(&columns[0].results)),
        (true, false) => {
            ui.print(table::side_by_side(columns, colour))?;
            columns.iter().filter(|_| args.blame).try_for_each(|column| report::print_blame(column, ui))?;
        }
        (false, false) => {
            ui.print(table::summary(&columns[0].results, colour))?;
            if args.blame {
                ui.print(report::blame(&columns[0].results, ui))?;
            }
        }
    }
    ui.print(reports.concat())?;
    if !replays.is_empty() {
        ui.print(replay_text(&with_replays(columns.clone(), replays.clone()), colour))?;
    }
    if has_others {
        ui.print(format!("\n{}", table::verdict(columns)))?;
    }
    Ok(())
}

/// Each result, and after it its replay.
fn with_replays(columns: Vec<Column>, replays: Vec<(usize, Column)>) -> Vec<Column> {
    let mut replays = replays.into_iter().peekable();
    let pair = |(position, column)| {
        let replay = replays.next_if(|(of, _)| *of == position).map(|(_, replay)| replay);
        [Some(column), replay]
    };
    columns.into_iter().enumerate().flat_map(pair).flatten().collect()
}

fn exit_code(columns: &[Column], fail_on_miss: Option<Whose>) -> u8 {
    let any = |holds: fn(&Results) -> bool| columns.iter().any(|column| holds(&column.results));
    let is_incomplete = any(|results| {
        results.domains.iter().any(|domain| domain.verdict.is_some())
            || results.vcpus.iter().any(|vcpu| vcpu.not_enforced.is_some())
    });
    let has_missed = any(|results| results.pools.iter().any(|pool| pool.jobs.missed > 0));
    let has_missed_undisturbed = any(|results| results.missed_undisturbed() > 0);
    match fail_on_miss {
        Some(_) if is_incomplete || has_missed_undisturbed => exit::MISSED,
        Some(Whose::Any) if has_missed => exit::DISTURBED,
        _ if is_incomplete => exit::INCOMPLETE,
        _ => exit::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_model::file::{self, Overrides};
    use punctual_model::results::{DisturbedJobs, JobStats, ResultsBuilder, Source, TaskTotals, VcpuTotals};

    fn column(missed: u64, disturbed: Option<u64>) -> Column {
        let text = "[machine]\nprocessors = 2\n[pool.p]\nprocessors = [1]\npolicy = \"fixed-priority\"\n\
                    [domain.d]\npriority = 1\n[domain.d.task.t]\nperiod = \"10ms\"\ncost = \"1ms\"\n";
        let host = file::parse(text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let mut results = ResultsBuilder::new(&host, Source::Live);
        results.tasks([TaskTotals {
            jobs: JobStats { due: 10, missed, ..JobStats::default() },
            disturbed: disturbed.map(|missed| DisturbedJobs { due: missed, missed }),
            ..TaskTotals::default()
        }]);
        results.vcpus([VcpuTotals::default()]);
        Column { label: "live".into(), results: results.build() }
    }

    #[test]
    fn the_exit_code_says_whose_misses_there_were() {
        let codes = |missed, disturbed| {
            [None, Some(Whose::Any), Some(Whose::Ours)]
                .map(|whose| exit_code(&[column(missed, disturbed)], whose))
        };
        assert_eq!(codes(0, Some(0)), [exit::OK, exit::OK, exit::OK]);
        assert_eq!(codes(3, Some(3)), [exit::OK, exit::DISTURBED, exit::OK]);
        assert_eq!(codes(3, Some(2)), [exit::OK, exit::MISSED, exit::MISSED]);
        assert_eq!(codes(3, None), [exit::OK, exit::MISSED, exit::MISSED]);
    }
}
