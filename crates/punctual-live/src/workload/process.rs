//! A domain that is a process of this host: the guest program with a virtual CPU that is one thread.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::error::ProcessError;
use super::{Client, PROGRAM};
use crate::cache::Cache;
use crate::channel::Stop;
use crate::child;

/// How long the program may take to say that it is there; the machine may be busy.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running guest program; it ends when this is dropped, and when our process ends in any way.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The conversation with it.
    pub client: Client,
}

impl Process {
    /// Starts one, in the fair class, on any processor. `stop` ends this and every later wait early.
    ///
    /// # Errors
    /// When it cannot be started or does not announce itself.
    pub fn start(stop: Stop) -> Result<Process, ProcessError> {
        Process::start_in(&Cache::of_user()?, stop)
    }

    /// As [`Process::start`], with the program in any cache.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_in(cache: &Cache, stop: Stop) -> Result<Process, ProcessError> {
        Process::start_program(&cache.program("punctual-guest", PROGRAM)?, stop)
    }

    /// As [`Process::start`], with another program that speaks the protocol.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_program(program: &Path, stop: Stop) -> Result<Process, ProcessError> {
        let failed = |source| ProcessError::Start { program: program.to_owned(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let output = theirs.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg("vcpu")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(output)));
        let mut child = child::spawn(command, Vec::new()).map_err(failed)?;
        match Client::connect(ours, START_LIMIT, stop) {
            Ok(client) => Ok(Process { child, client }),
            Err(source) => {
                end(&mut child);
                Err(ProcessError::Connect { program: program.to_owned(), source })
            }
        }
    }

    /// Its process id, and the thread id of its virtual CPU.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did: for the end of a message.
    pub fn last_words(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => format!("; it ended ({status})"),
            _ => String::new(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills and waits, so that nothing is left, not even a zombie.
fn end(child: &mut Child) {
    // Both fail only for a process that has ended already.
    let _ = child.kill();
    let _ = child.wait();
}
