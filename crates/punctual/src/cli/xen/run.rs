//! `punctual xen run`: a host file in guests of Xen.

use std::path::PathBuf;

use punctual_report::{Column, json, table};
use punctual_xen_run::control::Control;
use punctual_xen_run::error as xen;
use punctual_xen_run::run::{RunOptions, run as run_host};

use super::super::error::Error;
use super::super::input::{Changes, HostFile, Label, PolicyName};
use super::super::output::Ui;
use super::super::{exit, interrupt};

/// Run a host file in guests of Xen, then undo all changes.
///
/// Its pools become cpupools and its domains PV guests with the project's guest program. A domain named
/// `Domain-0` describes domain 0 itself during the run, and its pool is the first cpupool.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen run labs/xen/hosts/three.toml --kernel /boot/vmlinux\n  \
    punctual xen run host.toml --policy rtds --duration 20s --json > xen.json")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY", value_parser = PolicyName { or_all: false })]
    policy: Option<String>,
    #[command(flatten)]
    changes: Changes,
    /// The Linux kernel of the guests: uncompressed, or in a format that xl accepts.
    #[arg(long, value_name = "FILE", default_value = "/vmlinux")]
    kernel: PathBuf,
    /// Memory of each guest.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory: u32,
    /// Print results as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    label: Label,
}

/// Runs `punctual xen run`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let host = HostFile::read(&args.file)?.host(&args.changes.overrides(args.policy.clone()))?;
    let mut control = Control::open()?;
    interrupt::be_graceful();
    let options = RunOptions {
        kernel: &args.kernel,
        memory_mib: args.memory,
        progress: &|text| eprintln!("{text}"),
        stop: interrupt::stopped,
    };
    let results = match run_host(&host, &mut control, &options) {
        Ok(results) => results,
        Err(xen::Error::Stopped) => return Err(Error::Interrupted),
        Err(_) if interrupt::stopped() => return Err(Error::Interrupted),
        Err(error) => return Err(Error::usage(error)),
    };
    let label = args.label.of("Xen", false);
    let mut column = Column { label, results };
    args.label.keep(&mut column);
    if args.json {
        ui.print(json::to_json(&column.results))?
    } else {
        ui.print(table::summary(&column.results, ui.stdout_has_colour()))?
    }
    Ok(exit::OK)
}
