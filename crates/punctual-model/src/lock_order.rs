//! Which tasks of a guest share its resources, and in which order they take them.

use crate::host::{Domain, Host, Parent, Task};
use crate::index::{DomainIx, TaskIx};
use crate::locks::{CriticalSection, LockStep, Protocol};

impl Task {
    /// Where its jobs lock and unlock resources, in the order of execution.
    pub fn lock_steps(&self) -> Vec<LockStep> {
        let mut steps = Vec::with_capacity(2 * self.sections.len());
        let mut open: Vec<&CriticalSection> = Vec::new();
        let unlock = |section: &CriticalSection| LockStep {
            at: section.end(),
            resource: section.resource,
            locks: false,
        };
        for section in &self.sections {
            while let Some(last) = open.pop_if(|last| !last.contains(section)) {
                steps.push(unlock(last));
            }
            steps.push(LockStep { at: section.after, resource: section.resource, locks: true });
            open.push(section);
        }
        steps.extend(open.into_iter().rev().map(unlock));
        steps
    }

    /// Each of its critical sections with the sections that it is in, the outermost first.
    pub fn nested_sections(&self) -> impl Iterator<Item = (&CriticalSection, Vec<&CriticalSection>)> {
        self.sections.iter().enumerate().map(|(ix, section)| {
            (section, self.sections[..ix].iter().filter(|outer| outer.contains(section)).collect())
        })
    }
}

/// A lock that a task of a guest wants while it holds another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Edge {
    holds: usize,
    wants: usize,
    task: TaskIx,
}

impl Host {
    /// The tasks of the domain that use the resource.
    pub fn users(&self, domain: DomainIx, resource: usize) -> impl Iterator<Item = (TaskIx, &Task)> {
        let uses = move |task: &Task| task.sections.iter().any(|section| section.resource == resource);
        self.tasks_of(Parent::Domain(domain)).filter(move |(_, task)| uses(task))
    }

    /// Resources of the domain, by index, whose holders may wait for each other forever: several tasks take
    /// them in different orders, and the ceiling of each is not what keeps the others from running.
    pub fn deadlock(&self, domain: DomainIx) -> Option<Vec<usize>> {
        let Domain { resources, .. } = &self.domains[domain.0];
        let mut edges = Vec::new();
        for (task, of) in self.tasks_of(Parent::Domain(domain)) {
            for (section, outer) in of.nested_sections() {
                let edge =
                    |outer: &&CriticalSection| Edge { holds: outer.resource, wants: section.resource, task };
                edges.extend(outer.iter().map(edge));
            }
        }
        let mut reaches = vec![vec![false; resources.len()]; resources.len()];
        for Edge { holds, wants, .. } in &edges {
            reaches[*holds][*wants] = true;
        }
        // Warshall's transitive closure.
        for via in 0..resources.len() {
            let onwards = reaches[via].clone();
            for from in reaches.iter_mut().filter(|from| from[via]) {
                from.iter_mut().zip(&onwards).for_each(|(to, further)| *to |= further);
            }
        }
        (0..resources.len()).find_map(|first| {
            let ring: Vec<usize> =
                (first..resources.len()).filter(|&r| reaches[first][r] && reaches[r][first]).collect();
            let is_within = |edge: &&Edge| ring.contains(&edge.holds) && ring.contains(&edge.wants);
            let one = edges.iter().find(is_within)?.task;
            let by_several = edges.iter().filter(is_within).any(|edge| edge.task != one);
            let by_ceiling = ring.iter().all(|&r| resources[r].protocol == Protocol::Ceiling);
            (by_several && !by_ceiling).then_some(ring)
        })
    }
}
