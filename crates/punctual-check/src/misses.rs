//! The first deadline that each task misses in a simulation.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::index::TaskIx;
use punctual_sched::{Duration, Instant};
use punctual_sim::observe::{Event, Observer};

/// A deadline that is missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Miss {
    pub(crate) due: Instant,
    /// So late the job ended, or at least so late it will.
    pub(crate) late_min: Duration,
}

/// Watches a simulation.
pub(crate) struct Misses {
    /// By task; those without jobs have none.
    deadlines: Vec<Option<Duration>>,
    pub(crate) first: BTreeMap<TaskIx, Miss>,
    /// By task: the least time that a job had left when it ended; of those that have missed, zero.
    pub(crate) least_slack: Vec<Duration>,
    /// How many jobs ended.
    pub(crate) jobs: u64,
}

impl Misses {
    pub(crate) fn of(host: &Host) -> Self {
        Misses {
            deadlines: host.tasks.iter().map(|task| task.deadline()).collect(),
            first: BTreeMap::new(),
            least_slack: vec![Duration::MAX; host.tasks.len()],
            jobs: 0,
        }
    }
}

impl Observer for Misses {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        let (task, due) = match event {
            Event::Finish { task, deadline, .. } => {
                self.jobs += 1;
                (task, deadline)
            }
            Event::Overdue { task, release, .. } => match self.deadlines[task.0] {
                Some(deadline) => (task, release + deadline),
                None => return,
            },
            _ => return,
        };
        let slack = if now < due { due.since(now) } else { Duration::ZERO };
        self.least_slack[task.0] = slack.min(self.least_slack[task.0]);
        if now > due {
            self.first.entry(task).or_insert(Miss { due, late_min: now.since(due) });
        }
    }
}
