//! What on this host threatens latency: read-only checks of the kernel's settings.
//!
//! Every check is a function of a directory, which is `/` or a copy of it, and of the processors that pools
//! use. Tests pass made-up trees, and a copy of another machine's files can be examined here. No check
//! changes anything. A [`Finding`] carries the [`Change`]s that an implementation of [`Apply`] can make for
//! the time of a run and then undo.
//!
//! A check that cannot read a file reports the file and the reason ([`Severity::Unknown`]). It never guesses.

mod check;
mod cpus;
mod finding;
mod interrupts;
mod kernel;
mod limits;
mod machine;
mod memory;
mod packets;
mod parse;
mod permissions;
mod processors;
mod root;
mod sched_ext;
mod threads;
mod throttling;

use serde::Serialize;

pub use check::Check;
pub use cpus::Cpus;
pub use finding::{Apply, Change, Finding, Reading, Severity};
pub use root::{ReadError, Reason, Root};
pub use sched_ext::{NoSchedExt, sched_ext};

use finding::Outcome;
use machine::Machine;

/// Every check, in the order of reports.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    [
        permissions::CHECKS,
        throttling::CHECKS,
        limits::CHECKS,
        processors::CHECKS,
        interrupts::CHECKS,
        threads::CHECKS,
        packets::CHECKS,
        kernel::CHECKS,
        sched_ext::CHECKS,
        memory::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// What all checks found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Always `punctual-doctor`.
    pub format: &'static str,
    /// Version of the JSON form.
    pub version: u32,
    /// The machine's processors that are online.
    pub online: Vec<usize>,
    /// The processors that pools use.
    pub pool: Vec<usize>,
    /// In the order of [`checks`].
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Is anything worse than a note, other than unknown?
    pub fn any_bad(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity.is_bad())
    }
}

/// Examines the machine whose files are below `root`. `pool` has the processors that pools use. With `None`
/// these are all that are online except the first, or the only one.
///
/// # Errors
/// When the list of processors cannot be read: then `root` is not the root of a Linux machine.
pub fn examine(root: Root, pool: Option<Cpus>) -> Result<Findings, ReadError> {
    let machine = Machine::new(root, pool)?;
    let finding = |check: &'static Check| {
        let outcome = (check.examine)(&machine).unwrap_or_else(|error| Outcome::unknown(error.to_string()));
        let Outcome { severity, summary, readings, fix, changes } = outcome;
        let Check { id, title, why, source, .. } = *check;
        Finding { id, title, severity, summary, readings, why, source, fix, changes }
    };
    Ok(Findings {
        format: "punctual-doctor",
        version: 1,
        online: machine.online.iter().collect(),
        pool: machine.pool.iter().collect(),
        findings: checks().map(finding).collect(),
    })
}

/// The runtime and period in ns that Linux gives its fair class on one of these processors ahead of real-time
/// threads (the fair server), if it has one.
///
/// # Errors
/// When `root` is not the root of a Linux machine.
pub fn fair_server(root: Root, pool: Cpus) -> Result<Option<(u64, u64)>, ReadError> {
    Ok(throttling::fair_server_share(&Machine::new(root, Some(pool))?))
}

/// What a run may change for its time and put back, in the order of reports.
pub fn reversible_changes(findings: &Findings) -> Vec<Change> {
    findings.findings.iter().flat_map(|finding| finding.changes.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
