//! The jobs of the machine's tasks: [`punctual_jobs`] draws releases and costs, the host says the rest.

use punctual_jobs::JobStream;
use punctual_model::Host;
use punctual_model::host::{Cost, Work};
use punctual_model::index::TaskIx;
use punctual_sched::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) release: Instant,
}

/// What a task works on after a job.
pub(crate) enum NextJob {
    /// Time releases its jobs.
    ByTime,
    /// A packet has released this one.
    Released(Job),
    /// No packet has released another one yet.
    NotReleased,
}

impl From<punctual_jobs::Job> for Job {
    #[inline]
    fn from(job: punctual_jobs::Job) -> Self {
        Job { number: job.number, release: Instant::from_ns(job.release_ns) }
    }
}

impl From<Job> for punctual_jobs::Job {
    #[inline]
    fn from(job: Job) -> Self {
        punctual_jobs::Job { number: job.number, release_ns: job.release.as_ns() }
    }
}

/// The jobs of one task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    kind: Kind,
    /// Relative to the release; `Duration::MAX` for a hog.
    deadline: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Timed(JobStream),
    Served {
        seed: u64,
        cost: Cost,
    },
    /// One job that never ends.
    Hog {
        start: Duration,
    },
}

impl Arrivals {
    pub(crate) fn new(host: &Host, task: TaskIx) -> Self {
        let seed = host.task_seed(task);
        let (kind, deadline) = match host.tasks[task.0].work {
            Work::Jobs { arrival, cost, deadline } => (Kind::Timed(arrival.jobs(cost, seed)), deadline),
            Work::Served { cost, deadline } => (Kind::Served { seed, cost }, deadline),
            Work::Hog { start } => (Kind::Hog { start }, Duration::MAX),
        };
        Arrivals { kind, deadline }
    }

    pub(crate) fn first(&self) -> Job {
        let release = match self.kind {
            Kind::Timed(stream) => return stream.first().into(),
            Kind::Hog { start } => start,
            Kind::Served { .. } => Duration::MAX,
        };
        Job { number: 0, release: Instant::ZERO + release }
    }

    #[inline]
    pub(crate) fn after(&self, job: Job) -> Job {
        match &self.kind {
            Kind::Timed(stream) => stream.after(job.into()).into(),
            Kind::Served { .. } | Kind::Hog { .. } => Job { number: job.number + 1, release: Instant::NEVER },
        }
    }

    /// Processor time of a job, at least 1 ns; a hog's only job never ends.
    #[inline]
    pub(crate) fn cost(&self, job: Job) -> Duration {
        Duration::from_ns(match &self.kind {
            Kind::Timed(stream) => stream.cost_ns(job.into()),
            Kind::Served { seed, cost } => {
                punctual_jobs::cost_ns(*seed, job.number, cost.min.as_ns(), cost.max.as_ns())
            }
            Kind::Hog { .. } => return Duration::MAX,
        })
    }

    #[inline]
    pub(crate) fn deadline(&self, job: Job) -> Instant {
        job.release + self.deadline
    }

    #[inline]
    pub(crate) fn is_hog(&self) -> bool {
        matches!(self.kind, Kind::Hog { .. })
    }
}
