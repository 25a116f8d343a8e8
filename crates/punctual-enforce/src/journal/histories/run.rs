//! A run on the made-up machine: it attaches to processes step by step, as a session does, and may die
//! between any two steps. Its journal is the only thing that is left of it then.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::super::given::OwnScheduling;
use super::super::table::Table;
use super::super::threads::{AttachedGroup, FoundThread, ThreadRecords};
use super::super::{Change, Identity};
use super::world::{Lowered, MOUNT, World, fair, forked};
use crate::unit::{HIGHEST, LOWEST};
use punctual_linux::os::sched::{self, Attributes};

/// Where a run puts vCPUs, and helper threads.
const POOL: [usize; 1] = [1];
const HELPERS: [usize; 1] = [0];

/// What a run does next.
#[derive(Clone, Debug)]
enum Step {
    Give(Vec<Attributes>, Vec<Vec<usize>>),
    /// Writes down the threads of a process until there is none that is new.
    RecordAll(i32),
    Record(i32),
    Enter(Identity, usize),
    Confine(Identity, Vec<usize>),
    Schedule(Identity, Attributes),
    /// Places the other threads of a process.
    PlaceHelpers(i32),
    PlaceHelper(i32),
}

#[derive(Clone, Debug)]
pub(super) struct FakeRun {
    pub changes: Vec<Change>,
    records: ThreadRecords,
    id: i32,
    /// What helper threads get.
    helpers: Attributes,
    /// The threads of units with their groups.
    units: Vec<(Identity, String)>,
    /// The processes that it attaches to.
    pub processes: Vec<i32>,
    steps: VecDeque<Step>,
    made: usize,
    pub began: u64,
    truths: Vec<Truth>,
}

/// A thread that was written down, its process and home, and how it was without the run.
type Truth = (Identity, i32, String, Vec<OwnScheduling>);

/// The class of a unit of this rank.
fn ranked(rank: usize) -> Attributes {
    Attributes::fifo(HIGHEST - rank as u32)
}

impl FakeRun {
    pub(super) fn begin(world: &mut World, id: i32, helpers: Attributes) -> FakeRun {
        world.clock += 1;
        let enforcer = Identity { id, start_ticks: world.clock };
        for thread in world.threads.values_mut() {
            thread.recorded = None;
            thread.excuses.clear();
        }
        let mut run = FakeRun {
            changes: Vec::new(),
            records: ThreadRecords::default(),
            id,
            helpers,
            units: Vec::new(),
            processes: Vec::new(),
            steps: VecDeque::new(),
            made: 0,
            began: enforcer.start_ticks,
            truths: Vec::new(),
        };
        run.write(Change::Run { enforcer, name: "host".into(), boot: "this".into() });
        run
    }

    fn write(&mut self, change: Change) {
        self.records.add(&change);
        self.changes.push(change);
    }

    /// Takes threads of a process as units and places all others.
    pub(super) fn adopt(&mut self, world: &World, process: i32, vcpus: &[i32]) {
        self.processes.push(process);
        for vcpu in vcpus.iter().filter_map(|tid| world.identity(*tid)) {
            if self.units.iter().any(|(unit, _)| *unit == vcpu) {
                continue;
            }
            let attributes = vec![ranked(self.made), Attributes::idle(), Attributes::other()];
            self.steps.push_back(Step::Give(attributes, vec![POOL.to_vec()]));
            self.steps.push_back(Step::RecordAll(process));
            self.steps.push_back(Step::Enter(vcpu, self.made));
            self.steps.push_back(Step::Confine(vcpu, POOL.to_vec()));
            self.steps.push_back(Step::Schedule(vcpu, ranked(self.made)));
            self.made += 1;
        }
        self.steps.push_back(Step::PlaceHelpers(process));
    }

    /// Makes one step, if one is left.
    pub(super) fn step(&mut self, world: &mut World) {
        let Some(step) = self.steps.pop_front() else { return };
        match step {
            Step::Give(attributes, affinities) => {
                if let Some(news) = self.records.given().news(&attributes, &affinities) {
                    self.write(news);
                }
            }
            Step::RecordAll(process) => {
                let is_new = |tid: &i32| world.identity(*tid).is_some_and(|thread| !self.records.has(thread));
                let new: Vec<i32> = world.threads(process).into_iter().filter(is_new).collect();
                if !new.is_empty() {
                    self.steps.push_front(Step::RecordAll(process));
                }
                new.into_iter().rev().for_each(|tid| self.steps.push_front(Step::Record(tid)));
            }
            Step::Record(tid) => self.record(world, tid),
            Step::Enter(vcpu, index) => self.enter(world, vcpu, index),
            Step::Confine(vcpu, processors) => {
                if let Some(thread) = self.unit(world, vcpu) {
                    thread.now.affinity = processors;
                }
            }
            Step::Schedule(vcpu, attributes) => {
                if self.unit(world, vcpu).is_some() {
                    world.give(vcpu.id, &attributes);
                }
            }
            Step::PlaceHelpers(process) => {
                for tid in world.threads(process) {
                    let is_unit = self.units.iter().any(|(unit, _)| unit.id == tid);
                    if !is_unit {
                        self.steps.push_back(Step::PlaceHelper(tid));
                    }
                }
            }
            Step::PlaceHelper(tid) => {
                let given = self.records.given().news(&[self.helpers], &[HELPERS.to_vec()]);
                given.into_iter().for_each(|news| self.write(news));
                self.record(world, tid);
                if let Some(process) = world.process_of(tid)
                    && world.identity(tid).is_some_and(|thread| self.records.has(thread))
                {
                    if !self.records.has_changed(process) {
                        self.write(Change::Helpers { process });
                    }
                    world.give(tid, &self.helpers);
                    if let Some(thread) = world.threads.get_mut(&tid) {
                        thread.now.affinity = HELPERS.to_vec();
                    }
                }
            }
        }
    }

    /// Its journal.
    pub(super) fn shown(&self) -> String {
        let lines: Vec<String> = self.changes.iter().map(|change| format!("{change:?}")).collect();
        lines.join("\n")
    }

    fn record(&mut self, world: &mut World, tid: i32) {
        let Some(thread) = world.identity(tid).filter(|thread| !self.records.has(*thread)) else { return };
        let Some(found) = world.threads.get(&tid).cloned() else { return };
        let process = found.process;
        let before =
            self.records.before(world, FoundThread { thread, process, scheduling: found.now.clone() });
        let OwnScheduling { attributes, affinity } = before;
        let nice = attributes.nice;
        self.write(Change::Thread { thread, process, attributes, affinity, group: found.group });
        let excuses = self.guesses(world, thread);
        let mut truths = excuses.clone();
        truths.push(found.without.clone());
        self.truths.push((thread, process, found.home, truths));
        if let Some(thread) = world.threads.get_mut(&tid) {
            // What it starts inherits a nice value that it would not have.
            thread.is_mixed |= thread.now.attributes.nice != nice;
            thread.recorded = Some(found.without);
            thread.excuses = excuses;
        }
    }

    /// How the rule takes a thread that came during the run for scheduled without it: as the unit in whose
    /// group it is, else as the first thread of the nearest process above it that the run has changed; of an
    /// orphan in a home, as a thread of that home.
    pub(super) fn guesses(&self, world: &World, thread: Identity) -> Vec<OwnScheduling> {
        let Some(found) = world.threads.get(&thread.id) else { return Vec::new() };
        if thread.start_ticks < self.began {
            return Vec::new();
        }
        if let Some(unit) = self.unit_around(&found.group).filter(|unit| *unit != thread) {
            return self.truths_of(|(known, ..)| *known == unit);
        }
        let parent = |process: &i32| world.processes.get(process).map(|process| process.parent);
        let line = std::iter::successors(Some(found.process), parent);
        for process in line {
            let is_changed = self.units.iter().any(|(unit, _)| self.process_of(*unit) == Some(process))
                || self.changes.contains(&Change::Helpers { process });
            let first = self.truths.iter().find(|(known, of, ..)| {
                *of == process && (world.is(*known) || world.identity(process) == Some(*known))
            });
            if let Some((first, ..)) = first.filter(|_| is_changed) {
                return self.truths_of(|(known, ..)| known == first);
            }
        }
        let group = world.threads.get(&found.process).map(|leader| &leader.group);
        let is_there = |process: &i32| world.threads.get(process).map(|leader| &leader.group) == group;
        self.truths_of(|(_, process, home, _)| Some(home) == group || is_there(process))
    }

    /// How the unit was in whose group a thread is, which may have executed the program of that thread.
    pub(super) fn unit_executed(&self, group: &str) -> Vec<OwnScheduling> {
        let Some(unit) = self.unit_around(group) else { return Vec::new() };
        let truths = self.truths.iter().filter(|(known, ..)| *known == unit);
        truths.flat_map(|(.., truths)| truths.clone()).collect()
    }

    fn process_of(&self, thread: Identity) -> Option<i32> {
        self.truths.iter().find(|(known, ..)| *known == thread).map(|(_, process, ..)| *process)
    }

    fn truths_of(&self, is_meant: impl Fn(&&Truth) -> bool) -> Vec<OwnScheduling> {
        let truths = self.truths.iter().filter(is_meant).flat_map(|(.., truths)| truths);
        truths.map(|truth| OwnScheduling { attributes: forked(&truth.attributes), ..truth.clone() }).collect()
    }

    /// The thread of a unit that it has.
    fn unit<'w>(&self, world: &'w mut World, vcpu: Identity) -> Option<&'w mut super::world::Thread> {
        let is_unit = self.units.iter().any(|(unit, _)| *unit == vcpu);
        if is_unit && world.is(vcpu) { world.threads.get_mut(&vcpu.id) } else { None }
    }

    fn enter(&mut self, world: &mut World, vcpu: Identity, index: usize) {
        if !world.is(vcpu) || !self.records.has(vcpu) {
            return;
        }
        let group = world.threads[&vcpu.id].group.clone();
        let name = format!("punctual-{}-attached", self.id);
        let parent = match group.find(&name) {
            Some(at) => group[..at + name.len()].to_owned(),
            None => format!("{group}/{name}"),
        };
        let directory = PathBuf::from(format!("{MOUNT}{parent}"));
        let is_made = |change: &Change| match change {
            Change::AttachedGroup { directory: made, .. } => *made == directory,
            _ => false,
        };
        if !self.changes.iter().any(is_made) {
            self.write(Change::AttachedGroup { directory, home: group });
        }
        let group = format!("{parent}/unit{index}");
        self.write(Change::Unit { thread: vcpu, group: group.clone() });
        if let Some(thread) = world.threads.get_mut(&vcpu.id) {
            thread.group = group.clone();
        }
        self.units.push((vcpu, group));
    }

    /// An enforcer gives a unit another class.
    pub(super) fn rank(&mut self, world: &mut World, unit: usize, rank: usize) {
        if self.units.is_empty() {
            return;
        }
        let unit = self.units[unit % self.units.len()].0;
        let ranks = [ranked(rank % self.units.len()), Attributes::idle(), Attributes::other()];
        if world.is(unit) {
            world.give(unit.id, &ranks[rank % 3]);
        }
    }

    /// The watchdog puts what a vCPU started into the fair class.
    pub(super) fn watch(&self, world: &mut World) {
        for (unit, group) in &self.units {
            let inside: Vec<i32> = world.threads_below(Path::new(&format!("{MOUNT}{group}")));
            for tid in inside.into_iter().filter(|tid| *tid != unit.id) {
                let now = world.threads[&tid].now.attributes;
                if now.policy == sched::FIFO && (LOWEST..=HIGHEST).contains(&now.priority) {
                    world.give(tid, &fair(now.nice));
                }
            }
        }
    }

    /// The enforcers end: units are in the fair class.
    pub(super) fn release(&self, world: &mut World) {
        for (unit, _) in &self.units {
            if world.is(*unit) {
                world.give(unit.id, &Attributes::other());
            }
        }
        self.watch(world);
    }

    /// The unit in whose group a thread is.
    fn unit_around(&self, group: &str) -> Option<Identity> {
        let is_around = |(_, around): &&(Identity, String)| *around == group;
        self.units.iter().find(is_around).map(|(unit, _)| *unit)
    }
}

/// Undoes a journal, or the first `limit` decisions of it, as `Undo` does.
pub(super) fn undo(world: &mut World, changes: &[Change], limit: usize) {
    let records = ThreadRecords::of(changes);
    let attached = changes.iter().filter_map(|change| match change {
        Change::AttachedGroup { directory, home } => {
            Some(AttachedGroup { directory: directory.clone(), home: home.clone() })
        }
        _ => None,
    });
    let attached: Vec<AttachedGroup> = attached.collect();
    let mut lowered = Lowered::new();
    for tid in attached.iter().flat_map(|group| world.threads_below(&group.directory)).collect::<Vec<_>>() {
        if let Some(OwnScheduling { attributes, .. }) = world.scheduling(tid) {
            lowered.insert(tid, attributes);
        }
        world.give(tid, &Attributes::other());
    }
    for (thread, scheduling) in records.schedulings(world, &lowered).into_iter().take(limit) {
        if world.is(thread)
            && let Some(found) = world.threads.get_mut(&thread.id)
        {
            found.now = scheduling;
        }
    }
    if limit < usize::MAX {
        return;
    }
    for group in &attached {
        for tid in world.threads_below(&group.directory) {
            let Some(thread) = world.identity(tid) else { continue };
            let home = records.home(world, Path::new(MOUNT), thread, group).to_owned();
            if let Some(found) = world.threads.get_mut(&thread.id) {
                found.group = home;
            }
        }
    }
}
