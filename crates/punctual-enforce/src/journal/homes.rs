//! Letting go of what a run attached to: every thread has the scheduling and the group that it had. What it
//! started meanwhile goes with it and loses what it inherited from the run; what it set itself stays.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use super::Identity;
use super::before::{Scheduling, ThreadsBefore};
use super::restore::{ATTEMPTS, PAUSE, Undo, threads_in_tree};
use punctual_linux::os::{cgroup, proc};

/// Threads that came during the run, found one by one.
struct Newcomers<'u, 'a> {
    before: &'u ThreadsBefore<'a>,
    /// When the run began, in clock ticks since boot.
    began: u64,
    seen: HashSet<i32>,
    found: Vec<(Identity, Scheduling<'a>)>,
}

impl<'a> Newcomers<'_, 'a> {
    fn add(&mut self, threads: impl IntoIterator<Item = i32>, scheduling: Scheduling<'a>) {
        for tid in threads {
            if self.seen.insert(tid)
                && let Ok(thread) = Identity::of(tid)
                && thread.start_ticks >= self.began
                && self.before.of_thread(thread).is_none()
            {
                self.found.push((thread, scheduling));
            }
        }
    }
}

impl<'a> Undo<'a> {
    /// The threads that came during the run, with the scheduling of what started them: they may have
    /// inherited what the run gave to that. They are threads of processes that were attached to, of processes
    /// that descend from these, of daemons in their homes, and whatever else is in the run's groups. Threads
    /// that are older than the run and not written down are none: the run could not write, and changed
    /// nothing, or the line is damaged.
    pub(super) fn newcomers(&self) -> Vec<(Identity, Scheduling<'a>)> {
        let mut processes = self.before.processes();
        let all = if self.before.iter().next().is_some() { all_processes() } else { HashMap::new() };
        for (process, scheduling) in self.orphans(&all) {
            processes.entry(process).or_insert(scheduling);
        }
        let (before, seen, found) = (&self.before, HashSet::new(), Vec::new());
        let mut newcomers = Newcomers { before, began: self.began.unwrap_or(0), seen, found };
        for (&process, &scheduling) in &processes {
            newcomers.add(proc::threads(process).unwrap_or_default(), scheduling);
        }
        for (process, ancestor) in self.descendants(&processes, &all) {
            newcomers.add(proc::threads(process).unwrap_or_default(), processes[&ancestor]);
        }
        for group in &self.attached {
            let from_here = self.before.iter().find(|(_, before)| before.group == group.home);
            let Some((_, any)) = from_here.or_else(|| self.before.iter().next()) else { continue };
            newcomers.add(threads_in_tree(group.directory), any.scheduling);
        }
        newcomers.found
    }

    /// The processes that began during the run and have lost the parent that started them, in a home of what
    /// the run attached to, each with the scheduling of a thread from there. A daemon, which forks twice and
    /// begins a session in between, is one, and so is what an attached process that has ended leaves.
    fn orphans(&self, all: &HashMap<i32, proc::Stat>) -> Vec<(i32, Scheduling<'a>)> {
        let began = self.began.unwrap_or(0);
        let is_orphan =
            |stat: &proc::Stat| stat.parent == 1 || (stat.session > 0 && !all.contains_key(&stat.session));
        // Runs and their guardians confine themselves.
        let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let own = program(std::process::id() as i32);
        let origin_of = |pid: i32| {
            let group = cgroup::group_of(pid).ok()?;
            self.before.iter().find(|(_, before)| before.group == group).map(|(_, before)| before.scheduling)
        };
        let young = all.iter().filter(|(_, stat)| stat.start_ticks >= began && is_orphan(stat));
        let of_others = young.filter(|(pid, _)| !proc::is_kernel_thread(**pid) && program(**pid) != own);
        of_others.filter_map(|(pid, _)| Some((*pid, origin_of(*pid)?))).collect()
    }

    /// The processes that began during the run and descend from one of `ancestors`, each with that one.
    fn descendants(
        &self,
        ancestors: &HashMap<i32, Scheduling<'_>>,
        stats: &HashMap<i32, proc::Stat>,
    ) -> Vec<(i32, i32)> {
        let began = self.began.unwrap_or(0);
        let ancestor_of = |pid: &i32| {
            let parent = |pid: &i32| stats.get(pid).map(|stat| stat.parent);
            std::iter::successors(parent(pid), parent).find(|pid| ancestors.contains_key(pid))
        };
        let young =
            stats.iter().filter(|(pid, stat)| stat.start_ticks >= began && !ancestors.contains_key(pid));
        young.filter_map(|(pid, _)| Some((*pid, ancestor_of(pid)?))).collect()
    }

    /// Empties the groups of what the run attached to: each thread goes to the group that it had, and what
    /// came during the run goes with it.
    pub(super) fn send_home(&mut self) {
        for index in 0..self.attached.len() {
            let (directory, home) = (self.attached[index].directory, self.attached[index].home);
            let mut failures = Vec::new();
            for round in 0..ATTEMPTS {
                let inside = threads_in_tree(directory);
                if inside.is_empty() {
                    failures.clear();
                    break;
                }
                // What is left was started by a thread before that went home, or is on its way.
                if round > 0 {
                    std::thread::sleep(PAUSE);
                }
                failures = self.move_out(inside, directory, home);
            }
            self.restored.failures.extend(failures);
        }
    }

    /// Moves threads out of the group at `directory`; returns what failed.
    fn move_out(&mut self, threads: Vec<i32>, directory: &Path, home: &'a str) -> Vec<String> {
        let mut failures = Vec::new();
        for tid in threads {
            let is_inside = cgroup::group_of(tid)
                .is_ok_and(|group| cgroup::below(&self.mount, &group).starts_with(directory));
            let Ok(thread) = Identity::of(tid) else { continue };
            // A whole process may have moved with another of its threads.
            if !is_inside {
                continue;
            }
            // A thread that came from a unit of this run has the run's own group written down.
            let before = self.before.of_thread(thread).map(|before| before.group);
            let own = before.filter(|group| !cgroup::below(&self.mount, group).starts_with(directory));
            let group = own.unwrap_or(home);
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

/// What the system says of each process.
fn all_processes() -> HashMap<i32, proc::Stat> {
    let of_process = |pid: i32| Some((pid, proc::stat(pid).ok()?));
    proc::processes().unwrap_or_default().into_iter().filter_map(of_process).collect()
}
