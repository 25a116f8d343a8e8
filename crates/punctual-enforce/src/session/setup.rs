//! How a session is set up.

use std::path::PathBuf;
use std::time::Duration as StdDuration;

use crate::backend::Chosen;
use crate::driver::Settings;
use crate::enforcer::Observed;

/// How a session is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is run, for others who want the same: the host's name.
    pub name: String,
    /// This program, for the guardian.
    pub program: PathBuf,
    /// The processors of all pools.
    pub processors: Vec<usize>,
    /// Start even if no processor is left for the host.
    pub starve: bool,
    /// Lift the kernel's limit for real-time threads while the session lasts.
    pub lift_rt_limit: bool,
    /// How long enforcers may be silent before the guardian ends the run.
    pub silence: StdDuration,
    /// Ends this process, when the guardian asks for the end of the run.
    pub end: fn() -> !,
    /// What enforces policies.
    pub enforced_by: Chosen,
    /// How often and how exactly enforcers look.
    pub driver: Settings,
    /// Context switches of the pools' processors, to know exactly which other threads had them, and threads
    /// that serve units.
    pub observed: Observed,
}
