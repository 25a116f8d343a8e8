//! The processes that a session starts for domains; they end with it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::Error;
use crate::journal::{Change, Identity, Journal};
use punctual_linux::os::{cgroup, sched};

/// How long a program may take to get into its group; one that takes longer is moved when it becomes a unit.
const LAUNCH_WAIT_MAX: Duration = Duration::from_millis(500);

/// The processes that a session started.
#[derive(Default)]
pub(super) struct Processes {
    /// Those that are to be waited for.
    children: Vec<Child>,
    /// All of them, those that others started for the session included.
    started: Vec<Identity>,
}

impl Processes {
    /// Starts `command`, which puts the program called `name` into `group`, and waits until it is there.
    pub(super) fn launch(
        &mut self,
        mut command: Command,
        name: String,
        group: &Path,
        journal: &mut Journal,
    ) -> Result<Identity, Error> {
        let child = match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(source) => return Err(Error::Launch { program: name, source }),
        };
        let id = child.id() as i32;
        self.children.push(child);
        // Before anything is waited for: until it is in its group, nothing but the journal knows of it.
        let process = self.record(id, &name, journal)?;
        wait_until_inside(process, group);
        Ok(process)
    }

    /// Writes down a process that must end with the session.
    pub(super) fn record(&mut self, id: i32, name: &str, journal: &mut Journal) -> Result<Identity, Error> {
        let process =
            Identity::of(id).map_err(|source| Error::EndedAtOnce { program: name.to_owned(), source })?;
        self.started.push(process);
        let change = Change::Child { process, name: name.to_owned() };
        journal.record(&change).map_err(Error::Journal)?;
        Ok(process)
    }

    /// Did the session start this process?
    pub(super) fn has(&self, id: i32) -> bool {
        self.started.iter().any(|process| process.id == id && process.is_alive())
    }

    /// Collects programs that have ended.
    pub(super) fn reap(&mut self) {
        self.children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.started.retain(Identity::is_alive);
    }

    /// Kills all of them, without waiting.
    pub(super) fn kill(&self) {
        for process in &self.started {
            if let (true, Some(pid)) = (process.is_alive(), rustix::process::Pid::from_raw(process.id)) {
                // A unit that the scheduler in the kernel parks would end only with its next budget.
                sched::demote_process(process.id);
                // Fails only for a process that has ended since.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Waits for the programs that were launched; they have been killed.
    pub(super) fn wait(&mut self) {
        for child in &mut self.children {
            // Fails only for a process that was waited for already.
            let _ = child.wait();
        }
    }
}

/// A program that is launched moves itself before it becomes what it is to be.
fn wait_until_inside(process: Identity, group: &Path) {
    let end = Instant::now() + LAUNCH_WAIT_MAX;
    let is_inside = || {
        cgroup::group_of(process.id).is_ok_and(|now| group.ends_with(now.trim_start_matches('/')))
            || !process.is_alive()
    };
    while !is_inside() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}
