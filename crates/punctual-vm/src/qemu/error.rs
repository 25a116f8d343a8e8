//! What goes wrong with a VM that we start.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::qmp::QmpError;
use crate::cache;
use crate::workload::ClientError;

/// Why a VM cannot be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that it is to boot from is not there.
    #[error("VM `{vm}`: {key} {} is not a file", path.display())]
    NotAFile {
        /// The VM.
        vm: String,
        /// What the file is for, by its key in the host file.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// It has nothing to boot from.
    #[error("VM `{vm}` has neither a kernel nor a disk to boot from")]
    NothingToBoot {
        /// The VM.
        vm: String,
    },
    /// It has no vCPU or no memory.
    #[error("VM `{vm}` needs at least one vCPU and some memory")]
    TooSmall {
        /// The VM.
        vm: String,
    },
    /// The channels to it cannot be made.
    #[error("VM `{vm}`: no socket: {source}")]
    Socket {
        /// The VM.
        vm: String,
        /// What the system says.
        source: io::Error,
    },
    /// QEMU is not installed.
    #[error("VM `{vm}`: there is no {}; install it (Debian: apt install qemu-system-x86)", program.display())]
    NoQemu {
        /// The VM.
        vm: String,
        /// QEMU's program.
        program: PathBuf,
    },
    /// QEMU cannot be started.
    #[error("VM `{vm}`: {} cannot be started: {source}", program.display())]
    Start {
        /// The VM.
        vm: String,
        /// QEMU's program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// QEMU was started, but did not come up.
    #[error("VM `{vm}`: {source}{last_words}")]
    NoMonitor {
        /// The VM.
        vm: String,
        /// What its monitor did instead.
        source: QmpError,
        /// How QEMU ended.
        last_words: LastWords,
    },
    /// The guest program did not announce itself.
    #[error("VM `{vm}` did not boot: {source}{last_words}")]
    NoBoot {
        /// The VM.
        vm: String,
        /// What it did instead.
        source: ClientError,
        /// How QEMU ended, or what the guest wrote to its console.
        last_words: LastWords,
    },
    /// An earlier wait for the guest program has failed already.
    #[error("VM `{vm}` did not boot before and will not now")]
    GivenUp {
        /// The VM.
        vm: String,
    },
    /// QEMU does not say what it is asked.
    #[error("VM `{vm}`: {source}")]
    Monitor {
        /// The VM.
        vm: String,
        /// Why.
        source: QmpError,
    },
    /// A thread that QEMU calls a vCPU is not one of its own.
    #[error("VM `{vm}`: QEMU names thread {thread} as a vCPU, which is no thread of its own")]
    ForeignThread {
        /// The VM.
        vm: String,
        /// The thread.
        thread: u32,
    },
    /// QEMU's threads cannot be listed.
    #[error("VM `{vm}`: its threads cannot be listed: {source}")]
    Threads {
        /// The VM.
        vm: String,
        /// What the system says.
        source: io::Error,
    },
    /// The cache, which holds whether KVM works, cannot be used.
    #[error(transparent)]
    Cache(#[from] cache::Error),
}

/// How QEMU ended, if it did, and the last lines that it and its guest wrote: the end of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWords {
    /// QEMU's exit status; `None` while it runs, or when it had to be killed.
    pub status: Option<ExitStatus>,
    /// The last lines on the guest's console and of QEMU's own messages, oldest first.
    pub lines: Vec<String>,
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(status) = self.status {
            write!(f, "; QEMU ended ({status})")?;
        }
        if self.lines.is_empty() {
            f.write_str("; it said nothing")
        } else {
            write!(f, "; it said last:\n  {}", self.lines.join("\n  "))
        }
    }
}
