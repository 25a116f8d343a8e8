//! Why a host is not run in Xen, or Xen not asked.

use std::io;

use punctual_vm::workload;

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
