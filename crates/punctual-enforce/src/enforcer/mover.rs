//! A thread that moves threads of units back to their groups.
//!
//! A move waits for a grace period of RCU with the kernel's cgroup lock held, and reads files of `/proc` of
//! threads that may be ending. The watchdog must wait for neither (docs/live.md, "Locks of the kernel").

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::pool::{Command, PAUSE_WAIT_MAX};
use super::shared::{Shared, UnitMembers};
use crate::journal::Identity;
use crate::unit::{UnitThreads, tree};
use punctual_linux::os::{cgroup, proc, sched};

/// Threads of a unit that are not in its group, or have ended.
pub(super) struct Request {
    pub unit: UnitMembers,
    pub threads: Vec<i32>,
}

/// What became of a request.
pub(super) struct Reply {
    /// The first thread of the unit.
    pub unit: Identity,
    /// How many threads or processes are back: 0 where all had ended.
    pub moved: io::Result<usize>,
}

/// The thread and its channels. Dropping it waits for its last move.
pub(super) struct Mover {
    requests: Option<Sender<Request>>,
    pub replies: Receiver<Reply>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(shared: Arc<Shared>, commands: Sender<Command>) -> io::Result<Mover> {
        let (requests, requested) = channel::<Request>();
        let (done, replies) = channel();
        let work = move || {
            for request in requested {
                let unit = request.unit.kind().identity();
                let moved = put_back(&request, &shared, &commands);
                // The watchdog may have ended meanwhile.
                let _ = done.send(Reply { unit, moved });
            }
        };
        let thread = std::thread::Builder::new().name("mover".into()).spawn(work)?;
        Ok(Mover { requests: Some(requests), replies, thread: Some(thread) })
    }

    /// Asks for a move; a [`Reply`] comes for each.
    pub(super) fn request(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread ends only when this is dropped.
            let _ = requests.send(request);
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It returns nothing.
            let _ = thread.join();
        }
    }
}

/// Moves what is outside the unit's group back into it.
fn put_back(request: &Request, shared: &Shared, commands: &Sender<Command>) -> io::Result<usize> {
    let group = &request.unit.group;
    let is_outside = |tid: i32| {
        proc::stat(tid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
            && cgroup::is_inside(tid, group).is_ok_and(|inside| !inside)
    };
    match request.unit.kind() {
        UnitThreads::Thread(thread) => {
            if !thread.is_alive() {
                return Ok(0);
            }
            if !is_outside(thread.id) {
                return Ok(1);
            }
            without_freezer(shared, commands, || move_thread(thread.id, group)).map(|()| 1)
        }
        UnitThreads::ProcessTree(_) => {
            let mut processes = Vec::new();
            for tid in request.threads.iter().copied().filter(|tid| is_outside(*tid)) {
                let Ok(process) = proc::process_of(tid) else { continue };
                // What it started outside has its priority.
                processes.extend(tree(process)?);
            }
            processes.sort_unstable();
            processes.dedup();
            processes.retain(|process| is_outside(*process));
            if processes.is_empty() {
                return Ok(0);
            }
            processes.iter().copied().for_each(sched::demote_process);
            without_freezer(shared, commands, || {
                processes.iter().try_for_each(|process| move_process(*process, group))
            })
            .map(|()| processes.len())
        }
    }
}

/// As [`super::Enforcement::without_freezer`], for the pool of this thread.
fn without_freezer<T>(shared: &Shared, commands: &Sender<Command>, moves: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel();
    // Fails only when every enforcer has ended.
    let _ = commands.send(Command::PauseFreezing(done));
    shared.wake_enforcers();
    let _ = is_done.recv_timeout(PAUSE_WAIT_MAX);
    let moved = moves();
    let _ = commands.send(Command::ResumeFreezing);
    shared.wake_enforcers();
    moved
}

/// Moves a thread to its threaded group. If the whole process is in another domain, the kernel takes the
/// thread only after the process.
fn move_thread(thread: i32, group: &Path) -> io::Result<()> {
    let to_group = || fs::write(group.join("cgroup.threads"), thread.to_string());
    match to_group() {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            move_process(proc::process_of(thread)?, cgroup::domain_of(group))?;
            to_group()
        }
        moved => moved,
    }
}

/// Moves a process to a group. One that has ended meanwhile need not be moved.
fn move_process(process: i32, group: &Path) -> io::Result<()> {
    match fs::write(group.join("cgroup.procs"), process.to_string()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        moved => moved,
    }
}
