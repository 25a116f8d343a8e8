//! `punctual enforce`: the process that holds VMs for the service.

use std::path::PathBuf;
use std::time::Duration;

use punctual_hold::{self as hold, GRACE, Options, Server};

use super::error::Error;
use super::live::{check_restored, own_program};
use super::output::Ui;
use super::{exit, interrupt};

/// Keep the VMs of the service under enforcement; the systemd unit punctual-enforce.service starts it.
///
/// `punctual serve` decides which VM belongs to which class and asks this process, which has the rights, to
/// hold it: its vCPUs get their budgets in their pool, and its other threads the processors that no pool has.
/// When the service is gone, what it wanted last is held for a minute more, so that it can be restarted or
/// upgraded. Ends with SIGTERM or Ctrl-C, and puts everything back, however it ends. docs/service.md explains
/// it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    systemctl enable --now punctual-enforce.socket           as installed\n  \
    punctual enforce --run ./run                             beside `punctual serve --run ./run`")]
pub(super) struct Args {
    /// Make the socket in DIRECTORY/punctual, unless systemd made it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// For how many seconds to hold what a service wanted that is gone.
    #[arg(long, value_name = "SECONDS", default_value_t = GRACE.as_secs())]
    grace: u64,
}

/// Runs `punctual enforce`.
pub(super) fn run(args: &Args, _ui: &Ui) -> Result<u8, Error> {
    let options = Options {
        run: args.run.clone(),
        program: own_program()?,
        end: interrupt::end_for_guardian,
        grace: Duration::from_secs(args.grace),
    };
    let restored = Server::open(&options)?.run()?;
    check_restored(&restored, Vec::new())?;
    Ok(exit::OK)
}

impl From<hold::Error> for Error {
    fn from(error: hold::Error) -> Self {
        match error {
            hold::Error::Session(failed) => Error::NotRestored(failed.to_string()),
            error => Error::usage(error),
        }
    }
}
