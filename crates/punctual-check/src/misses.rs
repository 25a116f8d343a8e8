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
}

impl Misses {
    pub(crate) fn of(host: &Host) -> Self {
        Misses { deadlines: host.tasks.iter().map(|task| task.deadline()).collect(), first: BTreeMap::new() }
    }
}

impl Observer for Misses {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        let (task, due) = match event {
            Event::Finish { task, deadline, .. } => (task, deadline),
            Event::Overdue { task, release, .. } => match self.deadlines[task.0] {
                Some(deadline) => (task, release + deadline),
                None => return,
            },
            _ => return,
        };
        if now > due {
            self.first.entry(task).or_insert(Miss { due, late_min: now.since(due) });
        }
    }
}
