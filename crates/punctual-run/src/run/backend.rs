//! What schedules the units of a run.

use punctual_model::Host;
use punctual_model::index::PoolIx;

use crate::config::RunConfig;
use punctual_doctor::doctor;
use punctual_enforce::backend::{self, Backend as EnforcedBy, Chosen, Refused, Wish};
use punctual_enforce::session::LinuxScheduler;

/// What schedules the units of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScheduledBy {
    /// Plain Linux.
    Linux(LinuxScheduler),
    /// A policy, enforced by this.
    Backend(EnforcedBy),
}

impl ScheduledBy {
    pub(super) fn of(config: &RunConfig<'_>, backend: EnforcedBy) -> ScheduledBy {
        config.linux.map_or(ScheduledBy::Backend(backend), ScheduledBy::Linux)
    }
}

/// What enforces the policies of these pools.
pub(super) fn chosen(host: &Host, config: &RunConfig<'_>, pools: &[PoolIx]) -> Result<Chosen, Refused> {
    if config.linux.is_some() {
        return Ok(Chosen::default());
    }
    let wish = Wish {
        enforce: config.enforce.unwrap_or(host.enforce),
        allows_sched_ext: config.allows_sched_ext,
        is_built: backend::HAS_SCHED_EXT,
        kernel: doctor::sched_ext(doctor::Root::new("/")),
    };
    backend::choose(&wish, host, pools)
}
