//! Hosts that are run for a measurement.

use std::path::PathBuf;

use punctual_linux::Stop;
use punctual_model::{Host, Results};

use super::error::Error;
use crate::config::{DefaultBackend, Hooks, NetworkConfig, RunConfig};
use crate::events::Events;
use crate::host::{Incomplete, run_host};

/// How long many VMs may take to boot on one processor.
pub const BOOT: std::time::Duration = std::time::Duration::from_secs(180);

/// How VMs are run for a measurement.
pub struct Machine<'a> {
    /// This program's file, for the guardian.
    pub program: PathBuf,
    pub events: Events,
    pub stop: Stop,
    /// Ends this process, when the guardian asks for it.
    pub end: fn() -> !,
    /// Learns how many steps are done.
    pub done: &'a (dyn Fn(usize) + Sync),
}

impl Machine<'_> {
    /// Runs a host for what is measured of it.
    pub(super) fn results_of(&self, host: &Host) -> Result<Results, Error> {
        let config = RunConfig {
            boot: BOOT,
            networks: NetworkConfig { one_plane: true, ..NetworkConfig::default() },
            ..RunConfig::new(self.program.clone(), DefaultBackend::Vm)
        };
        let hooks = Hooks { events: self.events.clone(), stop: self.stop, end: self.end, watch: &mut |_| () };
        run_host(host, &config, hooks)?.into_results().map_err(|incomplete| match incomplete {
            Incomplete::Stopped => Error::Stopped,
            Incomplete::NotPutBack(failures) => Error::NotPutBack(failures),
            Incomplete::Violation(text) => Error::Violation(text),
        })
    }
}
