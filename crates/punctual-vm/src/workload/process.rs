//! A domain that is a process of this host: the guest program with a virtual CPU that is one thread.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::error::ProcessError;
use super::{Client, PROGRAM};
use crate::cache::Cache;
use punctual_linux::channel::Stop;
use punctual_linux::child;

/// A running guest program; it ends when this is dropped, and when our process ends in any way.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: PathBuf,
    /// Our end of its channel, until it has announced itself.
    port: Option<UnixStream>,
    client: Option<Client>,
    stop: Stop,
}

impl Process {
    /// Starts one, in the fair class, on any processor; [`Process::connect`] waits for it. `stop` ends every
    /// wait early.
    ///
    /// # Errors
    /// When it cannot be started.
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
        let child = child::spawn(command, Vec::new()).map_err(failed)?;
        Ok(Process { child, program: program.to_owned(), port: Some(ours), client: None, stop })
    }

    /// Waits until the program announces itself, for `limit` at most, or returns at once when it did before.
    ///
    /// # Errors
    /// When it does not.
    pub fn connect(&mut self, limit: Duration) -> Result<&mut Client, ProcessError> {
        if let Some(port) = self.port.take() {
            let client = Client::connect(port, limit, self.stop);
            let failed = |source| ProcessError::Connect { program: self.program.clone(), source };
            self.client = Some(client.map_err(failed)?);
        }
        self.client.as_mut().ok_or_else(|| ProcessError::GivenUp { program: self.program.clone() })
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
