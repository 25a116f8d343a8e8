//! Why a guest image cannot be made, and what helps.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::cache::{self, FileError};

/// Why a guest image cannot be made, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] cache::Error),
    /// The user wanted an end.
    #[error("stopped while the guest image was made")]
    Stopped,
    /// A file of the image cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The packages are made for another processor.
    #[error(
        "guest images are made for x86_64 only, this machine is {0}: name `kernel` and `initrd` of your own"
    )]
    Architecture(&'static str),
    /// A program of Debian's cannot be run, or failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// APT does not know a package.
    #[error("{0}\nAPT's lists of packages are missing or old: run `apt-get update`")]
    PackageLists(#[source] ProgramError),
    /// The metapackage of the newest kernel depends on no kernel.
    #[error("the package {0} names no kernel: run `apt-get update`; it is a package of Debian (amd64)")]
    NoKernel(&'static str),
    /// A file is not where Debian's packages had it so far.
    #[error("the Debian packages hold no {0}: this release packs it differently, please report it")]
    Missing(String),
    /// The compiler of the kernel's modules is not installed.
    #[error("there is no {0} here, with which the guest's module for sockets is built: apt install {0}")]
    NoCompiler(String),
    /// A kernel module is damaged.
    #[error("{} cannot be decompressed", .0.display())]
    Decompress(PathBuf),
}

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error("there is no {program} here: {cure}")]
    NotFound {
        /// Its name.
        program: String,
        /// What helps.
        cure: &'static str,
    },
    /// It cannot be started.
    #[error("{program} cannot be run: {source}")]
    Start {
        /// Its name.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// It ended with an error.
    #[error(
        "{program} failed ({status}): {message}{}",
        if self.disk_is_full() { "; free some space, or set PUNCTUAL_CACHE" } else { "" }
    )]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        message: String,
    },
}

impl ProgramError {
    /// Does the message say that the disk is full?
    fn disk_is_full(&self) -> bool {
        self.message().contains("No space left")
    }

    /// Does APT's message say that its lists of packages do not have the package?
    pub(super) fn is_unknown_package(&self) -> bool {
        let unknown = ["Unable to locate", "No packages found", "no installation candidate", "404"];
        unknown.iter().any(|text| self.message().contains(text))
    }

    /// What the program wrote to standard error.
    fn message(&self) -> &str {
        match self {
            ProgramError::Failed { message, .. } => message,
            ProgramError::NotFound { .. } | ProgramError::Start { .. } => "",
        }
    }
}
