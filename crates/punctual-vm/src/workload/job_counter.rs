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
    /// Deadlines missed: jobs that were finished late, and jobs that were due and not finished at the last
    /// report.
    pub missed: u64,
    /// Jobs that are due and of which the guest has not yet reported whether they are finished.
    pub untold: u64,
}

/// Counts a domain's jobs: the guest reports which are finished, the task set says which are due.
///
/// If a guest gets no processor time, it reports nothing, and the number of unreported jobs grows.
#[derive(Debug)]
pub struct JobCounter {
    progress: Arc<Progress>,
    tasks: Vec<Option<Deadlines>>,
}

/// The deadlines of a task, up to two instants.
#[derive(Debug)]
struct Deadlines {
    /// Up to now.
    now: Due,
    /// Up to the time until which the guest has reported everything.
    settled: Due,
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
            let due = || Due { stream, deadline_ns, next: stream.first(), count: 0 };
            Some(Deadlines { now: due(), settled: due() })
        };
        JobCounter { progress, tasks: tasks.map(due).collect() }
    }

    /// The jobs up to `elapsed_ns` after the run's start; `elapsed_ns` must not go back.
    pub fn jobs(&mut self, elapsed_ns: u64) -> JobCounts {
        let mut jobs = JobCounts::default();
        let settled_ns = self.progress.settled_ns().min(elapsed_ns);
        for (due, (finished, late)) in self.tasks.iter_mut().zip(self.progress.tasks()) {
            let until = |of: &mut Deadlines| (of.settled.until(settled_ns), of.now.until(elapsed_ns));
            let (settled, due) = due.as_mut().map_or((0, 0), until);
            jobs.finished += finished;
            // Jobs of a task finish in the order of their releases.
            jobs.missed += late + settled.saturating_sub(finished);
            jobs.untold += due.saturating_sub(settled.max(finished));
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
    fn misses_are_late_jobs_and_those_that_the_guest_said_were_not_finished() {
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
        let mut jobs = |elapsed_ns| {
            let JobCounts { finished, missed, untold } = counter.jobs(elapsed_ns);
            (finished, missed, untold)
        };
        assert_eq!(jobs(79), (0, 0, 0));
        // Due, and nothing was told yet.
        assert_eq!(jobs(80), (0, 0, 1));
        let tell = |finished, late, at_ns| {
            progress.set(&[TaskProgress { finished, late }, TaskProgress::default()], at_ns)
        };
        tell(1, 0, 100);
        assert_eq!(jobs(179), (1, 0, 0));
        assert_eq!(jobs(180), (1, 0, 1));
        tell(3, 2, 270);
        assert_eq!(jobs(280), (3, 2, 0));
        assert_eq!(jobs(480), (3, 2, 2));
        // At 270 the next job was not due; at 490 two more were, and the guest has reported none of them.
        tell(3, 2, 490);
        assert_eq!(jobs(490), (3, 2, 2));
        tell(3, 2, 500);
        assert_eq!(jobs(580), (3, 4, 1));
    }
}
