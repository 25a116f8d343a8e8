//! `punctual export`: a host's scheduling parameters as settings of other tools.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use punctual_model::export::{Export, ExportFile, Keep, Target, export};

use super::error::Error;
use super::exit;
use super::input::{Changes, HostFile};
use super::output::{OutFile, Overwrite, Ui, make_directory};

/// Write a host's scheduling parameters as settings of Xen, libvirt, systemd or QEMU.
///
/// Standard error and the files name everything that the target cannot express. Values are rounded so that
/// no unit gets less. docs/export.md explains each conversion and how to use the files.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual export examples/mixed-pools.toml --to xl                     look at it\n  \
    punctual export examples/mixed-pools.toml --to xl --output settings   a file each\n  \
    punctual export host.toml --to xen                       Xen with sched=punctual: nothing is lost\n  \
    punctual export host.toml --to libvirt --keep priority                SCHED_FIFO instead of quotas\n  \
    punctual export host.toml --to virsh --output settings                for domains that run\n  \
    punctual export host.toml --to systemd --json | jq '.losses[]'        what is left out")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Whose settings to write.
    #[arg(long, value_name = "TARGET")]
    to: TargetName,
    /// Which of budget and priority to keep where Linux can enforce only one of them.
    #[arg(long, value_name = "WHAT", default_value = "budget")]
    keep: KeepName,
    /// Write the files into this directory, created if missing; `-` prints them one after another.
    #[arg(long, value_name = "DIR", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Exit with 1 if the target cannot express something of the host.
    #[arg(long)]
    fail_on_loss: bool,
    /// Print files and losses as JSON.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    #[command(flatten)]
    changes: Changes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TargetName {
    /// Xen: cpupool and domain configuration, a script of xl commands.
    Xl,
    /// The same for a Xen with Punctual's scheduler, with every policy and parameter.
    Xen,
    /// Domain XML: vcpu and cputune.
    Libvirt,
    /// A script of virsh commands for domains that run.
    Virsh,
    /// Drop-ins of service units, also for tasks.
    Systemd,
    /// Scripts that start QEMU and set its threads.
    Qemu,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeepName {
    /// Budget and period; Linux decides the order.
    Budget,
    /// The order of priorities (SCHED_FIFO), without limits.
    Priority,
}

/// Runs `punctual export`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let host = HostFile::read(&args.file)?.host(&args.changes.overrides(args.policy.clone()))?;
    let target = match args.to {
        TargetName::Xl => Target::Xl,
        TargetName::Xen => Target::Xen,
        TargetName::Libvirt => Target::Libvirt,
        TargetName::Virsh => Target::Virsh,
        TargetName::Systemd => Target::Systemd,
        TargetName::Qemu => Target::Qemu,
    };
    let keep = match args.keep {
        KeepName::Budget => Keep::Budget,
        KeepName::Priority => Keep::Priority,
    };
    let made = export(&host, target, keep);
    if args.json {
        ui.print_json(&made)?;
    } else if args.output == Path::new("-") {
        ui.print(one_after_another(&made))?;
    } else {
        made.files.iter().try_for_each(|file| args.overwrite.permit(&args.output.join(&file.name)))?;
        write_all(&made.files, &args.output)?;
        ui.print(listing(&made, &args.output))?;
    }
    for loss in &made.losses {
        ui.warn(&format!("{}: {}: {}", loss.item, loss.field, loss.why));
    }
    Ok(if args.fail_on_loss && !made.losses.is_empty() { exit::MISSED } else { exit::OK })
}

fn one_after_another(made: &Export) -> String {
    let headed = |file: &ExportFile| format!("==> {} <==\n{}", file.name, file.text);
    made.files.iter().map(headed).collect::<Vec<_>>().join("\n")
}

fn listing(made: &Export, directory: &Path) -> String {
    made.files.iter().map(|file| format!("{}\n", directory.join(&file.name).display())).collect()
}

fn write_all(files: &[ExportFile], directory: &Path) -> Result<(), Error> {
    for file in files {
        let path = directory.join(&file.name);
        if let Some(parent) = path.parent() {
            make_directory(parent)?;
        }
        OutFile::write(&path, |out| out.write_all(file.text.as_bytes()))?;
    }
    Ok(())
}
