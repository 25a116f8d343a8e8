//! What to run, and how to talk to the caller.

use std::path::PathBuf;
use std::time::Duration as StdDuration;

use punctual_enforce::driver::Settings;
use punctual_enforce::session::{LinuxScheduler, Session, UnitHandle};
use punctual_linux::Stop;
use punctual_model::host::Enforce;
use punctual_model::index::PoolIx;
use punctual_sched::Duration;
use punctual_vm::workload;

use crate::events::Events;

/// How domains run whose backend the host file does not specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultBackend {
    /// A VM under QEMU with the project's image.
    Vm,
    /// The guest program as a process of the host.
    Process,
}

/// What a run adds to its host file.
#[derive(Clone, Debug)]
pub struct RunConfig<'a> {
    /// This program's file, for the guardian.
    pub program: PathBuf,
    pub default_backend: DefaultBackend,
    /// A scheduler of plain Linux for every pool instead of its policy.
    pub linux: Option<LinuxScheduler>,
    /// By the name of a domain that is a process: another program instead of the guest program. Tests put
    /// hostile guests there.
    pub guest_programs: &'a [(String, PathBuf)],
    pub networks: NetworkConfig<'a>,
    /// Start even if no processor is left for the host.
    pub starve: bool,
    /// How long enforcers may be silent.
    pub silence: StdDuration,
    /// How long a guest may take to announce itself. A VM does so when it has booted, beside its neighbours.
    pub boot: StdDuration,
    /// How often and how exactly enforcers look.
    pub driver: Settings,
    /// Make the doctor's reversible changes for the time of the run.
    pub apply: bool,
    /// Record what happened when, as the outcome's trace.
    pub trace: bool,
    /// What enforces policies, instead of what the host file says.
    pub enforce: Option<Enforce>,
    /// May `auto` load a scheduler into the kernel?
    pub allows_sched_ext: bool,
    /// Make every pool an isolated partition, whatever the host file says.
    pub isolate: bool,
}

impl RunConfig<'_> {
    /// A run as the command line starts it without options; `program` is this program's file.
    pub fn new(program: PathBuf, default_backend: DefaultBackend) -> Self {
        RunConfig {
            program,
            default_backend,
            linux: None,
            guest_programs: &[],
            networks: NetworkConfig::default(),
            starve: false,
            silence: StdDuration::from_secs(2),
            boot: StdDuration::from_secs(60),
            driver: Settings::default(),
            apply: false,
            trace: false,
            enforce: None,
            allows_sched_ext: false,
            isolate: false,
        }
    }
}

/// The switches of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkConfig<'a> {
    /// Ports beyond the network cards, as `punctual switch --uplink` takes them.
    pub uplinks: &'a [String],
    /// Check invariants all the time.
    pub check: bool,
    /// Urgent interfaces share a plane with the others.
    pub one_plane: bool,
    /// Count what switches do that run already and serve networks of the host.
    pub find_running: bool,
}

/// How a run talks.
pub struct Hooks<'a> {
    pub events: Events,
    /// Called often: should the run end early?
    pub stop: Stop,
    /// Ends this process, when the guardian asks for the end of the run.
    pub end: fn() -> !,
    /// Called about twenty times a second while tasks run.
    pub watch: &'a mut dyn FnMut(&RunView<'_>),
}

/// A run at one instant.
pub struct RunView<'a> {
    /// The session.
    pub session: &'a Session,
    /// The host's pool of each pool of the session.
    pub pools: &'a [PoolIx],
    /// The vCPUs; one whose thread was replaced comes again.
    pub units: &'a [UnitHandle],
    /// By domain that has tasks with deadlines: its name and jobs.
    pub jobs: &'a [(String, workload::JobCounts)],
    /// Since the start of the tasks.
    pub elapsed: Duration,
}
