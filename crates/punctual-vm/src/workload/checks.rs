//! A guest's reports of a run, checked against the jobs that its tasks release.
//!
//! The host draws the same jobs as the guest, so a guest cannot invent one, omit one unnoticed, or report one
//! before its release.

use punctual_guest::protocol::{FlowReport, JobTimes, RunResult, SERVED_JOBS_MAX, Task, TaskProgress, Work};
use punctual_jobs::{Job, JobStream};

use super::error::ProtocolError;
use super::flows;

/// A guest's clock may be wrong by this part of the time, and by [`EARLY_NS`]: more than the error that
/// causes a warning, and too little to report jobs that are far in the future.
const EARLY_PART: u64 = 4;
/// See [`EARLY_PART`].
const EARLY_NS: u64 = 100_000_000;
/// A task's work, counted by a calibration that something disturbed, may seem this many times as long as the
/// run.
const EXECUTED_MAX: u64 = 16;

/// What one task of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskJobs {
    /// Its jobs in order of release, unfinished ones too.
    pub jobs: Vec<JobTimes>,
    /// Processor time that its work takes by the calibration.
    pub executed_ns: u64,
}

/// Checks the reports of one run.
pub(super) struct RunChecks {
    duration_ns: u64,
    tasks: Vec<TaskChecks>,
    /// Flows and chains that are not reported yet.
    owners: Vec<u16>,
    flows: Vec<FlowReport>,
}

/// The checks of a task, and what its guest reported.
struct TaskChecks {
    task: Task,
    /// The job whose report is expected next.
    next: Option<(JobStream, Job)>,
    /// The first job that is not released yet, as far as reports on the way were checked.
    unreleased: Option<(JobStream, Job)>,
    told: TaskProgress,
    jobs: Vec<JobTimes>,
}

impl RunChecks {
    /// Of a run of these tasks, with parts of these flows and chains.
    pub(super) fn new(tasks: &[Task], owners: Vec<u16>, duration_ns: u64) -> RunChecks {
        let checks = |task: &Task| {
            let first = task.work.job_stream().map(|stream| (stream, stream.first()));
            let told = TaskProgress::default();
            TaskChecks { task: task.clone(), next: first, unreleased: first, told, jobs: Vec::new() }
        };
        RunChecks { duration_ns, tasks: tasks.iter().map(checks).collect(), owners, flows: Vec::new() }
    }

    /// A report on the way, `elapsed_ns` after the run's start by our clock.
    pub(super) fn progress(
        &mut self,
        reported: &[TaskProgress],
        elapsed_ns: u64,
    ) -> Result<(), ProtocolError> {
        if reported.len() != self.tasks.len() {
            return Err(ProtocolError::UnknownTask { task: reported.len(), tasks: self.tasks.len() });
        }
        let until_ns = latest_ns(elapsed_ns).min(self.duration_ns);
        for (task, (checks, now)) in self.tasks.iter_mut().zip(reported).enumerate() {
            let released = checks.released(until_ns);
            if now.finished > released {
                return Err(ProtocolError::NotReleased { task });
            }
            if now.late > now.finished || now.finished < checks.told.finished || now.late < checks.told.late {
                return Err(ProtocolError::Disorder { task });
            }
            checks.told = *now;
        }
        Ok(())
    }

    /// Checks jobs that the guest reports `elapsed_ns` after the run's start by our clock. The run must be
    /// over then.
    pub(super) fn jobs(
        &mut self,
        task: usize,
        jobs: &[JobTimes],
        elapsed_ns: u64,
    ) -> Result<(), ProtocolError> {
        self.is_over(elapsed_ns)?;
        let (duration_ns, tasks) = (self.duration_ns, self.tasks.len());
        let Some(checks) = self.tasks.get_mut(task) else {
            return Err(ProtocolError::UnknownTask { task, tasks });
        };
        jobs.iter().try_for_each(|job| checks.add(task, *job, duration_ns))
    }

    /// Checks the report of a flow or chain, one for each; see [`RunChecks::jobs`].
    pub(super) fn flow(&mut self, report: FlowReport, elapsed_ns: u64) -> Result<(), ProtocolError> {
        self.is_over(elapsed_ns)?;
        let owner = report.owner;
        let Some(at) = self.owners.iter().position(|known| *known == owner) else {
            return Err(ProtocolError::UnknownFlow { owner });
        };
        self.owners.remove(at);
        for times in [&report.latency, &report.tardiness] {
            flows::histogram(times).map_err(|reason| ProtocolError::Flow { owner, reason })?;
        }
        self.flows.push(report);
        Ok(())
    }

    /// The end of the report: what every task and flow did. Jobs without a report are included as never
    /// started; their number.
    pub(super) fn finish(
        mut self,
        result: &RunResult,
        elapsed_ns: u64,
    ) -> Result<(Vec<TaskJobs>, Vec<FlowReport>, u64), ProtocolError> {
        self.is_over(elapsed_ns)?;
        if !result.tasks.iter().map(|task| task.jobs).eq(self.tasks.iter().map(|task| task.jobs.len() as u64))
        {
            return Err(ProtocolError::LostJobs);
        }
        let most_ns = self.duration_ns.saturating_mul(EXECUTED_MAX);
        if let Some(task) = result.tasks.iter().position(|task| task.executed_ns > most_ns) {
            return Err(ProtocolError::Executed { task });
        }
        let mut untold = 0;
        for checks in &mut self.tasks {
            untold += checks.add_untold(self.duration_ns);
        }
        let jobs = self.tasks.into_iter().zip(&result.tasks);
        let tasks =
            jobs.map(|(checks, totals)| TaskJobs { jobs: checks.jobs, executed_ns: totals.executed_ns });
        Ok((tasks.collect(), self.flows, untold))
    }

    /// May the run be over?
    fn is_over(&self, elapsed_ns: u64) -> Result<(), ProtocolError> {
        if latest_ns(elapsed_ns) < self.duration_ns { Err(ProtocolError::Early) } else { Ok(()) }
    }
}

/// What a guest's clock may say at most, `elapsed_ns` after the run's start by our clock.
fn latest_ns(elapsed_ns: u64) -> u64 {
    elapsed_ns.saturating_add(elapsed_ns / EARLY_PART).saturating_add(EARLY_NS)
}

impl TaskChecks {
    /// How many jobs are released before `until_ns`, which must not go back.
    fn released(&mut self, until_ns: u64) -> u64 {
        if let Work::Served { .. } = self.task.work {
            // Packets release them, which only the guest sees.
            return u64::MAX;
        }
        let Some((stream, job)) = &mut self.unreleased else { return 0 };
        while job.release_ns < until_ns {
            *job = stream.after(*job);
        }
        job.number
    }

    fn add(&mut self, task: usize, job: JobTimes, duration_ns: u64) -> Result<(), ProtocolError> {
        if let Work::Served { .. } = self.task.work {
            let is_later = self.jobs.last().is_none_or(|before| before.release_ns <= job.release_ns);
            let has_room = (self.jobs.len() as u64) < SERVED_JOBS_MAX;
            if !is_later || !has_room {
                return Err(ProtocolError::Disorder { task });
            }
            return self.keep(task, job, duration_ns);
        }
        let expected = self.next.as_mut().filter(|(_, next)| next.release_ns < duration_ns);
        let Some((stream, next)) = expected else { return Err(ProtocolError::NotReleased { task }) };
        if job.release_ns != next.release_ns {
            return Err(ProtocolError::Release { task, told_ns: job.release_ns, is_ns: next.release_ns });
        }
        *next = stream.after(*next);
        self.keep(task, job, duration_ns)
    }

    /// Adds a job that is released as it should be.
    fn keep(&mut self, task: usize, job: JobTimes, duration_ns: u64) -> Result<(), ProtocolError> {
        job.check(duration_ns).map_err(ProtocolError::Job)?;
        // A task works on one job after the other.
        let is_in_order = match (self.jobs.last(), job.start_ns) {
            (None, _) | (_, None) => true,
            (Some(before), Some(start_ns)) => before.finish_ns.is_some_and(|finish_ns| finish_ns <= start_ns),
        };
        if !is_in_order {
            return Err(ProtocolError::Disorder { task });
        }
        self.jobs.push(job);
        Ok(())
    }

    /// Adds the jobs that were released and not reported; returns how many of them were due.
    fn add_untold(&mut self, duration_ns: u64) -> u64 {
        let Some((stream, mut job)) = self.next else { return 0 };
        let mut untold = 0;
        while job.release_ns < duration_ns {
            let due_ns = job.release_ns.saturating_add(self.task.deadline_ns.unwrap_or(u64::MAX));
            untold += u64::from(due_ns <= duration_ns);
            self.jobs.push(JobTimes { release_ns: job.release_ns, start_ns: None, finish_ns: None });
            job = stream.after(job);
        }
        untold
    }
}
