//! The lines of a journal: what a run changes, and what belongs to it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use punctual_linux::os::sched::Attributes;

/// One change, with what is needed to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The run itself.
    Run {
        /// The process that enforces.
        enforcer: Identity,
        /// What is run: the host's name.
        name: String,
        /// The boot of the machine in which it began.
        boot: String,
    },
    /// Something belongs to the run alone.
    Claim {
        /// What it is.
        resource: Resource,
    },
    /// A thread's attributes, affinity or group.
    Thread {
        /// The thread.
        thread: Identity,
        /// Its process.
        process: i32,
        /// Its attributes before. Of a thread that came during the run, those that it would have without it:
        /// what it inherited from the run is as its process's first thread had it before.
        attributes: Attributes,
        /// The processors it was allowed before, or would be without the run.
        affinity: Vec<usize>,
        /// Its version 2 group before.
        group: String,
    },
    /// A thread becomes a unit, perhaps with others. From now on it has what the run gives, and so has what
    /// it starts, which is in its group.
    Unit {
        /// The thread.
        thread: Identity,
        /// The version 2 group that it moves to, which holds nothing yet.
        group: String,
    },
    /// A process with all its threads moves to the group of a unit that is a whole cgroup, and belongs to it
    /// from now on.
    Member {
        /// The process.
        process: i32,
        /// The process of the unit's first thread.
        of: i32,
    },
    /// Other threads of a process than units get what the run gives to helper threads.
    Helpers {
        /// The process.
        process: i32,
    },
    /// The run has let go of a process: what is written down about it above is undone.
    Released {
        /// The process.
        process: i32,
    },
    /// What the run gives to threads from now on. A thread that comes during the run may have inherited it.
    Given {
        /// Scheduling attributes.
        attributes: Vec<Attributes>,
        /// Sets of processors.
        affinities: Vec<Vec<usize>>,
    },
    /// A thread of the kernel, which all runs share: its attributes and affinity.
    KernelThread {
        /// The thread.
        thread: Identity,
        /// Its attributes before the first run that changed it.
        attributes: Attributes,
        /// The processors it was allowed then.
        affinity: Vec<usize>,
    },
    /// The content of a file that concerns the whole machine: a kernel parameter.
    File {
        /// The file.
        path: PathBuf,
        /// What it said before the first run that changed it.
        before: String,
        /// What the run writes.
        during: String,
    },
    /// A cgroup made by the run, and everything below it, for what the run starts. All of that ends with the
    /// run.
    Group {
        /// Its directory.
        directory: PathBuf,
    },
    /// A cgroup made by the run, and everything below it, for what it attaches to. All of that goes home.
    AttachedGroup {
        /// Its directory.
        directory: PathBuf,
        /// The version 2 group of whatever is in it and not written down: what its threads started.
        home: String,
    },
    /// The groups of the mount get cpusets, for the partitions of all runs.
    Cpusets,
    /// A cgroup made by the run, with its isolated partitions in it. It is removed last: what is in it is
    /// written down as another group.
    Partitions {
        /// Its directory.
        directory: PathBuf,
    },
    /// A cgroup made by the run for its own process, which goes home.
    OwnGroup {
        /// Its directory.
        directory: PathBuf,
        /// The version 2 group in which the run was.
        home: String,
    },
    /// A process started by the run; it ends with it.
    Child {
        /// The process.
        process: Identity,
        /// Its name.
        name: String,
    },
}

/// What belongs to one run at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A processor of a pool.
    Processor(usize),
    /// A process that a run attaches to, a VM for example, with all its threads.
    Process(Identity),
    /// A network device.
    Device {
        /// Its name.
        name: String,
        /// Its network namespace (`journal::devices`).
        namespace: u64,
    },
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Processor(number) => write!(f, "processor {number}"),
            Resource::Process(process) => write!(f, "process {}", process.id),
            Resource::Device { name, .. } => write!(f, "network device {}", name.escape_debug()),
        }
    }
}
