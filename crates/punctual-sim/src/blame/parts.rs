//! Time by cause and by who it was, and the finished jobs with theirs.

use std::cmp::Reverse;

use punctual_model::Host;
use punctual_model::index::TaskIx;
use punctual_model::results::{
    BlameSum, Cause, CauseTime, JobBlame, Segment, TaskBlame, WORST_MAX, sort_causes,
};
use punctual_sched::{Duration, Instant};

use super::shared::{NAMED_MAX, Span};
use crate::names;
use crate::observe::UnitIx;

const WITH_NAMES: [Cause; 4] =
    [Cause::PreemptedInGuest, Cause::Lock, Cause::BudgetUsedBySibling, Cause::PreemptedByUnit];

/// How many parts of earlier jobs are kept apart for the jobs that wait for them.
const CONTINUED_MAX: usize = 16;

pub(super) fn executed(parts: &[Part]) -> Duration {
    parts.iter().filter(|part| part.cause == Cause::Executing).map(|part| part.time).sum()
}

/// Places of causes without a unit, and of the parts of a packet's way.
const UNNAMED: usize = Cause::ALL.len() + Segment::ALL.len();

/// Where in [`Parts::places`] a cause and a unit stand.
#[inline]
fn place(cause: Cause, by: UnitIx) -> usize {
    match by.some() {
        None => cause as usize,
        Some(segment) if cause == Cause::Network => Cause::ALL.len() + segment.index(),
        Some(unit) => {
            let column = match cause {
                Cause::PreemptedByUnit => 1,
                Cause::BudgetUsedBySibling => 2,
                Cause::Lock => 3,
                _ => 0,
            };
            UNNAMED + WITH_NAMES.len() * unit.index() + column
        }
    }
}

/// Time for one cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub time: Duration,
    /// Who it was, or none; of [`Cause::Network`], the place of the part of the way in [`Segment::ALL`].
    pub by: UnitIx,
    pub cause: Cause,
}

/// A sum for each cause and each unit that is to be named.
pub(super) struct Parts {
    list: Vec<Part>,
    /// By cause and unit: its place in `list`, if it has one.
    places: Vec<u32>,
    /// With this many entries, new units are not named any more.
    list_max: usize,
    /// The time of other units that had the processor and are not in `list`.
    others: Duration,
}

impl Parts {
    pub(super) fn new(units: usize) -> Self {
        let places = vec![0; UNNAMED + WITH_NAMES.len() * units];
        Parts { list: Vec::new(), places, list_max: usize::MAX, others: Duration::ZERO }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.others = Duration::ZERO;
        self.list_max = usize::MAX;
    }

    /// Begins with these parts, and keeps their order.
    pub(crate) fn continue_with(&mut self, parts: &[Part]) {
        self.clear();
        self.add_all(parts);
        if !parts.is_empty() {
            self.list_max = CONTINUED_MAX;
        }
    }

    pub(super) fn list(&self) -> &[Part] {
        &self.list
    }

    /// Takes away the parts that there were when a job was released, and returns what it executed, which is
    /// all but `executed_before`, from what earlier jobs of its task did.
    pub(crate) fn leave_own(&mut self, seen: &[Duration], executed_before: Duration, task: UnitIx) {
        let executed = executed(&self.list).saturating_sub(executed_before);
        for (part, &seen) in self.list.iter_mut().zip(seen) {
            part.time = part.time.saturating_sub(seen);
        }
        if let Some(part) = self.list.iter_mut().find(|part| part.cause == Cause::Executing) {
            let earlier = part.time.saturating_sub(executed);
            part.time = part.time.min(executed);
            self.add(Cause::PreemptedInGuest, task, earlier);
        }
        self.list.retain(|part| !part.time.is_zero());
    }

    #[inline]
    pub(super) fn add(&mut self, cause: Cause, by: UnitIx, time: Duration) {
        if time.is_zero() {
            return;
        }
        match self.find(cause, by) {
            Some(part) => part.time += time,
            None => self.append(cause, by, time),
        }
    }

    /// Adds what is not in the list.
    fn append(&mut self, cause: Cause, by: UnitIx, time: Duration) {
        if self.list.len() < self.list_max || by == UnitIx::NONE {
            self.places[place(cause, by)] = self.list.len() as u32;
            self.list.push(Part { time, by, cause });
        } else {
            self.add(cause, UnitIx::NONE, time);
        }
    }

    #[inline]
    fn find(&mut self, cause: Cause, by: UnitIx) -> Option<&mut Part> {
        let part = self.list.get_mut(self.places[place(cause, by)] as usize)?;
        ((part.cause, part.by) == (cause, by)).then_some(part)
    }

    /// Adds the units that had a processor. No unit that had it is added after that.
    pub(crate) fn add_span(&mut self, span: &Span) {
        let cause = Cause::PreemptedByUnit;
        self.others = span.total();
        for part in self.list.iter_mut().filter(|part| part.cause == cause && part.by != UnitIx::NONE) {
            part.time += span.sum(part.by);
            self.others -= span.sum(part.by);
        }
        for unit in span.greatest() {
            if self.find(cause, unit).is_none() {
                self.add(cause, unit, span.sum(unit));
                self.others -= span.sum(unit);
            }
        }
        self.add(Cause::ProcessorIdle, UnitIx::NONE, span.idle);
    }

    /// Adds the parts of a packet's way.
    pub(crate) fn add_way(&mut self, way: &[Duration]) {
        self.list_max = usize::MAX;
        for (segment, &time) in way.iter().enumerate() {
            self.add(Cause::Network, UnitIx::new(segment), time);
        }
    }

    pub(crate) fn add_all(&mut self, parts: &[Part]) {
        parts.iter().for_each(|part| self.add(part.cause, part.by, part.time));
    }

    pub(super) fn total(&self) -> Duration {
        self.others + self.list.iter().map(|part| part.time).sum()
    }

    /// Appends the parts with [`NAMED_MAX`] entries for each cause: those with the greatest times, and of
    /// equal ones the first units. Where that leaves some out, one more entry without a name has their time.
    #[cold]
    fn shortened(&self, to: &mut Vec<Part>) {
        to.extend(self.list.iter().filter(|part| !WITH_NAMES.contains(&part.cause)));
        for cause in WITH_NAMES {
            let first = to.len();
            let mut rest = if cause == Cause::PreemptedByUnit { self.others } else { Duration::ZERO };
            // Who comes first in the host is often read last.
            for part in self.list.iter().rev().filter(|part| part.cause == cause) {
                let comes_first =
                    |other: &Part| other.time > part.time || other.time == part.time && other.by < part.by;
                if to.len() == first + NAMED_MAX {
                    match to.pop_if(|last| !comes_first(last)) {
                        None => {
                            rest += part.time;
                            continue;
                        }
                        Some(last) => rest += last.time,
                    }
                }
                let place = first + to[first..].partition_point(comes_first);
                to.insert(place, *part);
            }
            match to[first..].iter_mut().find(|part| part.by == UnitIx::NONE) {
                _ if rest.is_zero() => {}
                Some(unnamed) => unnamed.time += rest,
                None => to.push(Part { time: rest, by: UnitIx::NONE, cause }),
            }
        }
    }
}

/// A job that has finished, or was due and has not.
pub(super) struct Job {
    pub number: u64,
    pub release: Instant,
    pub response: Duration,
    pub missed: bool,
    /// Where its parts are among all.
    first: usize,
    parts: u32,
}

/// The jobs that need no more, by task.
pub(super) struct Jobs {
    tasks: Vec<Vec<Job>>,
    parts: Vec<Part>,
}

impl Jobs {
    pub(super) fn new(tasks: usize) -> Self {
        Jobs { tasks: (0..tasks).map(|_| Vec::new()).collect(), parts: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        task: TaskIx,
        (number, release): (u64, Instant),
        (response, missed): (Duration, bool),
        parts: &Parts,
    ) {
        let first = self.parts.len();
        if parts.list.len() > NAMED_MAX || !parts.others.is_zero() {
            parts.shortened(&mut self.parts);
        } else {
            self.parts.extend_from_slice(&parts.list);
        }
        let parts = (self.parts.len() - first) as u32;
        self.tasks[task.0].push(Job { number, release, response, missed, first, parts });
    }

    fn parts_of(&self, job: &Job) -> &[Part] {
        &self.parts[job.first..job.first + job.parts as usize]
    }

    pub(super) fn list(&self, host: &Host, task: TaskIx) -> Vec<JobBlame> {
        let mut jobs: Vec<JobBlame> =
            self.tasks[task.0].iter().map(|job| self.job_blame(host, task, job)).collect();
        jobs.sort_by_key(|job| job.job);
        jobs
    }

    /// What the jobs of a task add up to.
    pub(super) fn sum(&self, host: &Host, task: TaskIx, parts: &mut Parts) -> TaskBlame {
        let jobs = &self.tasks[task.0];
        let mut slowest: Vec<&Job> = jobs.iter().collect();
        let slowest_first = |job: &&Job| (Reverse(job.response), job.number);
        let hundredth = jobs.len().div_ceil(100);
        let kept = hundredth.max(WORST_MAX);
        if slowest.len() > kept {
            slowest.select_nth_unstable_by_key(kept, slowest_first);
            slowest.truncate(kept);
        }
        slowest.sort_unstable_by_key(slowest_first);
        TaskBlame {
            all: self.sum_of(host, task, &mut jobs.iter(), parts),
            late: self.sum_of(host, task, &mut jobs.iter().filter(|job| job.missed), parts),
            slowest: self.sum_of(host, task, &mut slowest.iter().take(hundredth).copied(), parts),
            worst: slowest.iter().take(WORST_MAX).map(|job| self.job_blame(host, task, job)).collect(),
        }
    }

    fn sum_of(
        &self,
        host: &Host,
        task: TaskIx,
        jobs: &mut dyn Iterator<Item = &Job>,
        parts: &mut Parts,
    ) -> BlameSum {
        parts.clear();
        let mut sum = BlameSum::default();
        let mut response = Duration::ZERO;
        for job in jobs {
            sum.jobs += 1;
            response += job.response;
            parts.add_all(self.parts_of(job));
        }
        sum.response_ns = response.as_ns();
        sum.causes = causes(host, task, &parts.list);
        sum
    }

    fn job_blame(&self, host: &Host, task: TaskIx, job: &Job) -> JobBlame {
        JobBlame {
            run: 0,
            job: job.number,
            release_ns: job.release.as_ns(),
            response_ns: job.response.as_ns(),
            missed: job.missed,
            causes: causes(host, task, self.parts_of(job)),
        }
    }
}

/// Parts with names, the greatest first.
fn causes(host: &Host, task: TaskIx, parts: &[Part]) -> Vec<CauseTime> {
    let mut parts: Vec<&Part> = parts.iter().collect();
    // Names decide only between equal ones.
    parts.sort_unstable_by_key(|part| (Reverse(part.time), part.cause));
    let is_tied = parts.windows(2).any(|two| (two[0].time, two[0].cause) == (two[1].time, two[1].cause));
    let cause = |part: &&Part| CauseTime {
        cause: part.cause,
        by: part.by.some().map(|by| name(host, task, part.cause, by)),
        time_ns: part.time.as_ns(),
    };
    let mut causes: Vec<CauseTime> = parts.iter().map(cause).collect();
    if is_tied {
        sort_causes(&mut causes);
    }
    causes
}

/// What a unit is called that a job of `task` waited for.
fn name(host: &Host, task: TaskIx, cause: Cause, by: UnitIx) -> String {
    if cause == Cause::Network {
        return Segment::ALL[by.index()].name().to_owned();
    }
    match names::task_of(host, by) {
        Some(other) => {
            let (parent, other) = (host.tasks[task.0].parent, &host.tasks[other.0]);
            // A task of the same guest, or pool.
            if other.parent == parent {
                other.name.clone()
            } else {
                format!("{}/{}", host.parent_name(other.parent), other.name)
            }
        }
        None if cause == Cause::BudgetUsedBySibling => "the guest's kernel".to_owned(),
        None => host.vcpus[by.index()].name.clone(),
    }
}
