//! `punctual xen`: the scheduler inside a Xen, from its domain 0; and what was recorded there.

mod pool;
mod replay;
mod run;
mod set;
mod show;
mod timeline;

use super::error::Error;
use super::output::Ui;

/// Show and set the parameters of Punctual's scheduler in Xen, or replay its decisions.
///
/// Needs Xen with `sched=punctual` (docs/xen.md) and runs in domain 0, with `xl` there; `replay` runs
/// anywhere. `xl sched-rtds`, `xl vcpu-pin` and `xl cpupool-*` also work with this scheduler.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen show                                        policies, parameters, budgets left\n  \
    punctual xen pool Pool-0 --policy deferrable --option quantum=1ms\n  \
    punctual xen set video --budget 4ms --period 10ms --priority 1\n  \
    punctual xen set control/0 --budget 1ms --period 5ms --extratime false\n  \
    punctual xen run host.toml --json > xen.json             its domains as guests of Xen\n  \
    xentrace -D -e 0x22000 trace & punctual xen pool Pool-0 --policy rtds; sleep 60; kill %1\n  \
    punctual xen replay trace --trace xen.pftrace            the same decisions here?")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Show(show::Args),
    Pool(pool::Args),
    Set(set::Args),
    Run(run::Args),
    Replay(replay::Args),
}

/// Runs `punctual xen`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    match &args.command {
        Command::Show(args) => show::run(args, ui),
        Command::Pool(args) => pool::run(args, ui),
        Command::Set(args) => set::run(args, ui),
        Command::Run(args) => run::run(args, ui),
        Command::Replay(args) => replay::run(args, ui),
    }
}
