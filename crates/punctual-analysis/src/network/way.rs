//! What packets and jobs depend on, from what releases them to where they arrive.

use std::collections::BTreeSet;

use punctual_model::index::{DomainIx, TaskIx};

use super::costs::guest;
use super::routes::{LegIx, Routes, Source};

/// Domains whose kernels handle packets, and tasks whose ends send some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) domains: BTreeSet<DomainIx>,
    pub(crate) tasks: BTreeSet<TaskIx>,
}

impl Routes<'_> {
    /// Of a flow's packets and of their answers.
    pub(crate) fn way_of_flow(&self, flow: usize) -> Way {
        let mut way = Way::default();
        let legs = &self.flows[flow];
        for leg in [Some(legs.forth), legs.back].into_iter().flatten() {
            self.add_leg_to(&mut way, leg);
        }
        way
    }

    /// Of a chain's jobs and of the packets between them.
    pub(crate) fn way_of_chain(&self, chain: usize) -> Way {
        let mut way = Way::default();
        for task in &self.host.chains[chain].steps {
            self.add_task_to(&mut way, *task);
        }
        way
    }

    /// Of a task's jobs: the task, and what releases it.
    pub(crate) fn way_of_task(&self, task: TaskIx) -> Way {
        let mut way = Way::default();
        self.add_task_to(&mut way, task);
        way
    }

    fn add_leg_to(&self, way: &mut Way, leg: LegIx) {
        let leg = &self.legs[leg.0];
        way.domains.extend([guest(leg.from), guest(leg.to)].into_iter().flatten());
        way.domains.insert(self.network(leg).driver);
        self.add_source_to(way, leg.source);
    }

    fn add_source_to(&self, way: &mut Way, source: Source) {
        match source {
            Source::Packet(leg) => self.add_leg_to(way, leg),
            Source::Task(task) => self.add_task_to(way, task),
            Source::Made(_) | Source::Acknowledgements => {}
        }
    }

    fn add_task_to(&self, way: &mut Way, task: TaskIx) {
        if way.tasks.insert(task) {
            let sources = self.releases.get(&task).into_iter().flatten();
            sources.for_each(|source| self.add_source_to(way, *source));
        }
    }
}
