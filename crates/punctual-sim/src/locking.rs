//! Tasks that lock and unlock resources of their guest.
//!
//! # Rules
//! - **A task locks** when its job has executed as much as the host says ([`punctual_model::locks`]), and not
//!   before it executes again. If another task holds the resource, the task sleeps until it is given it.
//! - **A task unlocks** when it has executed its critical section. The resource goes to the most urgent task
//!   that waits for it, of equals to that which has waited longest. Then the guest decides, before the task
//!   locks anything else.
//! - **Urgency.** A task is as urgent as itself, as the tasks that wait for what it holds by inheritance, and
//!   as the ceilings of what it holds by ceiling, whichever is most; along chains of tasks that wait. The
//!   guest's policy gets it as a new priority ([`Policy::adjust`]) or deadline ([`Policy::set_deadline`]).
//! - **A vCPU without a processor** changes nothing: its tasks keep what they hold.
//!
//! [`Policy::adjust`]: punctual_sched::Policy::adjust
//! [`Policy::set_deadline`]: punctual_sched::Policy::set_deadline

use punctual_model::index::TaskIx;
use punctual_model::locks::GuestOrder;
use punctual_sched::{Duration, Instant, UnitParams};

use crate::index::ProcessorIx;
use crate::locks::{ResourceIx, Sharer, SharerIx, Urgency};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

impl<O: Observer> Machine<'_, O> {
    /// The task begins with a job that costs `cost`: returns what it has left to execute when it first locks.
    pub(crate) fn begin_sections(&mut self, task: TaskIx, cost: Duration) -> Duration {
        let Some(sharer) = self.locks.sharer(task) else { return Duration::ZERO };
        let urgency = self.own_urgency(sharer);
        let sharer = &mut self.locks.sharers[sharer];
        (sharer.cost, sharer.next, sharer.urgency) = (cost, 0, urgency);
        sharer.pause()
    }

    /// What a task that `proc` executes does at this point of its job: it locks, unlocks, or has finished.
    pub(crate) fn lock_event(&mut self, proc: ProcessorIx, task: TaskIx, sharer: SharerIx) {
        self.charge(proc);
        let remaining = self.tasks[task.0].remaining;
        let mut unlocked = false;
        while let Some(&step) = self.locks.sharers[sharer].steps.get(self.locks.sharers[sharer].next) {
            if self.locks.sharers[sharer].pause() < remaining {
                return;
            }
            if step.locks {
                // Those that wait for what has been unlocked come first, if they are more urgent.
                if !unlocked {
                    self.lock(sharer, step.resource);
                }
                return;
            }
            self.unlock(sharer, step.resource);
            unlocked = true;
        }
        if remaining.is_zero() {
            self.complete(proc, task);
        }
    }

    fn lock(&mut self, sharer: SharerIx, resource: ResourceIx) {
        let Some(holder) = self.locks.resources[resource].holder else {
            return self.give(sharer, resource);
        };
        let waits_since = self.locks.waits;
        self.locks.waits += 1;
        let waiting = &mut self.locks.sharers[sharer];
        (waiting.waits_for, waiting.waits_since) = (Some(resource), waits_since);
        let task = waiting.task;
        self.locks.resources[resource].waiting.push(sharer);
        self.renew_urgency(holder);
        self.sleep(self.unit_of(task));
        self.notify(Event::Blocked { task, holder: self.locks.sharers[holder].task });
    }

    /// The task gets the resource.
    fn give(&mut self, sharer: SharerIx, resource: ResourceIx) {
        self.locks.give(self.now, resource, sharer);
        let of = &self.locks.sharers[sharer];
        let task = of.task;
        self.tasks[task.0].pause = of.pause();
        self.notify(Event::Locked { task, resource });
        self.renew_urgency(sharer);
    }

    fn unlock(&mut self, sharer: SharerIx, resource: ResourceIx) {
        let of = &mut self.locks.sharers[sharer];
        debug_assert_eq!(of.holds.last().map(|held| held.0), Some(resource), "sections nest");
        of.holds.pop();
        of.next += 1;
        let task = of.task;
        self.tasks[task.0].pause = of.pause();
        self.locks.resources[resource].holder = None;
        self.notify(Event::Unlocked { task, resource });
        let next = self.locks.next_holder(resource);
        self.renew_urgency(sharer);
        let Some(next) = next else { return };
        self.locks.sharers[next].waits_for = None;
        let task = self.locks.sharers[next].task;
        self.give(next, resource);
        // Its sleep has made a policy of deadlines forget the task's.
        self.lend(next);
        self.wake(self.unit_of(task));
        for at in 0..self.locks.resources[resource].waiting.len() {
            let waiting = self.locks.resources[resource].waiting[at];
            self.notify(Event::Blocked { task: self.locks.sharers[waiting].task, holder: task });
        }
    }

    /// How urgent a task is without locks.
    fn own_urgency(&self, sharer: SharerIx) -> Urgency {
        let Sharer { task, order, .. } = self.locks.sharers[sharer];
        match order {
            GuestOrder::Priority => self.host.tasks[task.0].params.priority.unwrap_or(u32::MAX).into(),
            GuestOrder::Deadline => {
                let state = &self.tasks[task.0];
                state.arrivals.deadline(state.current).as_ns()
            }
        }
    }

    /// What the task holds, or what waits for that, has changed: so may its urgency, and that of those for
    /// which it waits itself.
    fn renew_urgency(&mut self, sharer: SharerIx) {
        let mut at = sharer;
        loop {
            let urgency = self.own_urgency(at).min(self.locks.urgency_by_locks(at));
            if std::mem::replace(&mut self.locks.sharers[at].urgency, urgency) == urgency {
                return;
            }
            self.lend(at);
            let waits_for = self.locks.sharers[at].waits_for;
            match waits_for.and_then(|resource| self.locks.resources[resource].holder) {
                Some(holder) => at = holder,
                None => return,
            }
        }
    }

    /// The guest's policy gets the task's urgency.
    fn lend(&mut self, sharer: SharerIx) {
        let Sharer { task, order, urgency, .. } = self.locks.sharers[sharer];
        let unit = &self.units[self.unit_of(task)];
        let (sched, id) = (unit.sched, unit.id);
        let s = &mut self.scheds[sched];
        match order {
            GuestOrder::Priority => {
                let priority = Some(u32::try_from(urgency).unwrap_or(u32::MAX));
                let params = UnitParams { priority, ..UnitParams::default() };
                let adjusted = s.policy.adjust(self.now, id, &params, &mut s.resched);
                debug_assert!(adjusted.is_ok(), "a priority within the guest's is refused");
            }
            GuestOrder::Deadline => {
                s.policy.set_deadline(self.now, id, Instant::from_ns(urgency), &mut s.resched);
            }
        }
        self.after_call(sched);
    }
}
