//! `punctual sim`: one host, or several hosts and policies side by side.

use std::path::PathBuf;

use punctual_analysis::{lock_warnings, vcpu_warnings};
use punctual_host_stack::HostStack;
use punctual_model::guarantees::Warning;
use punctual_model::results::FlowResult;
use punctual_model::{AnyHost, Guarantees, Host, Results};
use punctual_report::html::Page;
use punctual_report::timeline::Reader;
use punctual_report::trace::{PerfettoWriter, StackWriter};
use punctual_report::{Column, json, table};
use punctual_sched::Instant;
use punctual_sim::{JobLog, Tracer};

use super::error::Error;
use super::input::{
    CHUNK, Changes, Costs, HostFile, Label, Policies, RUNS_MAX, THREADS_MAX, Whose, thread_pool,
};
use super::jobs::{self, JobsFile, NO_BLAME, Spool, violation};
use super::output::{OutFile, Ui, keep_inputs, wrapped};
use super::report::{self, Interval};
use super::{exit, interrupt};

/// Simulate a host and show which tasks miss deadlines.
///
/// Results of several files or policies are shown side by side. The same file and options give the same
/// bytes on every machine, with any number of threads.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual sim host.toml\n  \
    punctual sim host.toml --policy deferrable,periodic,rtds\n  \
    punctual sim host.toml --set domain.video.budget=3ms --duration 60s --detail\n  \
    punctual sim host.toml --policy all --runs 20\n  \
    punctual sim host.toml --policy rtds,edf --jobs jobs.csv          (a row for each job)\n  \
    punctual sim host.toml --fail-on-miss --json > results.json\n  \
    punctual sim host.toml --blame                   (why were jobs late?)\n  \
    punctual sim host.toml --trace host.pftrace      (open it at https://ui.perfetto.dev)\n  \
    punctual sim host.toml --report host.html        (open it in a browser)")]
pub(super) struct Args {
    /// Host files; `-` reads standard input.
    #[arg(value_name = "HOST.toml", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: Costs,
    /// Merge this many runs with the seeds N, N+1, ...; each draws its generated task sets again.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    /// Print results as JSON: one object, or an array of them when there are several.
    #[arg(long)]
    json: bool,
    /// Show every metric of every task, vCPU, domain, processor, pool, flow and network.
    #[arg(long, conflicts_with = "json")]
    detail: bool,
    /// Explain late jobs: the parts of their response times, and the worst jobs. JSON results include them.
    #[arg(long)]
    blame: bool,
    /// Write what happened as a Perfetto trace; for a single run under a single policy.
    #[arg(long, value_name = "OUT.pftrace")]
    trace: Option<PathBuf>,
    /// Write a row for each job: CSV, or Parquet if the name ends in .parquet.
    #[arg(long, value_name = "OUT.csv")]
    jobs: Option<PathBuf>,
    /// Write a report as one HTML page: verdicts, analysis, results, and a timeline of the (first) run.
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,
    /// Exit with 1 if any deadline was missed. Nothing disturbs a simulated machine, so `=ours`, which
    /// `punctual run` has, means the same.
    #[arg(long, value_name = "WHOSE", num_args = 0..=1, require_equals = true, default_missing_value = "any")]
    fail_on_miss: Option<Whose>,
    #[command(flatten)]
    label: Label,
    #[command(flatten)]
    interval: Interval,
    /// Use this many threads instead of one per processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX))]
    threads: Option<u16>,
}

/// One column: a file under a policy.
struct Variant<'a> {
    label: String,
    file: &'a HostFile,
    policy: Option<String>,
    /// The host of the first run.
    first: AnyHost,
}

/// Runs `punctual sim`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    if let Some(twice) = args.files.iter().enumerate().find(|(at, file)| args.files[..*at].contains(file)) {
        return Err(Error::Usage(format!("{} is given twice", twice.1.display())));
    }
    let inputs: Vec<PathBuf> = args.files.iter().cloned().chain(args.costs.file()).collect();
    keep_inputs(&inputs, &[&args.trace, &args.jobs, &args.report])?;
    let files = HostFile::read_all(&args.files)?;
    let page = args.report.as_deref().map(OutFile::create).transpose()?;
    let variants = variants(args, &files, ui)?;
    warn_of_vcpus(&variants, ui);
    let jobs = args.jobs.as_deref().map(|path| JobsFile::create(path, &["result"])).transpose()?;
    let results = match (variants.as_slice(), args.runs) {
        ([variant], 1) if args.trace.is_some() || jobs.is_some() => vec![observed(args, variant, jobs)?],
        _ if args.trace.is_some() => {
            let text = "--trace shows a single run: give one file, at most one --policy and no --runs";
            return Err(Error::Usage(text.into()));
        }
        _ => simulate_all(args, &variants, jobs, ui)?,
    };
    let labels = variants.iter().map(|variant| variant.label.clone());
    let mut columns: Vec<Column> =
        labels.zip(results).map(|(label, results)| Column { label, results }).collect();
    columns.iter_mut().for_each(|column| args.label.keep(column));
    print(args, &columns, ui)?;
    if !args.json
        && let Some(text) = variants.iter().find_map(|variant| free_scheduling(&variant.first))
    {
        ui.print(wrapped("", "  ", &format!("note: {text}")))?;
    }
    if let Some(page) = page {
        report::drop_directories(&mut columns);
        write_report(page, args, &variants, &columns)?;
    }
    let missed = columns.iter().any(|Column { results, .. }| {
        let of_pools = results.pools.iter().map(|pool| &pool.jobs);
        of_pools.chain(results.chains.iter().map(|chain| &chain.jobs)).any(|jobs| jobs.missed > 0)
            || results.flows.iter().any(FlowResult::missed)
    });
    Ok(if missed && args.fail_on_miss.is_some() { exit::MISSED } else { exit::OK })
}

/// Every file under every policy, validated.
fn variants<'a>(args: &Args, files: &'a [HostFile], ui: &Ui) -> Result<Vec<Variant<'a>>, Error> {
    let choices = args.policies.choices();
    let mut variants = Vec::new();
    for file in files {
        if args.policies.all() {
            // Errors of the file itself are reported once.
            file.any_host(&args.costs.overrides(&args.changes, None))?;
        }
        for policy in &choices {
            match file.any_host(&args.costs.overrides(&args.changes, policy.clone())) {
                Ok(first) => {
                    let label = label(file, policy.as_deref(), files.len(), choices.len());
                    variants.push(Variant { label, file, policy: policy.clone(), first });
                }
                Err(errors) if args.policies.all() => {
                    let name = policy.as_deref().unwrap_or_default();
                    let why = &errors.records()[0];
                    ui.warn(&format!("{name} is left out: {}; {}", why.message, why.expected));
                }
                Err(errors) => return Err(errors.into()),
            }
        }
    }
    let has_others = variants.len() > 1;
    for variant in &mut variants {
        variant.label = args.label.of(&variant.label, has_others);
    }
    if variants.is_empty() {
        Err(Error::Usage("no policy can schedule this host".into()))
    } else {
        Ok(variants)
    }
}

/// Warns of domains with more vCPUs than processors, and of deadlocks, once where that is the same in several
/// variants.
fn warn_of_vcpus(variants: &[Variant<'_>], ui: &Ui) {
    let mut said: Vec<Warning> = Vec::new();
    for variant in variants {
        let AnyHost::Pools(host) = &variant.first else { continue };
        for warning in vcpu_warnings(host).into_iter().chain(lock_warnings(host)) {
            if !said.contains(&warning) {
                ui.warn(&format!("{}: {}", warning.about, warning.text));
                said.push(warning);
            }
        }
    }
}

/// A column's label: the policy, the file name without its extension, or both.
fn label(file: &HostFile, policy: Option<&str>, files: usize, policies: usize) -> String {
    let stem = file.name.strip_suffix(".toml").unwrap_or(&file.name);
    match (policy, files, policies) {
        (Some(policy), 1, _) => policy.to_string(),
        (Some(policy), _, 2..) => format!("{stem} {policy}"),
        _ => stem.to_string(),
    }
}

/// Simulates every run of every variant on all cores and merges the runs of each.
fn simulate_all(
    args: &Args,
    variants: &[Variant<'_>],
    mut jobs: Option<JobsFile>,
    ui: &Ui,
) -> Result<Vec<Results>, Error> {
    let threads = thread_pool(args.threads)?;
    let runs: Vec<(usize, u32)> =
        (0..variants.len()).flat_map(|v| (0..args.runs).map(move |r| (v, r))).collect();
    let bar = ui.progress(runs.len());
    let mut merged: Vec<Option<Results>> = variants.iter().map(|_| None).collect();
    let spools = jobs.as_ref().map(JobsFile::spools);
    for chunk in runs.chunks(CHUNK) {
        let hosts =
            chunk.iter().map(|&(v, run)| host_of(args, &variants[v], run)).collect::<Result<Vec<_>, _>>()?;
        let listed = |host: &AnyHost| {
            let mut spool = spools.as_ref().map(|spools| spools.spool(host));
            Ok((jobs::simulate(host, args.blame, spool.as_mut())?, spool))
        };
        let done: Vec<Result<(Results, Option<Spool>), _>> =
            threads.install(|| punctual_sim::simulate_all(&hosts, listed, || bar.inc(1)));
        for (&(v, _), done) in chunk.iter().zip(done) {
            let (results, spool) = done.map_err(|e| named(e, &variants[v], variants.len()))?;
            if let (Some(jobs), Some(spool)) = (&mut jobs, spool) {
                jobs.append(&[&variants[v].label], spool)?;
            }
            match &mut merged[v] {
                Some(sum) => sum.merge(&results).map_err(Error::usage)?,
                none => *none = Some(results),
            }
        }
    }
    bar.finish_and_clear();
    jobs.map_or(Ok(()), JobsFile::finish)?;
    Ok(merged.into_iter().map(|r| r.expect("every variant has a run")).collect())
}

/// What to say of a host without overheads. A host with `host_stack` has costs of its own.
fn free_scheduling(host: &AnyHost) -> Option<&'static str> {
    match host {
        AnyHost::Pools(host) => host.free_scheduling(),
        AnyHost::Stack(_) => None,
    }
}

/// The host of a run: the first one's seed plus the run's number.
fn host_of(args: &Args, variant: &Variant<'_>, run: u32) -> Result<AnyHost, Error> {
    if run == 0 {
        return Ok(variant.first.clone());
    }
    let mut overrides = args.costs.overrides(&args.changes, variant.policy.clone());
    overrides.seed = Some(variant.first.seed().saturating_add(run.into()));
    Ok(variant.file.any_host(&overrides)?)
}

/// An error of a simulation, saying which.
fn named(error: punctual_sim::Error, variant: &Variant<'_>, variants: usize) -> Error {
    use punctual_sim::Error::{Refused, Violation};
    match error {
        error if variants == 1 => error.into(),
        Refused(text) => Refused(format!("{}: {text}", variant.label)).into(),
        Violation(text) => Violation(format!("{}: {text}", variant.label)).into(),
    }
}

/// The only run, recorded as `--trace` and `--jobs` ask.
fn observed(args: &Args, variant: &Variant<'_>, mut jobs: Option<JobsFile>) -> Result<Results, Error> {
    let mut trace = args.trace.as_deref().map(OutFile::create).transpose()?;
    let labels = [variant.label.as_str()];
    let results = match &variant.first {
        AnyHost::Pools(host) => observe(host, args.blame, trace.as_mut(), jobs.as_mut(), &labels)?,
        AnyHost::Stack(_) if args.blame => return Err(Error::Usage(NO_BLAME.into())),
        AnyHost::Stack(stack) => observe_stack(stack, trace.as_mut())?,
    };
    trace.map_or(Ok(()), OutFile::finish)?;
    jobs.map_or(Ok(()), JobsFile::finish)?;
    Ok(results)
}

fn observe(
    host: &Host,
    blame: bool,
    trace: Option<&mut OutFile>,
    jobs: Option<&mut JobsFile>,
    labels: &[&str],
) -> Result<Results, Error> {
    let mut trace = trace.map(|file| PerfettoWriter::new(host, file));
    let tracer = trace.as_mut().map(|writer| Tracer::new(host, writer));
    let observers = (tracer, jobs.map(|file| JobLog::new(host, file.sink(labels, host))));
    let results = if blame {
        punctual_sim::simulate_blamed(host, observers)?
    } else {
        punctual_sim::simulate_observed(host, observers)?
    };
    let end = Instant::ZERO + host.duration;
    // The error names the file.
    let unwritten = |e: std::io::Error| Error::Usage(e.to_string());
    trace.map_or(Ok(()), |trace| trace.finish(end).map(drop)).map_err(unwritten)?;
    Ok(results)
}

/// The same of a host with `host_stack`, which has requests, but no jobs.
fn observe_stack(stack: &HostStack, trace: Option<&mut OutFile>) -> Result<Results, Error> {
    let Some(file) = trace else { return Ok(punctual_host_stack_sim::simulate(stack)?) };
    let mut writer = StackWriter::new(stack, file);
    let results = punctual_host_stack_sim::simulate_traced(stack, &mut writer)?;
    // The error names the file.
    writer.finish(Instant::ZERO + stack.duration).map_err(Error::usage)?;
    Ok(results)
}

/// Writes what happens on `host` to the reader of a timeline, which takes every byte.
fn write_timeline(host: &AnyHost, reader: &mut Reader) -> Result<(), punctual_sim::Error> {
    let end = Instant::ZERO + host.duration();
    match host {
        AnyHost::Pools(host) => {
            let mut writer = PerfettoWriter::new(host, reader);
            punctual_sim::simulate_traced(host, &mut writer)?;
            let _ = writer.finish(end);
        }
        AnyHost::Stack(stack) => {
            let mut writer = StackWriter::new(stack, reader);
            punctual_host_stack_sim::simulate_traced(stack, &mut writer).map_err(violation)?;
            let _ = writer.finish(end);
        }
    }
    Ok(())
}

/// What the analysis of deadlines says. A host with `host_stack` has no tasks.
fn guarantees(host: &AnyHost) -> Guarantees {
    match host {
        AnyHost::Pools(host) => punctual_check::check(host),
        AnyHost::Stack(stack) => Guarantees {
            host: stack.name.clone(),
            tasks: Vec::new(),
            vcpus: Vec::new(),
            flows: Vec::new(),
            chains: Vec::new(),
            warnings: Vec::new(),
            remedies: Vec::new(),
            modes: Vec::new(),
        },
    }
}

/// The page: all results, what the analysis says about the host as described, and what happened in the first
/// run.
fn write_report(
    out: OutFile,
    args: &Args,
    variants: &[Variant<'_>],
    columns: &[Column],
) -> Result<(), Error> {
    let first = &variants[0];
    let pass = |reader: &mut Reader| Ok(write_timeline(&first.first, reader)?);
    let timeline = args.interval.timeline(pass, &|e| format!("no timeline: {e}"))?;
    // With several hosts or policies there is no single analysis to show.
    let guarantees = match variants {
        [_] => Some(guarantees(&first.first)),
        _ => None,
    };
    let timeline = Some((columns[0].label.as_str(), &timeline));
    report::write(out, &Page { columns, guarantees: guarantees.as_ref(), timeline })
}

fn print(args: &Args, columns: &[Column], ui: &Ui) -> Result<(), Error> {
    let colour = ui.stdout_has_colour();
    let all = || columns.iter().map(|column| &column.results);
    match columns {
        [one] if args.json => ui.print(json::to_json(&one.results)),
        _ if args.json => ui.print(json::all_to_json(all())),
        _ if args.detail => {
            let details: Vec<String> = all().map(|results| table::detail(results, colour)).collect();
            ui.print(details.join("\n"))
        }
        [one] => {
            ui.print(table::summary(&one.results, colour))?;
            if args.blame { ui.print(report::blame(&one.results, ui)) } else { Ok(()) }
        }
        _ => {
            ui.print(format!("{}\n{}", table::side_by_side(columns, colour), table::verdict(columns)))?;
            columns.iter().filter(|_| args.blame).try_for_each(|column| report::print_blame(column, ui))
        }
    }
}
