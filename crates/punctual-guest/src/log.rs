//! Times of jobs while a run goes on: in memory that was there before, written to and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_jobs::{Job, JobStream};

use crate::protocol::{JobTimes, Run, Task, TaskProgress, Work};

/// What can be read of a task's log while it is written.
#[derive(Debug, Default)]
pub struct Counts {
    finished: AtomicU64,
    late: AtomicU64,
}

impl Counts {
    /// As told to the host.
    pub fn progress(&self) -> TaskProgress {
        // Late first: there are never more late jobs than finished ones.
        let late = self.late.load(Ordering::Acquire);
        TaskProgress { finished: self.finished.load(Ordering::Relaxed), late }
    }
}

/// How often a run of that length tells how far it is: once a second, or halfway through a shorter one.
pub fn progress_interval_ns(duration_ns: u64) -> u64 {
    (duration_ns / 2).clamp(1, 1_000_000_000)
}

/// What one task did.
#[derive(Debug)]
pub struct TaskLog {
    jobs: Vec<JobTimes>,
    /// Iterations worked.
    iterations: u64,
    deadline_ns: u64,
    counts: Arc<Counts>,
}

impl TaskLog {
    /// A log with room for all jobs of `task` within `duration_ns`.
    pub fn new(task: &Task, duration_ns: u64) -> Self {
        let count = stream_of(&task.work).map_or(0, |stream| stream.jobs_before(duration_ns).count());
        let mut jobs = vec![JobTimes { release_ns: 0, start_ns: None, finish_ns: None }; count];
        jobs.clear();
        let deadline_ns = task.deadline_ns.unwrap_or(u64::MAX);
        TaskLog { jobs, iterations: 0, deadline_ns, counts: Arc::default() }
    }

    /// A job started; times since the run's start.
    pub fn started(&mut self, job: Job, at_ns: u64) {
        // Never beyond the room: the log was made for every job of the run.
        if self.jobs.len() < self.jobs.capacity() {
            let start_ns = Some(at_ns.max(job.release_ns));
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns, finish_ns: None });
        }
    }

    /// The job that started last is finished.
    pub fn finished(&mut self, at_ns: u64) {
        if let Some(job) = self.jobs.last_mut() {
            job.finish_ns = Some(at_ns.max(job.start_ns.unwrap_or(0)));
            let late = at_ns.saturating_sub(job.release_ns) > self.deadline_ns;
            self.counts.finished.fetch_add(1, Ordering::Relaxed);
            self.counts.late.fetch_add(u64::from(late), Ordering::Release);
        }
    }

    /// What others may read meanwhile.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// So many iterations were worked.
    pub fn worked(&mut self, iterations: u64) {
        self.iterations = self.iterations.saturating_add(iterations);
    }

    /// All jobs released before `duration_ns`, those that never started too; what happened after the run's
    /// end did not happen.
    pub fn into_jobs(self, stream: Option<JobStream>, duration_ns: u64) -> Vec<JobTimes> {
        let within = |at: Option<u64>| at.filter(|&ns| ns <= duration_ns);
        let mut jobs = self.jobs;
        for job in &mut jobs {
            job.start_ns = within(job.start_ns);
            job.finish_ns = within(job.finish_ns);
        }
        let rest = stream.into_iter().flat_map(|stream| stream.jobs_before(duration_ns)).skip(jobs.len());
        jobs.extend(rest.map(|job| JobTimes { release_ns: job.release_ns, start_ns: None, finish_ns: None }));
        jobs
    }

    /// The processor time that the work done takes by the calibration.
    pub fn executed_ns(&self, iterations_per_ms: u64) -> u64 {
        crate::work::ns_of(self.iterations, iterations_per_ms)
    }
}

/// What an execution hands back: a log for each task in the request's order, and when it ended, since the
/// run's start.
#[derive(Debug)]
pub struct Executed {
    /// By task.
    pub logs: Vec<TaskLog>,
    /// When everything had stopped.
    pub ended_ns: u64,
}

/// The stream of jobs of a task, if it has jobs.
pub fn stream_of(work: &Work) -> Option<JobStream> {
    match *work {
        Work::Jobs(stream) => Some(stream),
        Work::Hog { .. } | Work::ForkBomb { .. } | Work::WakeFlood { .. } => None,
    }
}

/// The tasks' places in the request from most to least urgent.
pub fn by_urgency(run: &Run) -> Vec<usize> {
    let mut order: Vec<usize> = (0..run.tasks.len()).collect();
    order.sort_by_key(|&task| run.tasks[task].priority);
    order
}
