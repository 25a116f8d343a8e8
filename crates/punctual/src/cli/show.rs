//! `punctual show`: the host as the other commands see it.

use std::path::PathBuf;

use super::error::Error;
use super::exit;
use super::input::{Changes, Costs, HostFile, PolicyName};
use super::output::Ui;

/// Print a host file after validation, with all defaults and generated tasks.
///
/// The output is a host file; options change it as they do for `sim`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual show examples/five-vms.toml\n  \
    punctual show examples/five-vms.toml --set 'domain.*.generate.load=90%' --seed 7 > mine.toml")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY", value_parser = PolicyName { or_all: false })]
    policy: Option<String>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: Costs,
}

/// Runs `punctual show`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let host =
        HostFile::read(&args.file)?.any_host(&args.costs.overrides(&args.changes, args.policy.clone()))?;
    ui.print(host.to_toml())?;
    Ok(exit::OK)
}
