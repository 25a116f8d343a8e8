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
    process: i32,
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
    /// By its group, the thread of each unit.
    units: HashMap<PathBuf, Identity>,
    /// The processes with threads that the run has changed.
    changed: HashSet<i32>,
    /// The processes of units that are whole cgroups.
    members: HashSet<i32>,
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
            Change::Unit { thread, group } => {
                self.units.insert(PathBuf::from(group), *thread);
                self.changed.extend(self.threads.get(thread).map(|before| before.process));
            }
            Change::Helpers { process } => {
                self.changed.insert(*process);
            }
            Change::Member { process, .. } => {
                self.changed.insert(*process);
                self.members.insert(*process);
            }
            // A thread may come twice; its first record is how it was.
            Change::Thread { thread, process, attributes, affinity, group } if !self.has(*thread) => {
                let scheduling = OwnScheduling { attributes: *attributes, affinity: affinity.clone() };
                let before = ThreadBefore { process: *process, group: group.clone(), scheduling };
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

    /// Has the run changed a thread of this process?
    pub(super) fn has_changed(&self, process: i32) -> bool {
        self.changed.contains(&process)
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
        match self.origin(table, found.thread, found.process) {
            Some(origin) => self.given.without(found.scheduling, origin),
            None => found.scheduling,
        }
    }

    /// How that was scheduled which created a thread during the run, as far as the run may have changed it.
    /// `None` of a thread that is older than the run, or that nothing created which the run has changed.
    fn origin(&self, table: &impl Table, thread: Identity, process: i32) -> Option<&OwnScheduling> {
        if self.began.is_none_or(|began| thread.start_ticks < began) {
            return None;
        }
        self.unit_around(table, thread)
            .map(|unit| &unit.scheduling)
            .or_else(|| self.origin_of_process(table, process))
            .or_else(|| self.origin_in_group(table, thread))
    }

    /// The unit in whose group a thread is that is not its own: it comes from there. In a unit that is a
    /// whole cgroup, each thread comes from its own process or the one above.
    fn unit_around(&self, table: &impl Table, thread: Identity) -> Option<&ThreadBefore> {
        let group = PathBuf::from(table.group(thread.id)?);
        let unit = group.ancestors().find_map(|group| self.units.get(group))?;
        let before = self.threads.get(unit).filter(|_| *unit != thread)?;
        (!self.members.contains(&before.process)).then_some(before)
    }

    /// How a process was, or the nearest process above it, that the run has changed; or a daemon on the way.
    /// A process that is older than the run and unchanged passes nothing of the run on.
    fn origin_of_process(&self, table: &impl Table, mut process: i32) -> Option<&OwnScheduling> {
        let mut young = Vec::new();
        // No line of parents is as long; a made-up one may be a circle.
        for _ in 0..LINE_MAX {
            if let Some(first) = self.first_of(process, table) {
                return Some(first);
            }
            let began = |stat: &proc::Stat| self.began.is_some_and(|began| stat.start_ticks >= began);
            let Some(stat) = table.stat(process).filter(began) else { break };
            young.push((process, stat));
            process = stat.parent;
        }
        young.iter().find_map(|(process, stat)| self.origin_of_orphan(table, *process, stat))
    }

    /// Of a process that has lost the parent that started it, in a home of what the run attached to, or where
    /// that is now: how a thread from there was. A daemon, which forks twice and begins a session in
    /// between, is one, and so is what an attached process that has ended leaves. `init` adopts them, or a
    /// process in another session (`PR_SET_CHILD_SUBREAPER`).
    fn origin_of_orphan(
        &self,
        table: &impl Table,
        process: i32,
        stat: &proc::Stat,
    ) -> Option<&OwnScheduling> {
        // Only the leader of a session has a parent in another one, as long as the parent lives.
        let is_in_other_session =
            || table.stat(stat.parent).is_none_or(|parent| parent.session != stat.session);
        let is_orphan =
            stat.parent == 1 || (stat.session > 0 && stat.session != process && is_in_other_session());
        if !is_orphan {
            return None;
        }
        let group = table.group(process)?;
        let was_here = self.changed().find(|before| before.group == group).map(|before| &before.scheduling);
        let is_here = |process: &&i32| table.group(**process).as_ref() == Some(&group);
        let from_here = || self.changed.iter().filter(is_here).find_map(|here| self.first_of(*here, table));
        was_here.or_else(from_here).filter(|_| !table.is_exempt(process))
    }

    /// Of a thread in a group of what the run attached to: how a thread was that came from there.
    fn origin_in_group(&self, table: &impl Table, thread: Identity) -> Option<&OwnScheduling> {
        let group = PathBuf::from(table.group(thread.id)?);
        let mut above = group.ancestors().filter_map(|above| above.strip_prefix("/").ok());
        let inside = |group: &Path| self.attached.iter().find(|attached| attached.directory.ends_with(group));
        let home = &above.find_map(|above| above.file_name().and_then(|_| inside(above)))?.home;
        let from_here = self.changed().find(|before| before.group == *home);
        Some(&from_here.or_else(|| self.changed().next())?.scheduling)
    }

    /// How the first thread of a process was that the run has changed, if that process goes on.
    fn first_of(&self, process: i32, table: &impl Table) -> Option<&OwnScheduling> {
        if !self.changed.contains(&process) {
            return None;
        }
        // The first thread stays as a zombie while others of its process go on.
        let leader = table.identity(process);
        let goes_on = |thread: &&Identity| leader == Some(**thread) || table.is_alive(**thread);
        let first = self.of_process.get(&process)?.iter().find(goes_on)?;
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
        let known = |thread: &Identity| Some((*thread, self.before_of(table, *thread)?.scheduling.clone()));
        let mut all: Vec<(Identity, OwnScheduling)> = self.in_order.iter().filter_map(known).collect();
        for (thread, process) in self.newcomers(table) {
            let Some(origin) = self.origin(table, thread, process) else { continue };
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

    /// How a thread that is written down was. One that a unit has become by executing a program, which then
    /// has the id of the first thread of its process and the group of the unit, was as the unit.
    fn before_of(&self, table: &impl Table, thread: Identity) -> Option<&ThreadBefore> {
        let written = self.threads.get(&thread)?;
        let is_elsewhere = |group: &String| *group != written.group;
        match table.group(thread.id).filter(is_elsewhere).and_then(|_| self.unit_around(table, thread)) {
            Some(unit) if table.is_alive(thread) => Some(unit),
            _ => Some(written),
        }
    }

    /// The threads that may have come from what the run changed, each with its process: threads that began
    /// during the run and are not written down, of processes that were attached to or that began during the
    /// run, or in the run's groups. Threads that are older than the run and not written down are none: the
    /// run could not write, and changed nothing, or the line is damaged.
    fn newcomers(&self, table: &impl Table) -> Vec<(Identity, i32)> {
        let mut newcomers = Newcomers { records: self, table, seen: HashSet::new(), found: Vec::new() };
        if self.in_order.is_empty() {
            return newcomers.found;
        }
        for &process in self.of_process.keys() {
            newcomers.add(table.threads(process), process);
        }
        for process in table.processes() {
            let is_young = table.stat(process).is_some_and(|stat| Some(stat.start_ticks) >= self.began);
            if is_young && self.origin_of_process(table, process).is_some() {
                newcomers.add(table.threads(process), process);
            }
        }
        for group in &self.attached {
            for tid in table.threads_below(&group.directory) {
                table.process_of(tid).into_iter().for_each(|process| newcomers.add([tid], process));
            }
        }
        newcomers.found
    }

    /// The threads of processes that the run has changed, in the order of the journal.
    fn changed(&self) -> impl Iterator<Item = &ThreadBefore> {
        let all = self.in_order.iter().filter_map(|thread| self.threads.get(thread));
        all.filter(|before| self.changed.contains(&before.process))
    }

    /// The group to which a thread in the attached group at `directory`, with this `home`, returns.
    pub(super) fn home<'a>(
        &'a self,
        table: &impl Table,
        mount: &Path,
        thread: Identity,
        AttachedGroup { directory, home }: &'a AttachedGroup,
    ) -> &'a str {
        // A group in a home has only what came from there, perhaps after it was written down.
        if directory.parent() == Some(&*cgroup::below(mount, home)) {
            return home;
        }
        // A thread that came from a unit of this run has the run's own group written down.
        let before = self.before_of(table, thread).map(|before| before.group.as_str());
        before.filter(|group| !cgroup::below(mount, group).starts_with(directory)).unwrap_or(home)
    }
}

/// So many parents a process has at most.
const LINE_MAX: usize = 1_000;

/// Threads that came during the run, found one by one.
struct Newcomers<'r, 't, T> {
    records: &'r ThreadRecords,
    table: &'t T,
    seen: HashSet<i32>,
    found: Vec<(Identity, i32)>,
}

impl<T: Table> Newcomers<'_, '_, T> {
    fn add(&mut self, threads: impl IntoIterator<Item = i32>, process: i32) {
        let began = self.records.began.unwrap_or(0);
        for tid in threads {
            if self.seen.insert(tid)
                && let Some(thread) = self.table.identity(tid)
                && thread.start_ticks >= began
                && !self.records.has(thread)
            {
                self.found.push((thread, process));
            }
        }
    }
}
