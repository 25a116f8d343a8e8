//! What a journal says of threads, and what undoing does with each thread of the machine. Nothing here is
//! changed: the machine is read through a [`Table`], and the caller carries the decisions out.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::given::{Given, OwnScheduling};
use super::table::Table;
use super::{Change, Identity};
use punctual_linux::os::sched::Attributes;
use punctual_linux::os::{cgroup, proc};

/// How a thread was before the run.
#[derive(Clone, Debug)]
struct ThreadBefore {
    group: String,
    scheduling: OwnScheduling,
}

/// A thread as it is found.
#[derive(Clone, Debug)]
pub(super) struct FoundThread {
    pub thread: Identity,
    pub process: i32,
    pub scheduling: OwnScheduling,
}

/// A group with threads that the run attached to.
#[derive(Clone, Debug)]
pub(super) struct AttachedGroup {
    pub directory: PathBuf,
    /// The group of whatever is in it and not written down.
    pub home: String,
}

/// What a journal says of threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadRecords {
    /// When the run began, in clock ticks since boot.
    began: Option<u64>,
    threads: HashMap<Identity, ThreadBefore>,
    /// In the order of the journal.
    in_order: Vec<Identity>,
    /// The threads of each process, in the order of the journal. They are in ascending order, so the first
    /// thread of a process comes first.
    of_process: HashMap<i32, Vec<Identity>>,
    attached: Vec<AttachedGroup>,
    given: Given,
}

impl ThreadRecords {
    pub(super) fn of(changes: &[Change]) -> ThreadRecords {
        let mut records = ThreadRecords::default();
        changes.iter().for_each(|change| records.add(change));
        records
    }

    /// Adds the next line of the journal.
    pub(super) fn add(&mut self, change: &Change) {
        match change {
            Change::Run { enforcer, .. } => self.began = Some(enforcer.start_ticks),
            Change::Given { .. } => self.given.extend(change),
            Change::AttachedGroup { directory, home } => {
                self.attached.push(AttachedGroup { directory: directory.clone(), home: home.clone() });
            }
            // A thread may come twice; its first record is how it was.
            Change::Thread { thread, process, attributes, affinity, group } if !self.has(*thread) => {
                let scheduling = OwnScheduling { attributes: *attributes, affinity: affinity.clone() };
                let before = ThreadBefore { group: group.clone(), scheduling };
                self.threads.insert(*thread, before);
                self.in_order.push(*thread);
                self.of_process.entry(*process).or_default().push(*thread);
            }
            _ => {}
        }
    }

    /// Is a thread written down?
    pub(super) fn has(&self, thread: Identity) -> bool {
        self.threads.contains_key(&thread)
    }

    /// When the run began, in clock ticks since boot.
    pub(super) fn began(&self) -> Option<u64> {
        self.began
    }

    /// What the run gives to threads.
    pub(super) fn given(&self) -> &Given {
        &self.given
    }

    /// For a journal of which a part cannot be read: the run may have given any priority.
    pub(super) fn add_all_priorities(&mut self) {
        self.given.add_all_priorities();
    }

    /// How a thread that is to be written down was before the run, or would be without it.
    pub(super) fn before(&self, table: &impl Table, found: FoundThread) -> OwnScheduling {
        let is_young = self.began.is_some_and(|began| found.thread.start_ticks >= began);
        match self.first_of(found.process, table).filter(|_| is_young) {
            Some(first) => self.given.without(found.scheduling, first),
            None => found.scheduling,
        }
    }

    /// How the first thread of a process was, if that process goes on.
    fn first_of(&self, process: i32, table: &impl Table) -> Option<&OwnScheduling> {
        let first = self.of_process.get(&process)?.iter().find(|thread| table.is_alive(**thread))?;
        Some(&self.threads.get(first)?.scheduling)
    }

    /// The threads that undoing schedules, and how: those that are written down, in the order of the journal,
    /// those that came during the run, and what else is in the run's groups. `lowered` has the attributes of
    /// threads that undoing has put into the fair class already.
    pub(super) fn schedulings(
        &self,
        table: &impl Table,
        lowered: &HashMap<i32, Attributes>,
    ) -> Vec<(Identity, OwnScheduling)> {
        let known = |thread: &Identity| Some((*thread, self.threads.get(thread)?.scheduling.clone()));
        let mut all: Vec<(Identity, OwnScheduling)> = self.in_order.iter().filter_map(known).collect();
        for (thread, origin) in self.newcomers(table) {
            let Some(now) = table.scheduling(thread.id) else { continue };
            let attributes = lowered.get(&thread.id).copied().unwrap_or(now.attributes);
            all.push((thread, self.given.without(OwnScheduling { attributes, ..now }, origin)));
        }
        let decided: HashSet<i32> = all.iter().map(|(thread, _)| thread.id).collect();
        for (&tid, &attributes) in lowered {
            if !decided.contains(&tid)
                && !self.given.gives(&attributes)
                && let Some((thread, now)) = table.identity(tid).zip(table.scheduling(tid))
            {
                all.push((thread, OwnScheduling { attributes, ..now }));
            }
        }
        all
    }

    /// The threads that came during the run, with the scheduling of what started them: they may have
    /// inherited what the run gave to that. They are threads of processes that were attached to, of processes
    /// that descend from these, of daemons in their homes, and whatever else is in the run's groups. Threads
    /// that are older than the run and not written down are none: the run could not write, and changed
    /// nothing, or the line is damaged.
    fn newcomers(&self, table: &impl Table) -> Vec<(Identity, &OwnScheduling)> {
        let mut processes: HashMap<i32, &OwnScheduling> = HashMap::new();
        for &process in self.of_process.keys() {
            processes.extend(self.first_of(process, table).map(|first| (process, first)));
        }
        let all = if self.in_order.is_empty() { HashMap::new() } else { all_processes(table) };
        for (process, scheduling) in self.orphans(table, &all) {
            processes.entry(process).or_insert(scheduling);
        }
        let mut newcomers = Newcomers { records: self, table, seen: HashSet::new(), found: Vec::new() };
        for (&process, scheduling) in &processes {
            newcomers.add(table.threads(process), scheduling);
        }
        for (process, ancestor) in self.descendants(&processes, &all) {
            newcomers.add(table.threads(process), processes[&ancestor]);
        }
        for group in &self.attached {
            let from_here = self.in_order().find(|before| before.group == group.home);
            let Some(any) = from_here.or_else(|| self.in_order().next()) else { continue };
            newcomers.add(table.threads_below(&group.directory), &any.scheduling);
        }
        newcomers.found
    }

    fn in_order(&self) -> impl Iterator<Item = &ThreadBefore> {
        self.in_order.iter().filter_map(|thread| self.threads.get(thread))
    }

    /// The processes that began during the run and have lost the parent that started them, in a home of what
    /// the run attached to, each with the scheduling of a thread from there. A daemon, which forks twice and
    /// begins a session in between, is one, and so is what an attached process that has ended leaves.
    fn orphans(&self, table: &impl Table, all: &HashMap<i32, proc::Stat>) -> Vec<(i32, &OwnScheduling)> {
        let began = self.began.unwrap_or(0);
        let is_orphan =
            |stat: &proc::Stat| stat.parent == 1 || (stat.session > 0 && !all.contains_key(&stat.session));
        let origin_of = |pid: i32| {
            let group = table.group(pid)?;
            self.in_order().find(|before| before.group == group).map(|before| &before.scheduling)
        };
        let young = all.iter().filter(|(_, stat)| stat.start_ticks >= began && is_orphan(stat));
        let of_others = young.filter(|(pid, _)| !table.is_exempt(**pid));
        of_others.filter_map(|(pid, _)| Some((*pid, origin_of(*pid)?))).collect()
    }

    /// The processes that began during the run and descend from one of `ancestors`, each with that one.
    fn descendants(
        &self,
        ancestors: &HashMap<i32, &OwnScheduling>,
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

    /// The group to which a thread in the attached group at `directory`, with this `home`, returns.
    pub(super) fn home<'a>(
        &'a self,
        mount: &Path,
        thread: Identity,
        AttachedGroup { directory, home }: &'a AttachedGroup,
    ) -> &'a str {
        // A thread that came from a unit of this run has the run's own group written down.
        let before = self.threads.get(&thread).map(|before| before.group.as_str());
        before.filter(|group| !cgroup::below(mount, group).starts_with(directory)).unwrap_or(home)
    }
}

/// Threads that came during the run, found one by one.
struct Newcomers<'r, 't, T> {
    records: &'r ThreadRecords,
    table: &'t T,
    seen: HashSet<i32>,
    found: Vec<(Identity, &'r OwnScheduling)>,
}

impl<'r, T: Table> Newcomers<'r, '_, T> {
    fn add(&mut self, threads: impl IntoIterator<Item = i32>, scheduling: &'r OwnScheduling) {
        let began = self.records.began.unwrap_or(0);
        for tid in threads {
            if self.seen.insert(tid)
                && let Some(thread) = self.table.identity(tid)
                && thread.start_ticks >= began
                && !self.records.has(thread)
            {
                self.found.push((thread, scheduling));
            }
        }
    }
}

/// What the system says of each process.
fn all_processes(table: &impl Table) -> HashMap<i32, proc::Stat> {
    table.processes().into_iter().filter_map(|pid| Some((pid, table.stat(pid)?))).collect()
}
