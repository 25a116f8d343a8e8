//! Locks of guests: which task holds each, which tasks wait for it, and how urgent that makes the holder.
//! `locking.rs` moves them through time, and has the rules.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::locks::{GuestOrder, LockStep, Protocol, guest_order};
use punctual_sched::{Duration, Instant};

/// A priority, or a deadline in ns: a smaller number is more urgent.
pub(crate) type Urgency = u64;

/// Places in [`Locks::sharers`] and [`Locks::resources`].
pub(crate) type SharerIx = usize;
pub(crate) type ResourceIx = usize;

/// The locks of all guests.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) resources: Vec<Resource>,
    pub(crate) sharers: Vec<Sharer>,
    /// By task: its place among the sharers. Empty if there are none.
    pub(crate) of_task: Vec<Option<SharerIx>>,
    /// Tasks that have had to wait so far.
    pub(crate) waits: u64,
}

pub(crate) struct Resource {
    pub(crate) protocol: Protocol,
    /// Of all that use it the least priority or, in ns, the shortest relative deadline.
    pub(crate) ceiling: Urgency,
    pub(crate) holder: Option<SharerIx>,
    pub(crate) waiting: Vec<SharerIx>,
}

/// A task with critical sections.
pub(crate) struct Sharer {
    pub(crate) task: TaskIx,
    pub(crate) order: GuestOrder,
    /// What a job locks and unlocks; resources are places in [`Locks::resources`].
    pub(crate) steps: Vec<LockStep>,
    /// The greatest cost of a job, and that of the current one.
    pub(crate) cost_max: Duration,
    pub(crate) cost: Duration,
    /// The step that comes next.
    pub(crate) next: usize,
    /// What it holds, and how urgent a ceiling makes it.
    pub(crate) holds: Vec<(ResourceIx, Urgency)>,
    pub(crate) waits_for: Option<ResourceIx>,
    /// How many had waited before it.
    pub(crate) waits_since: u64,
    /// How urgent it is for its guest's policy.
    pub(crate) urgency: Urgency,
}

impl Sharer {
    /// What the job has left to execute at the next step; nothing after the last one.
    pub(crate) fn pause(&self) -> Duration {
        let at = |step: &LockStep| self.cost - step.at_of(self.cost, self.cost_max);
        self.steps.get(self.next).map_or(Duration::ZERO, at)
    }
}

impl Locks {
    pub(crate) fn new(host: &Host) -> Locks {
        let mut locks = Locks::default();
        if host.tasks.iter().any(|task| !task.sections.is_empty()) {
            locks.of_task = vec![None; host.tasks.len()];
        }
        for (ix, domain) in host.domains.iter().enumerate() {
            if let Some(order) = guest_order(domain.guest.info) {
                locks.add_domain(host, DomainIx(ix), order);
            }
        }
        locks
    }

    fn add_domain(&mut self, host: &Host, domain: DomainIx, order: GuestOrder) {
        let first = self.resources.len();
        for (ix, resource) in host.domains[domain.0].resources.iter().enumerate() {
            let ceilings = host.users(domain, ix).map(|(_, task)| match order {
                GuestOrder::Priority => task.params.priority.unwrap_or(u32::MAX).into(),
                GuestOrder::Deadline => task.deadline().unwrap_or(Duration::MAX).as_ns(),
            });
            let ceiling = ceilings.min().unwrap_or(Urgency::MAX);
            let waiting = Vec::with_capacity(host.users(domain, ix).count());
            self.resources.push(Resource { protocol: resource.protocol, ceiling, holder: None, waiting });
        }
        let tasks = host.tasks_of(Parent::Domain(domain));
        for (task, of) in tasks.filter(|(_, of)| !of.sections.is_empty()) {
            self.of_task[task.0] = Some(self.sharers.len());
            let steps = of.lock_steps().into_iter();
            self.sharers.push(Sharer {
                task,
                order,
                steps: steps.map(|step| LockStep { resource: first + step.resource, ..step }).collect(),
                cost_max: of.cost_max().unwrap_or_default(),
                cost: Duration::ZERO,
                next: 0,
                holds: Vec::with_capacity(of.sections.len()),
                waits_for: None,
                waits_since: 0,
                urgency: of.params.priority.unwrap_or(u32::MAX).into(),
            });
        }
    }

    /// Has the task critical sections?
    #[inline]
    pub(crate) fn sharer(&self, task: TaskIx) -> Option<SharerIx> {
        self.of_task.get(task.0).copied().flatten()
    }

    /// How urgent the task is by what it holds, beside how urgent it is itself.
    pub(crate) fn urgency_by_locks(&self, sharer: SharerIx) -> Urgency {
        let of = |&(resource, ceiling): &(ResourceIx, Urgency)| {
            let resource = &self.resources[resource];
            match resource.protocol {
                Protocol::None => Urgency::MAX,
                Protocol::Ceiling => ceiling,
                Protocol::Inherit => {
                    let waiting = resource.waiting.iter().map(|&waiting| self.sharers[waiting].urgency);
                    waiting.min().unwrap_or(Urgency::MAX)
                }
            }
        };
        self.sharers[sharer].holds.iter().map(of).min().unwrap_or(Urgency::MAX)
    }

    /// The task holds the resource from now on.
    pub(crate) fn give(&mut self, now: Instant, resource: ResourceIx, to: SharerIx) {
        let ceiling = match self.sharers[to].order {
            GuestOrder::Priority => self.resources[resource].ceiling,
            GuestOrder::Deadline => now.as_ns().saturating_add(self.resources[resource].ceiling),
        };
        self.resources[resource].holder = Some(to);
        let sharer = &mut self.sharers[to];
        sharer.holds.push((resource, ceiling));
        sharer.next += 1;
    }

    /// Takes the task that is given the resource next from those that wait for it.
    pub(crate) fn next_holder(&mut self, resource: ResourceIx) -> Option<SharerIx> {
        let waiting = &self.resources[resource].waiting;
        let place = |at: &usize| {
            let sharer = &self.sharers[waiting[*at]];
            (sharer.urgency, sharer.waits_since)
        };
        let first = (0..waiting.len()).min_by_key(place)?;
        Some(self.resources[resource].waiting.swap_remove(first))
    }
}
