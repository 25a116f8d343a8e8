//! Runs that attach to victims, and the ways in which they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use punctual_linux::os::proc;
use rustix::process::{Pid, Signal, kill_process};

use super::{Outcome, PROCESSOR, wait};

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Interrupted,
    InterruptedTwice,
    Terminated,
    Killed,
    GuardianKilled,
    GuardianTerminated,
    BothKilled,
    Stopped,
}

pub(crate) const ENDS: [End; 8] = [
    End::Interrupted,
    End::InterruptedTwice,
    End::Terminated,
    End::Killed,
    End::GuardianKilled,
    End::GuardianTerminated,
    End::BothKilled,
    End::Stopped,
];

/// A run with a state directory of its own.
pub(crate) struct Run {
    process: Child,
    program: PathBuf,
    directory: PathBuf,
}

pub(crate) fn signal(process: i32, signal: Signal) {
    // One that has ended needs none.
    let _ = Pid::from_raw(process).map(|pid| kill_process(pid, signal));
}

impl Run {
    /// Attaches to these domains.
    pub(crate) fn start(program: &Path, directory: &Path, domains: &str, applies: bool) -> Outcome<Run> {
        fs::create_dir_all(directory.join("state"))?;
        let host = directory.join("host.toml");
        let text = format!(
            "name = \"chaos\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [{PROCESSOR}]\n\
             policy = \"deferrable\"\n{domains}"
        );
        fs::write(&host, text)?;
        let said = fs::File::create(directory.join("said"))?;
        let mut command = command(program, directory);
        command.arg("attach").arg(&host).args(["--silence-ms", "500"]);
        if applies {
            command.arg("--apply");
        }
        let process = command.stdout(Stdio::null()).stderr(said).spawn()?;
        Ok(Run { process, program: program.to_owned(), directory: directory.to_owned() })
    }

    pub(crate) fn id(&self) -> i32 {
        self.process.id() as i32
    }

    /// Its host file.
    pub(crate) fn host(&self) -> String {
        self.directory.join("host.toml").display().to_string()
    }

    /// What it wrote to standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.directory.join("said")).unwrap_or_default()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Its guardian: its child of that name.
    fn guardian(&self) -> Option<i32> {
        let is_guardian = |pid: &i32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            proc::stat(*pid).is_ok_and(|stat| stat.parent == self.id())
                && String::from_utf8_lossy(&command).contains("guardian")
        };
        proc::processes().ok()?.into_iter().find(is_guardian)
    }

    /// A command of the program with the run's state directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.program, &self.directory);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Ends it; `leave` is told when nothing of it can act.
    pub(crate) fn end(&self, end: End, leave: impl Fn(i32)) {
        let guardian = self.guardian();
        // One that is about to begin has none yet.
        let end = if guardian.is_none() && end != End::Killed { End::Terminated } else { end };
        let both = |first: Signal| {
            guardian.into_iter().for_each(|guardian| signal(guardian, first));
        };
        match end {
            End::Interrupted => signal(self.id(), Signal::INT),
            End::InterruptedTwice => {
                signal(self.id(), Signal::INT);
                std::thread::sleep(Duration::from_millis(15));
                signal(self.id(), Signal::INT);
            }
            End::Terminated => signal(self.id(), Signal::TERM),
            End::Killed => signal(self.id(), Signal::KILL),
            End::GuardianKilled => both(Signal::KILL),
            End::GuardianTerminated => {
                both(Signal::TERM);
                signal(self.id(), Signal::TERM);
            }
            End::BothKilled => {
                leave(self.id());
                signal(self.id(), Signal::STOP);
                both(Signal::KILL);
                signal(self.id(), Signal::KILL);
            }
            End::Stopped => {
                leave(self.id());
                signal(self.id(), Signal::STOP);
            }
        }
    }

    /// Waits until it has ended and everything is put back. `is_early`: it may be
    /// about to begin.
    pub(crate) fn finish(&mut self, end: End, is_early: bool) -> Outcome<()> {
        let has_ended = || proc::stat(self.id()).map_or(true, |stat| stat.state == 'Z');
        if let Err(error) = wait("the run ends", has_ended) {
            signal(self.id(), Signal::CONT);
            signal(self.id(), Signal::INT);
            return Err(format!("{end:?}: {error}: {}", self.said()).into());
        }
        let status = self.process.wait()?;
        let is_expected = match end {
            _ if is_early && matches!(status.code(), None | Some(130)) => true,
            End::Interrupted | End::Terminated => matches!(status.code(), Some(0 | 5)),
            End::GuardianKilled => matches!(status.code(), Some(2 | 5)),
            End::GuardianTerminated => matches!(status.code(), Some(0 | 2 | 5)),
            End::Stopped => matches!(status.code(), None | Some(4 | 137)),
            End::InterruptedTwice | End::Killed | End::BothKilled => status.code() != Some(7),
        };
        if end == End::BothKilled {
            self.command(&["restore"]).status()?;
        }
        wait("everything is put back", || self.left().is_empty())?;
        if is_expected { Ok(()) } else { Err(format!("{end:?}: {status}: {}", self.said()).into()) }
    }

    /// What is in its state directory.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.join("state")).into_iter().flatten().flatten();
        let left = entries.map(|entry| entry.path());
        left.filter(|path| path.extension().is_some_and(|end| end == "journal" || end == "socket")).collect()
    }

    /// Processes that use its state directory.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let variable = format!("PUNCTUAL_STATE={}", self.directory.join("state").display());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
        };
        proc::processes().unwrap_or_default().into_iter().filter(is_ours).collect()
    }
}

fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PUNCTUAL_STATE", directory.join("state")).stdin(Stdio::null());
    command
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.has_ended() {
            signal(self.id(), Signal::CONT);
            signal(self.id(), Signal::INT);
            let _ = wait("a run ends", || proc::stat(self.id()).map_or(true, |stat| stat.state == 'Z'));
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if wait("everything is put back", || self.left().is_empty()).is_err() {
            let _ = self.command(&["restore"]).status();
        }
    }
}
