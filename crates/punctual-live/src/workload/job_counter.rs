//! Jobs and misses of a domain while it runs.

use std::sync::Arc;

use punctual_guest::protocol::Task;
use punctual_jobs::{Job, JobStream};
use serde::{Deserialize, Serialize};

use super::client::Progress;

/// Jobs of a domain so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Finished, by the guest's last report.
    pub finished: u64,
    /// Deadlines missed: jobs that were finished late, and jobs that are due and not finished.
    pub missed: u64,
}

/// Counts a domain's jobs: the guest reports which are finished, the task set says which are due.
///
/// A guest that gets no processor time reports nothing, and its misses grow all the same.
#[derive(Debug)]
pub struct JobCounter {
    progress: Arc<Progress>,
    tasks: Vec<Option<Due>>,
}

/// The jobs of a task that are due.
#[derive(Debug)]
struct Due {
    stream: JobStream,
    deadline_ns: u64,
    next: Job,
    count: u64,
}

impl Due {
    fn until(&mut self, elapsed_ns: u64) -> u64 {
        while self.next.release_ns.saturating_add(self.deadline_ns) <= elapsed_ns {
            self.count += 1;
            self.next = self.stream.after(self.next);
        }
        self.count
    }
}

impl JobCounter {
    /// Of the tasks of a run that was begun.
    pub fn new<'a>(tasks: impl Iterator<Item = &'a Task>, progress: Arc<Progress>) -> JobCounter {
        let due = |task: &Task| {
            let (stream, deadline_ns) = (task.work.job_stream()?, task.deadline_ns?);
            Some(Due { stream, deadline_ns, next: stream.first(), count: 0 })
        };
        JobCounter { progress, tasks: tasks.map(due).collect() }
    }

    /// The jobs up to `elapsed_ns` after the run's start; `elapsed_ns` must not go back.
    pub fn jobs(&mut self, elapsed_ns: u64) -> JobCounts {
        let mut jobs = JobCounts::default();
        for (due, (finished, late)) in self.tasks.iter_mut().zip(self.progress.tasks()) {
            let due = due.as_mut().map_or(0, |due| due.until(elapsed_ns));
            jobs.finished += finished;
            // Jobs of a task finish in the order of their releases.
            jobs.missed += late + due.saturating_sub(finished);
        }
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_guest::protocol::{TaskProgress, Work};
    use punctual_jobs::Arrival;

    #[test]
    fn misses_are_late_jobs_and_due_ones_that_are_not_finished() {
        let work = Work::Jobs(JobStream {
            arrival: Arrival::Periodic { period_ns: 100, offset_ns: 0 },
            cost_min_ns: 1,
            cost_max_ns: 1,
            seed: 0,
        });
        let task = Task { priority: 1, deadline_ns: Some(80), work };
        let hog = Task { priority: 2, deadline_ns: None, work: Work::Hog { start_ns: 0 } };
        let progress = Progress::new(2);
        let mut counter = JobCounter::new([&task, &hog].into_iter(), Arc::clone(&progress));
        assert_eq!(counter.jobs(79), JobCounts { finished: 0, missed: 0 });
        assert_eq!(counter.jobs(80), JobCounts { finished: 0, missed: 1 });
        progress.set(&[TaskProgress { finished: 1, late: 0 }, TaskProgress::default()], 0);
        assert_eq!(counter.jobs(179), JobCounts { finished: 1, missed: 0 });
        progress.set(&[TaskProgress { finished: 3, late: 2 }, TaskProgress::default()], 0);
        assert_eq!(counter.jobs(280), JobCounts { finished: 3, missed: 2 });
        assert_eq!(counter.jobs(480), JobCounts { finished: 3, missed: 4 });
    }
}
