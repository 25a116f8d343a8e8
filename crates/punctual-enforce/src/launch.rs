//! Starts a program of the user's inside a group of a session. The process that a session starts for it
//! becomes the program.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the run that wanted the program is gone")]
    NoRun,
    #[error("{}: {source}", path.display())]
    Group { path: PathBuf, source: io::Error },
    #[error("no program")]
    NoProgram,
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
}

/// Joins the group and becomes the program, which ends with this process's parent. Returns only if it cannot.
pub fn launch(group: &Path, command: &[String]) -> Error {
    // The program ends with the thread that started this process, however that ends.
    let parent = getppid();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != parent {
        return Error::NoRun;
    }
    let path = group.join("cgroup.procs");
    if let Err(source) = std::fs::write(&path, std::process::id().to_string()) {
        return Error::Group { path, source };
    }
    let Some((program, rest)) = command.split_first() else { return Error::NoProgram };
    let source = Command::new(program).args(rest).exec();
    Error::Start { program: program.clone(), source }
}
