//! `punctual exec`: a program in a class.

use std::ffi::OsString;
use std::path::PathBuf;

use punctual_model::file::nearest;
use punctual_model::service::ExecName;
use punctual_model::text::printable;
use punctual_service::client::Client;
use punctual_service::exec::{SYSTEMD_RUN, exec};
use punctual_service::view::HostView;

use super::error::Error;

/// Start a program in a class of the service, for example cyclictest.
///
/// The class is the one with `match = [{ exec = "NAME" }]`. systemd makes a scope for the program
/// (`systemd-run --scope`), which the service finds as it finds other units: all that the program starts has
/// one budget with it. Terminal, directory, environment and exit status are the program's own. Needs a
/// running `punctual serve`, systemd, and root or the permission of polkit to start a scope.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual exec capture -- tcpdump -i eno6 -w /tmp/bus.pcap\n  \
    punctual exec test -- cyclictest --mlockall --priority 80 --interval 1000")]
pub(super) struct Args {
    /// The name in the class.
    #[arg(value_name = "NAME", value_parser = ExecName::parse)]
    name: ExecName,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// The program and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs `punctual exec`; returns only if the program was not started.
pub(super) fn run(args: &Args) -> Result<u8, Error> {
    let host = Client::connect(&args.run).and_then(|mut client| client.status()).map_err(Error::usage)?;
    check(&host, args.name.name())?;
    let error = exec(&args.name, &args.command);
    Err(Error::Usage(format!(
        "{SYSTEMD_RUN} cannot be started, which makes a scope for the program: {error}"
    )))
}

/// Does a class match that name?
fn check(host: &HostView, name: &str) -> Result<(), Error> {
    let names = || host.classes.iter().flat_map(|class| class.exec.iter().map(String::as_str));
    if names().any(|one| one == name) {
        return Ok(());
    }
    let mut said = format!("no class of the service has match = [{{ exec = \"{name}\" }}]");
    if let Some(near) = nearest(name, names()) {
        said += &format!("; did you mean \"{near}\"?");
    }
    Err(Error::usage(printable(&said)))
}
