//! `punctual serve`: the service of a host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use punctual_doctor::doctor::Cpus;
use punctual_model::service::ServiceConfig;
use punctual_model::text::printable_lines;
use punctual_model::topology::Topology;
use punctual_service::client::Client;
use punctual_service::config::{self, ConfigError};
use punctual_service::service::{self, Options, Service};
use punctual_service::topology;
use punctual_service::view::{self, SlotView};

use super::error::Error;
use super::exit;
use super::output::{Ui, wrapped};

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
    punctual serve --reload                                  as systemctl reload punctuald does it\n  \
    punctual serve --config ./punctual --run ./run           without root, beside an installed service\n  \
    systemctl enable --now punctuald && punctual status")]
pub(super) struct Args {
    /// Read host.toml and host.d/*.toml of this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = config::DIRECTORY)]
    config: PathBuf,
    /// Look for libvirt's files below this directory, and make the sockets in DIRECTORY/punctual.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Check the configuration, print its pools and classes, and end.
    #[arg(long)]
    check: bool,
    /// Let the service that runs read its configuration again, and end; exit code 2 if it is refused.
    #[arg(long, conflicts_with = "check")]
    reload: bool,
}

/// Runs `punctual serve`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    // An installed service may have no configuration; one that was named is meant.
    if args.config != Path::new(config::DIRECTORY) && !args.config.is_dir() {
        return Err(Error::Usage(format!("--config: there is no directory {}", args.config.display())));
    }
    if args.check {
        let topology = topology::read(Path::new("/")).map_err(Error::usage)?;
        let loaded = config::load(&args.config, &topology)?;
        ui.print(printable_lines(&valid(&args.config, &loaded.config, &topology)))?;
        return Ok(exit::OK);
    }
    if args.reload {
        let (classes, pools) =
            Client::connect(&args.run).and_then(|mut client| client.reload()).map_err(Error::usage)?;
        ui.print(format!("the configuration is read, pools: {pools}, classes: {classes}\n"))?;
        return Ok(exit::OK);
    }
    // systemd names the directory that StateDirectory= makes (systemd.exec(5)).
    let state = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let options = Options { config: args.config.clone(), run: args.run.clone(), state };
    Service::open(&options)?.run()?;
    Ok(exit::OK)
}

/// What a valid configuration has on this machine.
fn valid(directory: &Path, config: &ServiceConfig, topology: &Topology) -> String {
    let (pools, classes) = (&config.pools, &config.classes);
    let counts = format!("pools: {}, classes: {}", pools.len(), classes.len());
    let mut out = format!("{}: valid, {counts}\n", directory.display());
    for pool in pools {
        let processors: BTreeSet<usize> = pool.processors.iter().copied().collect();
        let processors = processors.into_iter().collect::<Cpus>();
        out += &format!("pool {}: processors {processors}, {}\n", pool.name, pool.policy.info.name);
        if let Some(choice) = &pool.choice {
            out += &wrapped("  ", "    ", &format!("chosen: {}", choice.reason));
        }
    }
    for SlotView { name, of, processors, joined } in view::slots(config, topology) {
        let processors = processors.into_iter().collect::<Cpus>();
        let of = of.map_or_else(String::new, |of| format!(", of {of}"));
        let joined: String = joined.iter().map(|by| format!(", joined by {by}")).collect();
        out += &wrapped("", "  ", &format!("slot {name}: processors {processors}{of}{joined}"));
    }
    for class in classes {
        let pool = class.pool.map_or_else(String::new, |pool| format!(" in pool {}", pools[pool.0].name));
        out += &format!("class {}{pool}\n", class.name);
    }
    out
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
