//! `punctual serve`: the service of a host.

use std::path::{Path, PathBuf};

use punctual_service::config::{self, ConfigError};
use punctual_service::service::{self, Options, Service, processors};

use super::error::Error;
use super::exit;
use super::output::Ui;

/// Look after the VMs of this host for as long as it runs; the systemd unit punctuald.service starts it.
///
/// Finds VMs of libvirt, QEMU, Firecracker and Cloud Hypervisor, matches them to the classes of the
/// configuration, and counts what their threads run and wait. It changes nothing on the host. With
/// mode = "enforce" in the configuration it has `punctual enforce`, another process, keep the VMs of each
/// class under enforcement. `punctual status` shows both. SIGHUP reads the configuration again; a broken one
/// is refused and the one before stays. Ends with SIGTERM or Ctrl-C. docs/service.md explains it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual serve --check                                   is /etc/punctual valid?\n  \
    punctual serve --config ./punctual --run ./run           without root, beside an installed service\n  \
    systemctl enable --now punctuald && punctual status")]
pub(super) struct Args {
    /// Read host.toml and host.d/*.toml of this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = config::DIRECTORY)]
    config: PathBuf,
    /// Look for libvirt's files below this directory, and make the sockets in DIRECTORY/punctual.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Check the configuration and end.
    #[arg(long)]
    check: bool,
}

/// Runs `punctual serve`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    // An installed service may have no configuration; one that was named is meant.
    if args.config != Path::new(config::DIRECTORY) && !args.config.is_dir() {
        return Err(Error::Usage(format!("--config: there is no directory {}", args.config.display())));
    }
    if args.check {
        let loaded = config::load(&args.config, processors().map_err(Error::usage)?)?;
        ui.print(format!(
            "{}: valid, pools: {}, classes: {}\n",
            args.config.display(),
            loaded.config.pools.len(),
            loaded.config.classes.len()
        ))?;
        return Ok(exit::OK);
    }
    let options = Options { config: args.config.clone(), run: args.run.clone() };
    Service::open(&options)?.run()?;
    Ok(exit::OK)
}

impl From<service::Error> for Error {
    fn from(error: service::Error) -> Self {
        match error {
            service::Error::Config(error) => error.into(),
            error => Error::usage(error),
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Broken(errors) => Error::Host(errors),
            error @ ConfigError::Unreadable { .. } => Error::usage(error),
        }
    }
}
