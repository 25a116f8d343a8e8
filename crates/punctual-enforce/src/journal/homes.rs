//! Letting go of what a run attached to: every thread has the group that it had, and what came during the run
//! goes with it.

use std::io;

use super::Identity;
use super::restore::{ATTEMPTS, PAUSE, Undo};
use super::table::{Machine, Table};
use super::threads::AttachedGroup;
use punctual_linux::os::{cgroup, proc};

impl Undo<'_> {
    /// Empties the groups of what the run attached to: each thread goes to the group that it had, and what
    /// came during the run goes with it.
    pub(super) fn send_home(&mut self) {
        let homes = self.homes();
        for index in 0..self.attached.len() {
            let group = self.attached[index].clone();
            let mut failures = Vec::new();
            for round in 0..ATTEMPTS {
                let inside = Machine.threads_below(&group.directory);
                if inside.is_empty() {
                    failures.clear();
                    break;
                }
                // What is left was started by a thread before that went home, or is on its way.
                if round > 0 {
                    std::thread::sleep(PAUSE);
                }
                failures = self.move_out(inside, &group);
            }
            self.restored.failures.extend(failures);
        }
        for (thread, home) in homes {
            // It may have moved with its whole process to the threaded group of another one of its threads.
            if thread.is_alive() && cgroup::group_of(thread.id).is_ok_and(|now| now != home) {
                // A home that is gone, or in another domain by now, takes no thread alone.
                let _ = cgroup::move_thread(&self.mount, &home, thread.id);
            }
        }
    }

    /// The threads that are written down and in a group of what the run attached to, with the groups that
    /// they had.
    fn homes(&self) -> Vec<(Identity, String)> {
        let inside = |group: &AttachedGroup| {
            let threads = Machine.threads_below(&group.directory).into_iter().flat_map(Identity::of);
            let known = threads.filter(|thread| self.records.has(*thread));
            let home = |thread| (thread, self.records.home(&Machine, &self.mount, thread, group).to_owned());
            known.map(home).collect::<Vec<_>>()
        };
        self.attached.iter().flat_map(inside).collect()
    }

    /// Moves threads out of a group; returns what failed.
    fn move_out(&mut self, threads: Vec<i32>, from: &AttachedGroup) -> Vec<String> {
        let mut failures = Vec::new();
        for tid in threads {
            let is_inside = cgroup::group_of(tid)
                .is_ok_and(|group| cgroup::below(&self.mount, &group).starts_with(&from.directory));
            let Ok(thread) = Identity::of(tid) else { continue };
            // A whole process may have moved with another of its threads.
            if !is_inside {
                continue;
            }
            let group = self.records.home(&Machine, &self.mount, thread, from);
            match self.move_home(tid, group) {
                Ok(true) => {}
                Ok(false) => self.restored.threads_without_home += 1,
                Err(_) if !thread.is_alive() => {}
                Err(e) => failures.push(format!("thread {tid}: back to {group}: {e}")),
            }
        }
        failures
    }

    /// Moves a thread to `group`, if need be with its process; to the nearest group above that takes it when
    /// `group` is gone, and returns false then.
    fn move_home(&self, tid: i32, group: &str) -> io::Result<bool> {
        if cgroup::below(&self.mount, group).is_dir() {
            return self.move_to(tid, group).map(|()| true);
        }
        let mut above = group;
        loop {
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
            // A group whose controllers are on takes no process; the root takes every one.
            match self.move_to(tid, if above.is_empty() { "/" } else { above }) {
                Err(_) if !above.is_empty() => {}
                moved => return moved.map(|()| false),
            }
        }
    }

    fn move_to(&self, tid: i32, group: &str) -> io::Result<()> {
        match cgroup::move_thread(&self.mount, group, tid) {
            // It is in another threaded domain: only whole processes go from one to another.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                cgroup::move_process(&self.mount, group, proc::process_of(tid)?)
            }
            moved => moved,
        }
    }
}
