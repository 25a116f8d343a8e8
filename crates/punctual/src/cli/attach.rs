//! `punctual attach`: puts running VMs and processes under the policies of a host file.

use std::path::PathBuf;

use punctual_enforce::session::LinuxScheduler;
use punctual_model::Host;
use punctual_model::file::says_duration;
use punctual_model::live::Backend;
use punctual_report::html::Page;
use punctual_report::{Column, disturbance, json, table};
use punctual_run::config::{DefaultBackend, NetworkConfig};
use punctual_run::run::{ENDLESS, attach_targets};

use super::error::Error;
use super::input::{Changes, HostFile};
use super::live::{EnforcementArgs, Steps, evidence, of_vcpus, run_and_record, scheduler_of, targets, trace};
use super::output::{OutFile, Ui};
use super::rights::{self, Needs};
use super::{exit, interrupt, report};

/// Put running VMs, processes or threads under the policies of a host file until the command ends.
///
/// Each domain of the file names its target by `attach`: QEMU by its QMP socket or process, a libvirt domain,
/// Firecracker, Cloud Hypervisor, or thread ids. Ends with Ctrl-C, or after the file's `duration` or
/// --duration if there is one. The targets keep running, and every thread gets its scheduling parameters
/// back.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual attach host.toml --dry-run                      what would be scheduled how\n  \
    punctual attach host.toml                                until Ctrl-C\n  \
    punctual attach host.toml --duration 60s --json\n  \
    punctual attach host.toml & punctual top")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Show which threads would be scheduled how, and change nothing. Needs no root to read /proc; with
    /// --json as JSON.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    enforcement: EnforcementArgs,
    #[command(flatten)]
    changes: Changes,
}

/// Shows what a run would attach to.
fn dry_run(host: &Host, linux: Option<LinuxScheduler>, args: &Args, ui: &Ui) -> Result<u8, Error> {
    of_vcpus(host, ui);
    let config = args.enforcement.config(DefaultBackend::Process, linux, NetworkConfig::default())?;
    let found = attach_targets(host, &config, interrupt::stopped);
    let targets = found.map_err(Error::usage)?;
    if args.enforcement.json {
        ui.print_json(&targets)?;
    } else {
        ui.print(targets::text(&targets) + "nothing was changed\n")?;
    }
    Ok(exit::OK)
}

/// Runs `punctual attach`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    args.enforcement.keep_inputs(&args.file)?;
    let (linux, policy) = scheduler_of(args.policy.as_deref());
    let (file, overrides) = (HostFile::read(&args.file)?, args.changes.overrides(policy));
    let mut host = file.host(&overrides)?;
    let other = host.domains.iter().find(|domain| !matches!(domain.live.backend, Backend::Attach(_)));
    if let Some(domain) = other {
        return Err(Error::Usage(format!(
            "domain `{name}` names nothing to attach to\n  \
             expected for example `attach = {{ libvirt = \"{name}\" }}` or `attach = {{ process = PID }}` in \
             [domain.{name}]; `punctual run` starts domains",
            name = domain.name
        )));
    }
    if !says_duration(file.bytes(), &overrides) {
        host.duration = ENDLESS;
    }
    if args.dry_run {
        return dry_run(&host, linux, args, ui);
    }
    rights::check("attach", Needs::Scheduling)?;
    let page = args.enforcement.report.as_deref().map(OutFile::create).transpose()?;
    let steps = Steps::new(args.enforcement.progress);
    let networks = NetworkConfig { find_running: true, ..NetworkConfig::default() };
    let config = args.enforcement.config(DefaultBackend::Process, linux, networks)?;
    let (outcome, switches) = run_and_record(&host, &config, &args.enforcement, &steps, ui)?;
    if args.enforcement.json {
        ui.print(json::to_json(&outcome.results))?
    } else {
        let colour = ui.stdout_has_colour();
        for sentence in disturbance::sentences(&outcome.results) {
            ui.print(format!("{sentence}\n"))?;
        }
        ui.print(table::deliveries(&outcome.results, colour))?;
        ui.print(evidence(&outcome.report))?;
        ui.print(switches)?;
    }
    let is_enforced = outcome.results.vcpus.iter().all(|vcpu| vcpu.not_enforced.is_none());
    if let Some(page) = page {
        let has_trace = args.enforcement.trace.is_some();
        let timeline = has_trace.then(|| trace::timeline(&host, &outcome)).flatten();
        let label = args.enforcement.label.of(&outcome.results.host, false);
        let columns = [Column { label, results: outcome.results }];
        let timeline = timeline.as_ref().map(|timeline| (columns[0].label.as_str(), timeline));
        report::write(page, &Page { columns: &columns, guarantees: None, timeline })?;
    }
    Ok(if is_enforced { exit::OK } else { exit::INCOMPLETE })
}
