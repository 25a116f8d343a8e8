//! Events of the host: units get other parameters, pools get other policies, while the machine runs.

use punctual_model::host::Change;
use punctual_model::host::PolicyChoice;
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_sched::{Instant, UnitParams};

use crate::error::Error;
use crate::index::{Occupant, ProcessorIx, SchedulerIx, UnitIx};
use crate::machine::Machine;
use crate::names;
use crate::observe::{Event, Observer};

impl<O: Observer> Machine<'_, O> {
    /// Nothing happens in the machine before `next`: goes on to then, or to the events of the host that are
    /// due before, and lets these happen. False: the run is over.
    ///
    /// # Errors
    /// A policy refuses a unit's parameters.
    #[cold]
    pub(crate) fn pass_change(&mut self, next: Instant) -> Result<bool, Error> {
        let at = next.min(self.changes.at);
        if at > self.end || self.observer.stops() {
            return Ok(false);
        }
        self.now = at;
        self.notify(Event::Instant);
        self.end_slices();
        self.run_due_timers();
        self.change()?;
        Ok(true)
    }

    /// Carries out the events of the host that are due.
    fn change(&mut self) -> Result<(), Error> {
        while self.changes.at <= self.now {
            let (ix, host) = (self.changes.next, self.host);
            self.changes.set_next(host, ix + 1);
            match &host.events[ix].change {
                Change::Params { domain, .. } => self.adjust(ix, *domain)?,
                Change::Policy { pool, policy } => self.replace(ix, *pool, policy)?,
            }
        }
        Ok(())
    }

    /// The vCPUs of a domain get what they have from this event on.
    fn adjust(&mut self, event: usize, domain: DomainIx) -> Result<(), Error> {
        let host = self.host;
        let vcpus = host.domains[domain.0].vcpus.clone();
        let sched = self.units[UnitIx::new(vcpus.start)].sched;
        self.charge_all(sched);
        for vcpu in vcpus {
            let unit = UnitIx::new(vcpu);
            let id = self.units[unit].id;
            let params = host.vcpu_params_after(VcpuIx(vcpu), event + 1);
            let s = &mut self.scheds[sched];
            let adjusted = s.policy.adjust(self.now, id, &params, &mut s.resched);
            adjusted.map_err(|e| Error::Refused(format!("{}: {e}", names::unit(host, unit))))?;
            self.after_call(sched);
        }
        self.notify(Event::Adjusted { event, scheduler: sched });
        Ok(())
    }

    /// The pool's units go on under another policy, each with the work that it has.
    fn replace(&mut self, event: usize, pool: PoolIx, choice: &PolicyChoice) -> Result<(), Error> {
        let sched = SchedulerIx::new(pool.0);
        let Some(mut policy) = self.changes.policies[event].take() else { return Ok(()) };
        self.charge_all(sched);
        let procs = self.scheds[sched].procs.clone();
        for &proc in &procs {
            self.vacate(proc);
        }
        let units = self.scheds[sched].units.clone();
        for (expected, &unit) in units.iter().enumerate() {
            let inserted = policy.insert(self.now, &self.params_after(unit, event + 1));
            let name = || names::unit(self.host, unit);
            let id = inserted.map_err(|e| Error::Refused(format!("{}: {e}", name())))?;
            if id.index() != expected {
                return Err(Error::Refused(format!(
                    "{}: the policy calls its unit {expected} {id:?}",
                    name()
                )));
            }
        }
        self.changes.counted[pool.0] = units.iter().map(|unit| self.budget_counts(*unit)).collect();
        let s = &mut self.scheds[sched];
        s.policy = policy;
        s.shared_queue = choice.info.shared_queue;
        while s.resched.pop().is_some() {}
        let scheduler = s.seen(sched);
        self.observer.observe(self.now, Event::Replaced { event, scheduler, policy: choice.info });
        for unit in units {
            self.introduce(sched, unit);
        }
        // Those that are due run before the jobs of this instant are released, as at the beginning.
        let timer = self.scheds[sched].policy.next_timer();
        self.timers.set(sched.index(), timer.at.max(self.now));
        for &processor in &procs {
            let start = self.procs[processor].exec_from.max(self.now);
            self.notify(Event::Dispatched { processor, occupant: Occupant::IDLE, changed: true, start });
            self.request(processor);
        }
        Ok(())
    }

    /// A unit's parameters after so many events.
    fn params_after(&self, unit: UnitIx, events: usize) -> UnitParams {
        match names::task_of(self.host, unit) {
            Some(TaskIx(task)) => self.host.tasks[task].params.clone(),
            None => self.host.vcpu_params_after(VcpuIx(unit.index()), events),
        }
    }

    /// Charges everything that the scheduler's processors do.
    fn charge_all(&mut self, sched: SchedulerIx) {
        for cpu in 0..self.scheds[sched].procs.len() {
            self.charge(self.scheds[sched].procs[cpu]);
        }
    }

    /// Nothing runs on the physical processor until it picks. A context switch that is under way goes on.
    fn vacate(&mut self, proc: ProcessorIx) {
        if let Some(unit) = self.procs[proc].occupant.runs() {
            self.units[unit].running_on = ProcessorIx::NONE;
            if let Some(child) = self.child_proc(unit) {
                self.power_off(child);
            }
        }
        let p = &mut self.procs[proc];
        p.occupant = Occupant::IDLE;
        p.until = Instant::NEVER;
        self.touch_proc(proc);
    }

    /// Tells a new policy of the work that a unit has.
    fn introduce(&mut self, sched: SchedulerIx, unit: UnitIx) {
        if !self.units[unit].awake {
            return;
        }
        let id = self.units[unit].id;
        if let Some(TaskIx(task)) = names::task_of(self.host, unit) {
            let state = &self.tasks[task];
            let deadline = state.arrivals.deadline(state.current);
            let s = &mut self.scheds[sched];
            s.policy.set_deadline(self.now, id, deadline, &mut s.resched);
            self.after_call(sched);
        }
        let s = &mut self.scheds[sched];
        s.policy.wake(self.now, id, &mut s.resched);
        self.after_call(sched);
    }
}
