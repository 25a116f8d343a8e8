//! What a round reads, and what it knows of packets and tasks.

use punctual_model::host::Work;
use punctual_model::index::{DomainIx, TaskIx};
use punctual_sched::Duration;

use super::curve::ArrivalCurve;
use super::routes::{LegIx, Routes, Source};
use super::state::State;
use crate::answer::Answer;
use crate::findings::Findings;
use crate::inputs::Load;

#[derive(Clone, Copy)]
pub(crate) struct Round<'r> {
    pub(crate) routes: &'r Routes<'r>,
    pub(crate) state: &'r State,
    /// What the state makes kernels do.
    pub(crate) load: &'r Load,
    /// What the tests find out about pools with this load.
    pub(crate) findings: &'r Findings,
}

impl Round<'_> {
    pub(super) fn name(&self, domain: DomainIx) -> String {
        self.routes.host.domains[domain.0].name.clone()
    }

    /// When a leg's packets are in the TX ring or the card.
    pub(super) fn posted(&self, at: LegIx) -> ArrivalCurve {
        let leg = &self.routes.legs[at.0];
        self.state.legs[at.0].posted.unwrap_or_else(|| leg.posted_at_most(self.routes.network(leg)))
    }

    /// A bound on a task's response time; of tasks that packets release also beyond the deadline.
    pub(super) fn response(&self, task: TaskIx) -> Option<Duration> {
        match self.findings.tasks.get(&task)?.answer {
            Answer::Guaranteed { bound, .. } => Some(bound),
            _ => self.findings.served_times.get(&task).copied(),
        }
    }

    /// When the jobs of a task end, counted from its releases.
    fn ends(&self, task: TaskIx) -> Option<ArrivalCurve> {
        let releases = match self.routes.host.tasks[task.0].work {
            Work::Served { .. } => *self.state.served.get(&task)?,
            _ => self.routes.origin(Source::Task(task))?,
        };
        Some(releases.later(self.response(task)?))
    }

    /// When packets of this source come into being.
    pub(super) fn when(&self, source: Source) -> Option<ArrivalCurve> {
        match source {
            Source::Made(curve) => Some(curve),
            Source::Packet(leg) => self.state.legs[leg.0].delivered,
            Source::Task(task) => self.ends(task),
            Source::Acknowledgements => None,
        }
    }
}
