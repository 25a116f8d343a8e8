//! What a run attaches to, as its events and `--dry-run` report it.

use serde::Serialize;

/// A VM, process or set of threads that a domain is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachTarget {
    /// The domain's name in the host file.
    pub domain: String,
    /// The process that the threads belong to.
    pub process: u32,
    /// The process's name, at most 15 bytes.
    pub program: String,
    /// The VM's name on QEMU's command line.
    pub vm: Option<String>,
    /// The vCPUs' threads, in order.
    pub vcpus: Vec<AttachedThread>,
    /// How many vCPUs of the host file have no thread yet.
    pub vcpus_absent: usize,
    /// The other threads of the process.
    pub helpers: Vec<AttachedThread>,
}

/// A thread that a run schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedThread {
    /// Its thread id.
    pub thread: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The vCPU of the host file; none for a helper thread.
    pub vcpu: Option<String>,
    pub now: Scheduling,
    /// During the run.
    pub then: Scheduling,
}

/// How Linux schedules a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scheduling {
    /// The processors that it may use, ascending.
    pub processors: Vec<usize>,
    /// Its class as chrt(1) names it, with its priority, range of priorities or nice value.
    pub class: String,
}
