//! The job that a task works on, and those that wait for it.

use std::collections::VecDeque;

use punctual_sched::{Duration, Instant};

use super::history::History;
use super::parts::{Part, Parts, executed};
use crate::observe::UnitIx;

/// The job that a task works on. While others wait for it, and while they are worked on, the parts of all of
/// them are one sum, and each knows what that was when it was released.
#[derive(Default)]
pub(super) struct OpenJob {
    pub is_open: bool,
    number: u64,
    /// The parts are those up to here.
    explained: Instant,
    parts: Vec<Part>,
    /// What the parts were when the job was released.
    seen: Vec<Duration>,
    /// What earlier jobs had executed when the task began with it.
    executed_before: Duration,
    waiting: VecDeque<Waiting>,
}

/// A job that was released while its task worked on an earlier one.
struct Waiting {
    number: u64,
    seen: Vec<Duration>,
}

impl OpenJob {
    /// The task begins with the job.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, number: u64) {
        self.is_open = true;
        self.number = number;
        self.explained = now;
        match self.waiting.pop_front() {
            Some(job) => {
                self.seen = job.seen;
                self.executed_before = executed(&self.parts);
            }
            None => {
                self.parts.clear();
                self.seen.clear();
                self.executed_before = Duration::ZERO;
            }
        }
    }

    /// A job is released that has to wait.
    pub(super) fn queue(
        &mut self,
        history: &mut History,
        task: UnitIx,
        now: Instant,
        number: u64,
        parts: &mut Parts,
    ) {
        self.explain(history, task, now, parts);
        let seen = self.parts.iter().map(|part| part.time).collect();
        self.waiting.push_back(Waiting { number, seen });
    }

    /// Adds up all the time up to now.
    pub(super) fn explain(&mut self, history: &mut History, task: UnitIx, now: Instant, parts: &mut Parts) {
        parts.continue_with(&self.parts);
        history.explain(task, (self.explained, now), false, parts);
        self.explained = now;
        self.parts.clear();
        self.parts.extend_from_slice(parts.list());
    }

    /// The job has finished, or the run is over: leaves its parts in `parts`.
    #[inline]
    pub(super) fn finish(
        &mut self,
        history: &mut History,
        task: UnitIx,
        now: Instant,
        number: u64,
        parts: &mut Parts,
    ) {
        if self.waiting.is_empty() && self.parts.is_empty() {
            // Nothing but this job.
            parts.clear();
            history.explain(task, (self.explained, now), true, parts);
            self.is_open = false;
            return;
        }
        self.explain(history, task, now, parts);
        if self.is_open && self.number == number {
            self.is_open = false;
            parts.leave_own(&std::mem::take(&mut self.seen), self.executed_before, task);
        } else if let Some(job) = self.waiting.pop_front() {
            debug_assert_eq!(job.number, number, "jobs of a task end in their order");
            parts.leave_own(&job.seen, Duration::MAX, task);
        }
    }
}
