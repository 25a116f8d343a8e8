//! Host files in guests of Xen, from domain 0: cpupools, guests with the guest program, and what they
//! measure. The scheduler itself is asked through [`Control`].

mod guest;
mod plan;
pub mod run;
mod tools;

use std::io;

pub use punctual_guest::os::now_ns;
use punctual_sched::UnitParams;
use punctual_sched::registry::Options;

use punctual_vm::workload;

/// What happened to a vCPU's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it was used up.
    pub exhaustions: u64,
    /// How often it was replenished.
    pub replenishments: u64,
}

/// The scheduler in Xen, as a run needs it. Cpupools go by their names, domains by their numbers.
/// Errors say why Xen or the policy refuses.
pub trait Control {
    /// A cpupool's policy, and its options as `name=value,...`.
    ///
    /// # Errors
    /// There is no such pool, or its scheduler is another one.
    fn policy(&mut self, pool: &str) -> Result<(String, String), String>;

    /// The scheduler, as xl names it, of a new cpupool with this policy.
    ///
    /// # Errors
    /// Xen has none for it.
    fn scheduler(&mut self, policy: &str) -> Result<&'static str, String>;

    /// Gives a cpupool another policy. Returns when, by domain 0's monotonic clock in ns, the periods of its
    /// servers began; `None`: the scheduler does not say, or they go on.
    ///
    /// # Errors
    /// As [`Control::policy`]; the policy's words, if it refuses.
    fn set_policy(&mut self, pool: &str, policy: &str, options: &str) -> Result<Option<u64>, String>;

    /// The policy under which guests boot and their clocks are read: whoever has work runs at once if the
    /// processor is free. A server that loses its budget meanwhile answers a question about its clock up to
    /// a period late. `None`: pools keep what they have.
    ///
    /// # Errors
    /// As [`Control::policy`].
    fn boot_policy(&mut self) -> Result<Option<&'static str>, String>;

    /// Parameters of a vCPU, and its counts where the scheduler has any.
    ///
    /// # Errors
    /// The vCPU is not in this pool.
    fn unit(&mut self, pool: &str, domain: u32, vcpu: u32) -> Result<(UnitParams, Option<Counts>), String>;

    /// Sets those parameters that are given, but for the affinity.
    ///
    /// # Errors
    /// The policy's words, if it refuses.
    fn set_unit(&mut self, pool: &str, domain: u32, vcpu: u32, params: &UnitParams) -> Result<(), String>;

    /// How long a vCPU has run, in ns.
    ///
    /// # Errors
    /// There is none.
    fn vcpu_time_ns(&mut self, domain: u32, vcpu: u32) -> Result<u64, String>;
}

/// What goes wrong in domain 0.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy or the scheduler refuses.
    #[error("{0}")]
    Refused(String),
    /// A tool cannot be started.
    #[error("{tool} cannot be started: {source}")]
    Start {
        /// Its name.
        tool: String,
        /// What the system says.
        source: io::Error,
    },
    /// A tool failed.
    #[error("`{line}` failed: {said}")]
    Tool {
        /// What was called.
        line: String,
        /// What it said.
        said: String,
    },
    /// A guest has no console.
    #[error("xenstore knows no console of the guest: does xenconsoled run?")]
    NoConsole,
    /// A host file cannot be run in Xen.
    #[error("{item}: {why}")]
    Host {
        /// The pool, domain or task.
        item: String,
        /// Why not.
        why: String,
    },
    /// Its tasks cannot be run by a guest program.
    #[error(transparent)]
    Tasks(#[from] workload::TasksError),
    /// A guest does not do its part.
    #[error("{domain}: {source}")]
    Guest {
        /// Its name.
        domain: String,
        /// What it did instead.
        source: workload::ClientError,
    },
    /// A file or terminal.
    #[error("{what}: {source}")]
    File {
        /// What it is.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The user wants an end.
    #[error("stopped")]
    Stopped,
}

/// Options as the scheduler reads them: `name=value,name=value`.
fn options_text(options: &Options) -> String {
    let text: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    text.join(",")
}
