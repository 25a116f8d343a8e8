//! Times of jobs, written down while a run goes on. The memory is allocated before the run, so writing
//! neither allocates nor calls the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_jobs::{Job, JobStream};

use crate::protocol::{JobTimes, Task, TaskProgress};
use crate::work;

/// The counts of a task's log that other threads can read during the run.
#[derive(Debug, Default)]
pub struct JobCounts {
    finished: AtomicU64,
    late: AtomicU64,
}

impl JobCounts {
    /// As the guest reports it to the host.
    pub fn progress(&self) -> TaskProgress {
        // `late` is read first, so that it is never greater than `finished`.
        let late = self.late.load(Ordering::Acquire);
        TaskProgress { finished: self.finished.load(Ordering::Relaxed), late }
    }
}

/// What one task did.
#[derive(Debug)]
pub struct TaskLog {
    jobs: Vec<JobTimes>,
    /// Iterations worked.
    iterations: u64,
    deadline_ns: u64,
    counts: Arc<JobCounts>,
}

impl TaskLog {
    /// A log with room for all jobs of `task` within `duration_ns`.
    pub fn new(task: &Task, duration_ns: u64) -> Self {
        let count = match task.work.job_stream() {
            Some(stream) => stream.jobs_before(duration_ns).count(),
            None => task.work.jobs_max(duration_ns) as usize,
        };
        let mut jobs = vec![JobTimes { release_ns: 0, start_ns: None, finish_ns: None }; count];
        jobs.clear();
        let deadline_ns = task.deadline_ns.unwrap_or(u64::MAX);
        TaskLog { jobs, iterations: 0, deadline_ns, counts: Arc::default() }
    }

    /// A job started; times since the run's start.
    pub fn started(&mut self, job: Job, at_ns: u64) {
        // The log has room for every job of the run, so this never drops one.
        if self.jobs.len() < self.jobs.capacity() {
            let start_ns = Some(at_ns.max(job.release_ns));
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns, finish_ns: None });
        }
    }

    /// A job was released by a packet and never started.
    pub fn never_started(&mut self, job: Job) {
        if self.jobs.len() < self.jobs.capacity() {
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns: None, finish_ns: None });
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

    /// The counts, for other threads to read during the run.
    pub fn counts(&self) -> Arc<JobCounts> {
        Arc::clone(&self.counts)
    }

    /// The task has worked `iterations` more.
    pub fn worked(&mut self, iterations: u64) {
        self.iterations = self.iterations.saturating_add(iterations);
    }

    /// All jobs released before `duration_ns`, also those that never started. Starts and finishes after the
    /// run's end are left out.
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

    /// The processor time of the work done, by the calibration.
    pub fn executed_ns(&self, iterations_per_ms: u64) -> u64 {
        work::ns_of(self.iterations, iterations_per_ms)
    }
}
