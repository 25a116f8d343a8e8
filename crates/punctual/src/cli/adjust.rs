//! `punctual adjust`, `pause` and `resume`: changes of one VM, until its process ends.

use std::path::PathBuf;

use punctual_model::service::Adjustment;
use punctual_sched::Duration;
use punctual_service::client::Client;

use super::admit::answer;
use super::error::Error;
use super::exit;
use super::input::some_time;
use super::output::Ui;

/// Give one VM another budget, period or priority than its class has, until its process ends.
///
/// A VM that is held keeps its place; its next budget is the new one. What is not given stays as it is. The
/// change outlives a restart of the service, and a reload of its configuration. Prints whose budgets are not
/// guaranteed then; with admission = "strict" such a change is refused. Needs a running `punctual serve`, and
/// root. Exit status 1: a budget is not guaranteed any more.
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("change").required(true).multiple(true),
    after_help = "Examples:\n  \
    punctual adjust relay-1 --budget 450us                   for its vCPUs, each period\n  \
    punctual adjust relay-1 --budget 900us --period 2ms --priority 1\n  \
    punctual adjust relay-1 --reset                          as its class says, and not paused"
)]
pub(super) struct Args {
    /// The VM, by its name or process.
    #[arg(value_name = "VM")]
    vm: String,
    /// Processor time of each vCPU per period.
    #[arg(long, value_name = "TIME", value_parser = some_time, group = "change")]
    budget: Option<Duration>,
    /// Replenishment period.
    #[arg(long, value_name = "TIME", value_parser = some_time, group = "change")]
    period: Option<Duration>,
    /// Fixed priority; a smaller number is more urgent.
    #[arg(long, value_name = "N", group = "change")]
    priority: Option<u32>,
    /// Forget all changes of this VM, and a pause.
    #[arg(long, group = "change", conflicts_with_all = ["budget", "period", "priority"])]
    reset: bool,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual adjust`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut client = Client::connect(&args.run).map_err(Error::usage)?;
    if args.reset {
        client.restore(&args.vm).map_err(Error::usage)?;
        return Ok(exit::OK);
    }
    let to = Adjustment {
        budget_ns: args.budget.map(Duration::as_ns),
        period_ns: args.period.map(Duration::as_ns),
        priority: args.priority,
    };
    let admission = client.adjust(&args.vm, &to).map_err(Error::usage)?;
    if args.json {
        ui.print_json(&admission)?;
    } else {
        let yes = "adjusted: nobody loses a guarantee\n";
        ui.print(answer(&admission, yes, "adjusted, but these budgets are not guaranteed any more\n"))?;
    }
    Ok(if admission.is_guaranteed { exit::OK } else { exit::MISSED })
}

/// Leave one VM alone: its threads are as they would be without Punctual.
///
/// The VM itself goes on. This lasts until `punctual resume` or the end of the VM's process, and outlives a
/// restart of the service. Needs a running `punctual serve`, and root.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual pause relay-1\n  \
    punctual resume relay-1")]
pub(super) struct PauseArgs {
    /// The VM, by its name or process.
    #[arg(value_name = "VM")]
    vm: String,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
}

/// Runs `punctual pause`.
pub(super) fn pause(args: &PauseArgs) -> Result<u8, Error> {
    let mut client = Client::connect(&args.run).map_err(Error::usage)?;
    client.pause(&args.vm).map_err(Error::usage)?;
    Ok(exit::OK)
}

/// Hold a VM again that was paused.
///
/// Needs a running `punctual serve`, and root.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  punctual resume relay-1")]
pub(super) struct ResumeArgs {
    /// The VM, by its name or process.
    #[arg(value_name = "VM")]
    vm: String,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
}

/// Runs `punctual resume`.
pub(super) fn resume(args: &ResumeArgs) -> Result<u8, Error> {
    let mut client = Client::connect(&args.run).map_err(Error::usage)?;
    client.resume(&args.vm).map_err(Error::usage)?;
    Ok(exit::OK)
}
