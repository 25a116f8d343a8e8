//! `punctual guardian` and `punctual launch`: processes that a live run starts for itself; `punctual hook`,
//! which libvirt starts; not for people.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use punctual_enforce::guardian::{GuardianOptions, Watched, say, watch};
use punctual_enforce::launch;
use punctual_linux::preflight::parse_cpu_list;
use punctual_run::hook::{SOCKET, announce};

use super::error::Error;
use super::exit;
use super::live::restored as put_back;
use super::output::Ui;

/// Undo the changes in a journal when the process that made them ends or hangs. A live run starts its own
/// guardian; standard input carries the heartbeat.
#[derive(clap::Args, Debug)]
pub(super) struct GuardianArgs {
    /// The journal.
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
    /// Longest silence in ms.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    limit_ms: u64,
    /// Processors to run on.
    #[arg(long, value_name = "LIST")]
    processors: String,
}

/// Start a program inside a cgroup, ending with this process's parent. A live run starts its domains this
/// way.
#[derive(clap::Args, Debug)]
pub(super) struct LaunchArgs {
    /// The group's directory.
    #[arg(long, value_name = "DIR")]
    group: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Send an event of a VM to the service. The hook of libvirt (/etc/libvirt/hooks/qemu.d/punctual) calls it.
#[derive(clap::Args, Debug)]
pub(super) struct HookArgs {
    /// Where the service listens.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// The arguments of the hook: the VM's name, operation, sub-operation.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Runs `punctual guardian`.
pub(super) fn guardian(args: &GuardianArgs, _ui: &Ui) -> Result<u8, Error> {
    let processors = parse_cpu_list(&args.processors)
        .ok_or_else(|| Error::Usage(format!("`{}` is not a list of processors", args.processors)))?;
    let limit = Duration::from_millis(args.limit_ms);
    // A signal for all processes of a service means the run, whose end this process waits for. Without a
    // handler the signal would end this process, as it would have before.
    let _ = ctrlc::set_handler(|| {});
    let Watched { reason, restored, is_told } =
        watch(&GuardianOptions { journal: args.journal.clone(), limit, processors })
            .map_err(|e| Error::Usage(format!("{}: {e}", args.journal.display())))?;
    // The run says itself what was put back, if it is still there.
    if let Some(reason) = reason {
        say(&format!("error: the guardian ended the run: {reason}\n{}", put_back(&restored)));
    } else if !is_told {
        say(&format!("the run has ended; {}", put_back(&restored)));
    }
    if !is_told {
        restored.failures.iter().for_each(|failure| say(&format!("not put back: {failure}")));
    }
    Ok(if restored.failures.is_empty() { exit::OK } else { exit::NOT_RESTORED })
}

/// Runs `punctual launch`.
pub(super) fn launch(args: &LaunchArgs, _ui: &Ui) -> Result<u8, Error> {
    Err(Error::usage(launch::launch(&args.group, &args.command)))
}

/// Runs `punctual hook`.
pub(super) fn hook(args: &HookArgs, _ui: &Ui) -> Result<u8, Error> {
    announce(&args.socket, &args.arguments).map_err(Error::usage)?;
    Ok(exit::OK)
}
