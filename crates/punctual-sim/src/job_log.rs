//! The observer that lists jobs.

use std::collections::VecDeque;

use punctual_model::Host;
use punctual_model::index::TaskIx;
use punctual_model::trace::JobRecord;
use punctual_sched::Instant;

use crate::observe::{Event, Observer};

/// Gives each job to a sink when it has finished, and those that have not at the end.
pub struct JobLog<F> {
    sink: F,
    vcpus: usize,
    /// By task, in the order of release, in which they are also worked on.
    open: Vec<VecDeque<JobRecord>>,
}

impl<F: FnMut(&JobRecord)> JobLog<F> {
    /// For a machine that simulates `host`.
    pub fn new(host: &Host, sink: F) -> Self {
        let open = host.tasks.iter().map(|_| VecDeque::new()).collect();
        JobLog { sink, vcpus: host.vcpus.len(), open }
    }

    fn finish(&mut self, task: TaskIx, now: Instant) {
        if let Some(job) = self.open[task.0].pop_front() {
            (self.sink)(&JobRecord { finish: Some(now), missed: now > job.deadline, ..job });
        }
    }

    fn end(&mut self, now: Instant) {
        for job in std::mem::take(&mut self.open).into_iter().flatten() {
            (self.sink)(&JobRecord { missed: job.deadline <= now, ..job });
        }
    }
}

impl<F: FnMut(&JobRecord)> Observer for JobLog<F> {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Release { task, job, deadline, .. } => self.open[task.0].push_back(JobRecord {
                task,
                job,
                release: now,
                deadline,
                start: None,
                finish: None,
                missed: false,
            }),
            Event::Slice { occupant, start, .. } if now > start => {
                let task = occupant.runs().and_then(|unit| unit.index().checked_sub(self.vcpus));
                if let Some(job) = task.and_then(|task| self.open[task].front_mut()) {
                    job.start.get_or_insert(start);
                }
            }
            Event::Finish { task, .. } => self.finish(task, now),
            Event::End => self.end(now),
            _ => {}
        }
    }
}
