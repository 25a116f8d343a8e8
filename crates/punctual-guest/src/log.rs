//! Logs of jobs' times. The memory is allocated before the run, so that logging a job neither allocates nor
//! makes a system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_jobs::{Job, JobStream};

use crate::protocol::{JobTimes, Task, TaskProgress};
use crate::work;

/// Counts of finished and late jobs, which other threads read during the run.
#[derive(Debug, Default)]
pub(crate) struct JobCounts {
    finished: AtomicU64,
    late: AtomicU64,
}

impl JobCounts {
    /// The counts as the guest reports them to the host.
    pub(crate) fn progress(&self) -> TaskProgress {
        // Reading `late` first keeps it at most `finished`: the writer counts a finished job first.
        let late = self.late.load(Ordering::Acquire);
        TaskProgress { finished: self.finished.load(Ordering::Relaxed), late }
    }
}

/// The log of one task.
#[derive(Debug)]
pub(crate) struct TaskLog {
    jobs: Vec<JobTimes>,
    /// Iterations worked.
    iterations: u64,
    deadline_ns: u64,
    counts: Arc<JobCounts>,
}

impl TaskLog {
    /// A log with room for all jobs that `task` releases within `duration_ns`.
    pub(crate) fn new(task: &Task, duration_ns: u64) -> Self {
        let count = match task.work.job_stream() {
            Some(stream) => stream.jobs_before(duration_ns).count(),
            None => task.work.jobs_max(duration_ns) as usize,
        };
        let mut jobs = vec![JobTimes { release_ns: 0, start_ns: None, finish_ns: None }; count];
        jobs.clear();
        let deadline_ns = task.deadline_ns.unwrap_or(u64::MAX);
        TaskLog { jobs, iterations: 0, deadline_ns, counts: Arc::default() }
    }

    /// Logs the start of a job. Times count from the run's start.
    pub(crate) fn started(&mut self, job: Job, at_ns: u64) {
        debug_assert!(self.jobs.len() < self.jobs.capacity(), "the log has room for every job of the run");
        if self.jobs.len() < self.jobs.capacity() {
            let start_ns = Some(at_ns.max(job.release_ns));
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns, finish_ns: None });
        }
    }

    /// Logs a job that a packet released and that never started.
    pub(crate) fn never_started(&mut self, job: Job) {
        if self.jobs.len() < self.jobs.capacity() {
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns: None, finish_ns: None });
        }
    }

    /// Logs the finish of the job that started last.
    pub(crate) fn finished(&mut self, at_ns: u64) {
        debug_assert!(self.jobs.last().is_some_and(|job| job.start_ns.is_some() && job.finish_ns.is_none()));
        if let Some(job) = self.jobs.last_mut() {
            job.finish_ns = Some(at_ns.max(job.start_ns.unwrap_or(0)));
            let late = at_ns.saturating_sub(job.release_ns) > self.deadline_ns;
            self.counts.finished.fetch_add(1, Ordering::Relaxed);
            self.counts.late.fetch_add(u64::from(late), Ordering::Release);
        }
    }

    /// The counts, for other threads.
    pub(crate) fn counts(&self) -> Arc<JobCounts> {
        Arc::clone(&self.counts)
    }

    /// Adds `iterations` of work.
    pub(crate) fn worked(&mut self, iterations: u64) {
        self.iterations = self.iterations.saturating_add(iterations);
    }

    /// All jobs released before `duration_ns`, including those that never started. Starts and finishes after
    /// the run's end are dropped.
    pub(crate) fn into_jobs(self, stream: Option<JobStream>, duration_ns: u64) -> Vec<JobTimes> {
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

    /// The work done, converted to processor time by the calibration.
    pub(crate) fn executed_ns(&self, iterations_per_ms: u64) -> u64 {
        work::ns_of(self.iterations, iterations_per_ms)
    }
}
