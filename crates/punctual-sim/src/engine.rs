//! The machine in motion.
//!
//! One step handles one instant, in this order:
//! 1. processors: slices and jobs that end now;
//! 2. timers of policies that are due;
//! 3. events of the host, which change units and policies (`change.rs`);
//! 4. releases of jobs, arrivals of packets;
//! 5. kernels with network work choose their next step (`net/`);
//! 6. decisions: every processor that was asked to pick, vCPUs (guests) before physical processors, until no
//!    processor is asked any more;
//! 7. the next event of everything that was touched, and the invariants.
//!
//! So a job that ends when another is released does not make its vCPU sleep in between, and no decision is
//! taken on half of what happens at one instant.

use punctual_model::index::TaskIx;
use punctual_sched::registry::WorkConservation;
use punctual_sched::{Duration, Instant};

use crate::arrivals::{Job, NextJob};
use crate::error::Error;
use crate::index::{Occupant, ProcessorIx, SchedulerIx, UnitIx};
use crate::machine::{Machine, TaskState};
use crate::observe::{Event, Observer};

impl<O: Observer> Machine<'_, O> {
    /// Runs to the end of the host's duration.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        self.start();
        loop {
            self.refresh_touched();
            let next = self.proc_events.min().0.min(self.timers.min().0).min(self.releases.min().0);
            let next = next.min(self.net.at());
            if next >= self.changes.pause || self.observer.stops() {
                if !self.pass_change(next)? {
                    break;
                }
            } else {
                // A policy's timer may lie in the past, which the checker judges; the machine's own events
                // may not.
                debug_assert!(self.releases.min().0 >= self.now, "a release lies in the past");
                debug_assert!(self.net.at() >= self.now, "a packet's event lies in the past");
                self.now = next;
                self.notify(Event::Instant);
            }
            self.step();
        }
        if !self.observer.stops() {
            self.finish();
        }
        match self.observer.verdict() {
            Some(violation) => Err(Error::Violation(violation)),
            None => Ok(()),
        }
    }

    /// The first decision is due at time zero on every processor of a pool, work or not, and on vCPUs whose
    /// guest lets budgets idle away; other guests decide when they first get work.
    fn start(&mut self) {
        for sched in 0..self.scheds.len() {
            let idles_away = |domain: usize| {
                self.host.domains[domain].guest.info.work_conservation == WorkConservation::Never
            };
            if sched.checked_sub(self.host.pools.len()).is_none_or(idles_away) {
                for cpu in 0..self.scheds[sched].procs.len() {
                    self.request(self.scheds[sched].procs[cpu]);
                }
            }
        }
        for proc in 0..self.physical {
            if self.procs[proc].pending {
                self.proc_events.set(proc, Instant::ZERO);
            }
        }
    }

    fn step(&mut self) {
        self.end_slices();
        self.run_due_timers();
        if self.now < self.end {
            loop {
                let (at, task) = self.releases.min();
                if at > self.now {
                    break;
                }
                self.release(TaskIx(task));
            }
        } else {
            // Nothing released at the end could run or be due within the run.
            while self.releases.min().0 <= self.now {
                let (_, task) = self.releases.min();
                self.releases.set(task, Instant::NEVER);
            }
        }
        if self.net.at() <= self.now {
            self.network_events();
        }
        if !self.net.choosers.is_empty() {
            self.choose_steps();
        }
        self.decide();
    }

    /// What ends now on processors.
    #[inline(always)]
    pub(crate) fn end_slices(&mut self) {
        loop {
            let (at, proc) = self.proc_events.min();
            if at > self.now {
                break;
            }
            // Set again from its state after the decisions.
            self.proc_events.set(proc, Instant::NEVER);
            self.touch_proc(ProcessorIx::new(proc));
            self.processor_event(ProcessorIx::new(proc));
        }
    }

    #[inline(always)]
    pub(crate) fn run_due_timers(&mut self) {
        loop {
            let (at, sched) = self.timers.min();
            if at > self.now {
                break;
            }
            self.run_timers(SchedulerIx::new(sched));
        }
    }

    /// Lets every processor pick that was asked to, guests first.
    fn decide(&mut self) {
        while !self.observer.stops() {
            if let Some(proc) = take_extreme(&mut self.pending_virtual, |a, b| a > b) {
                self.procs[proc].pending = false;
                if self.procs[proc].powered {
                    self.schedule(proc);
                } else {
                    self.procs[proc].resched = true;
                }
            } else if let Some(proc) = take_extreme(&mut self.pending_physical, |a, b| a < b) {
                self.procs[proc].pending = false;
                if self.procs[proc].exec_from > self.now {
                    // A context switch is not preemptible; the decision follows it.
                    self.procs[proc].resched = true;
                    self.touch_proc(proc);
                } else {
                    self.schedule(proc);
                }
            } else {
                break;
            }
        }
    }

    // ---- events -------------------------------------------------------------------------------------

    /// Something on this physical processor ends now: a switch, slices, or a job.
    fn processor_event(&mut self, root: ProcessorIx) {
        if self.procs[root].resched && self.procs[root].exec_from <= self.now {
            self.procs[root].resched = false;
            self.request(root);
        }
        let mut proc = root;
        loop {
            let p = &self.procs[proc];
            if let Some(kernel) = p.kernel.some()
                && let Some(until) = self.kernel_until(kernel)
            {
                if until <= self.now {
                    self.kernel_event(kernel);
                }
                return;
            }
            let occupant = p.occupant;
            if p.until <= self.now && p.exec_from <= self.now {
                self.request(proc);
            }
            let Some(unit) = occupant.runs() else { return };
            match self.child_proc(unit) {
                Some(child) => proc = child,
                None => {
                    let task = TaskIx(unit.index() - self.vcpus.len());
                    if self.finish_of(proc, task) <= self.now {
                        match self.locks.sharer(task) {
                            None => match self.smp.place(task) {
                                None => self.complete(proc, task),
                                Some(place) => self.smp_event(proc, place),
                            },
                            Some(sharer) => self.lock_event(proc, task, sharer),
                        }
                    }
                    return;
                }
            }
        }
    }

    /// When the task that `proc` executes will have finished its current job, or come to a lock.
    #[inline]
    fn finish_of(&self, proc: ProcessorIx, task: TaskIx) -> Instant {
        let p = &self.procs[proc];
        let TaskState { remaining, pause, .. } = self.tasks[task.0];
        if remaining == Duration::MAX {
            return Instant::NEVER;
        }
        p.charged_to.max(p.exec_from) + (remaining - pause)
    }

    pub(crate) fn complete(&mut self, proc: ProcessorIx, task: TaskIx) {
        self.charge(proc);
        self.events += 1;
        let now = self.now;
        let state = &mut self.tasks[task.0];
        let job = state.current;
        let deadline = state.arrivals.deadline(job);
        let (response, tardiness) = (now.since(job.release), now.since(deadline));
        state.jobs.completed += 1;
        state.jobs.response.record(response);
        state.jobs.tardiness.record(tardiness);
        if deadline <= self.end {
            state.jobs.due += 1;
            state.jobs.missed += u64::from(now > deadline);
        }
        self.notify(Event::Finish { task, job: job.number, release: job.release, deadline });
        if self.next_job(task, job) {
            self.begin_job(task);
        } else {
            self.sleep(self.unit_of(task));
        }
    }

    /// What the task works on after `done`. False: nothing yet.
    #[inline]
    fn next_job(&mut self, task: TaskIx, done: Job) -> bool {
        let next = if self.net.kernels.is_empty() { NextJob::ByTime } else { self.job_done(task, done) };
        let state = &mut self.tasks[task.0];
        state.current = match next {
            NextJob::ByTime => state.arrivals.after(done),
            NextJob::Released(job) => job,
            NextJob::NotReleased => state.head,
        };
        state.current.number < state.head.number
    }

    fn release(&mut self, task: TaskIx) {
        self.events += 1;
        let state = &mut self.tasks[task.0];
        let job = state.head;
        state.head = state.arrivals.after(job);
        state.jobs.released += u64::from(!state.arrivals.is_hog());
        self.releases.set(task.0, state.head.release);
        if !state.arrivals.is_hog() {
            let deadline = state.arrivals.deadline(job);
            self.notify(Event::Release { task, job: job.number, deadline, way: &[] });
        }
        if self.tasks[task.0].current == job {
            self.start_job(task);
        }
    }

    /// The task was idle and gets its current job.
    pub(crate) fn start_job(&mut self, task: TaskIx) {
        self.begin_job(task);
        self.wake(self.unit_of(task));
    }

    /// The task's current job becomes what it works on.
    fn begin_job(&mut self, task: TaskIx) {
        let state = &mut self.tasks[task.0];
        let cost = state.arrivals.cost(state.current);
        (state.remaining, state.started) = (cost, false);
        let (job, deadline) = (state.current, state.arrivals.deadline(state.current));
        self.tasks[task.0].pause = self.begin_sections(task, cost);
        if let Some(first) = self.first_round(task) {
            self.tasks[task.0].remaining = first;
        }
        self.notify(Event::Begin { task, job: job.number, release: job.release, deadline });
        let unit = &self.units[self.unit_of(task)];
        let (sched, id) = (unit.sched, unit.id);
        let s = &mut self.scheds[sched];
        s.policy.set_deadline(self.now, id, deadline, &mut s.resched);
        self.after_call(sched);
    }

    fn run_timers(&mut self, sched: SchedulerIx) {
        loop {
            let timer = self.scheds[sched].policy.next_timer();
            if timer.at > self.now || self.observer.stops() {
                self.timers.set(sched.index(), timer.at.max(self.now + Duration::from_ns(1)));
                return;
            }
            if let Some(cpu) = timer.charge {
                let proc = self.scheds[sched].procs[cpu.index()];
                self.charge(proc);
                // A sporadic server's refill may have merged with a later one.
                if self.scheds[sched].policy.next_timer().at > self.now {
                    continue;
                }
            }
            let s = &mut self.scheds[sched];
            s.policy.on_timer(self.now, &mut s.resched);
            self.after_call(sched);
            self.notify(Event::Timer { scheduler: sched });
        }
    }

    // ---- waking and sleeping ------------------------------------------------------------------------

    /// The unit got work; notifies its scheduler.
    pub(crate) fn wake(&mut self, unit: UnitIx) {
        let u = &mut self.units[unit];
        u.awake = true;
        let (sched, id) = (u.sched, u.id);
        if let Some(vcpu) = self.vcpus.get_mut(unit.index()) {
            vcpu.wakes += 1;
            vcpu.woken_at = self.now;
            self.events += 1;
        }
        self.notify(Event::Wake { unit, scheduler: sched });
        let s = &mut self.scheds[sched];
        s.policy.wake(self.now, id, &mut s.resched);
        self.after_call(sched);
    }

    /// The unit has no more work; notifies its scheduler.
    pub(crate) fn sleep(&mut self, unit: UnitIx) {
        let u = &mut self.units[unit];
        u.awake = false;
        let (sched, id, on) = (u.sched, u.id, u.running_on);
        if let Some(vcpu) = self.vcpus.get_mut(unit.index()) {
            vcpu.sleeps += 1;
            vcpu.woken_at = Instant::NEVER;
            self.events += 1;
        }
        if let Some(on) = on.some() {
            self.charge(on);
        }
        self.notify(Event::Sleep { unit, scheduler: sched });
        let s = &mut self.scheds[sched];
        s.policy.sleep(self.now, id, &mut s.resched);
        self.after_call(sched);
        self.notify(Event::Asleep { unit });
    }

    /// After every call of a policy: passes its wishes on.
    #[inline(always)]
    pub(crate) fn after_call(&mut self, sched: SchedulerIx) {
        let s = &mut self.scheds[sched];
        if !s.touched {
            s.touched = true;
            self.touched_scheds.push(sched);
        }
        if s.resched.is_empty() {
            self.observer.observe(self.now, Event::Called { scheduler: s.seen(sched) });
        } else {
            self.pass_wishes_on(sched);
        }
    }

    #[inline(never)]
    fn pass_wishes_on(&mut self, sched: SchedulerIx) {
        while let Some(cpu) = self.scheds[sched].resched.pop() {
            let proc = self.scheds[sched].procs[cpu.index()];
            self.request(proc);
        }
        let scheduler = self.scheds[sched].seen(sched);
        self.observer.observe(self.now, Event::Called { scheduler });
    }

    /// The processor should pick as soon as it can. A vCPU without work gets some: its guest wants to run.
    pub(crate) fn request(&mut self, proc: ProcessorIx) {
        self.notify(Event::Asked { processor: proc });
        let vcpu = self.vcpu_of(proc);
        let p = &mut self.procs[proc];
        let Some(vcpu) = vcpu else {
            if !p.pending {
                p.pending = true;
                self.pending_physical.push(proc);
            }
            return;
        };
        if !p.powered {
            p.resched = true;
        } else if !p.pending {
            p.pending = true;
            self.pending_virtual.push(proc);
        }
        if !self.units[vcpu].awake {
            self.wake(vcpu);
        }
    }

    // ---- decisions ----------------------------------------------------------------------------------

    fn schedule(&mut self, proc: ProcessorIx) {
        self.charge(proc);
        let p = &mut self.procs[proc];
        p.decisions += 1;
        let (sched, cpu) = (p.sched, p.cpu);
        let s = &mut self.scheds[sched];
        let slice = s.policy.pick(self.now, cpu, &mut s.resched);
        let picked = Event::Picked { processor: proc, scheduler: s.seen(sched), slice };
        self.observer.observe(self.now, picked);
        self.after_call(sched);
        if self.observer.stops() {
            // There may be nothing to run.
            return;
        }
        let occupant = self.scheds[sched].occupant(slice.run);
        let changed = occupant != self.procs[proc].occupant;
        let start = self.start_of(proc, occupant, changed);
        if changed {
            self.switch(proc, occupant);
        }
        self.begin_slice(proc, slice.until, start, changed);
        self.notify(Event::Dispatched { processor: proc, occupant, changed, start });
        if occupant == Occupant::IDLE
            && let Some(vcpu) = self.vcpu_of(proc)
            && self.units[vcpu].awake
        {
            // The guest has nothing to do on this vCPU: it blocks.
            self.sleep(vcpu);
        }
    }

    /// When the picked unit starts to execute: after the overhead of the decision on a physical processor,
    /// as soon as its processor executes on a vCPU.
    #[inline]
    fn start_of(&mut self, proc: ProcessorIx, occupant: Occupant, changed: bool) -> Instant {
        if proc.index() >= self.physical {
            return self.now.max(self.procs[proc].charged_to);
        }
        let costs = &self.host.overheads;
        let mut start = self.now;
        let sched = &mut self.scheds[self.procs[proc].sched];
        if !costs.lock.is_zero() && sched.shared_queue && sched.procs.len() > 1 {
            start = start.max(sched.lock_free_at) + costs.lock;
            sched.lock_free_at = start;
        }
        start += costs.decision;
        if changed {
            start += costs.context_switch;
            if let Some(unit) = occupant.runs()
                && let Some(last_on) = self.units[unit].last_on.some()
                && last_on != proc
            {
                start += costs.migration;
            }
        }
        start
    }

    /// The old unit leaves the processor, the new one gets it.
    fn switch(&mut self, proc: ProcessorIx, occupant: Occupant) {
        if let Some(old) = self.procs[proc].occupant.runs() {
            self.units[old].running_on = ProcessorIx::NONE;
            if let Some(child) = self.child_proc(old) {
                self.power_off(child);
            }
        }
        if let Some(new) = occupant.runs() {
            let unit = &mut self.units[new];
            unit.running_on = proc;
            unit.context_switches += 1;
            unit.migrations += u64::from(unit.last_on.some().is_some_and(|last| last != proc));
            unit.last_on = proc;
        }
        let p = &mut self.procs[proc];
        p.occupant = occupant;
        p.context_switches += 1;
    }

    #[inline]
    fn begin_slice(&mut self, proc: ProcessorIx, until: Instant, start: Instant, changed: bool) {
        let physical = proc.index() < self.physical;
        let now = self.now;
        let p = &mut self.procs[proc];
        // A guest's slice counts from when its vCPU executes.
        p.until = if physical { until } else { until + start.since(now) };
        p.charged_to = if physical { now } else { start };
        p.exec_from = start;
        let root = p.root;
        self.touch_proc(root);
        if let Some(child) = self.inside(proc) {
            if changed {
                self.power_on(child, start, root);
            } else if start > now {
                self.delay(child, start);
            }
        }
    }

    /// The vCPU begins to execute at `at`, with everything its guest has picked.
    fn power_on(&mut self, mut proc: ProcessorIx, at: Instant, root: ProcessorIx) {
        loop {
            let vcpu = &mut self.vcpus[proc.index() - self.physical];
            if !vcpu.woken_at.is_never() {
                vcpu.wake_latency.record(at.since(vcpu.woken_at));
                vcpu.woken_at = Instant::NEVER;
            }
            let kernel = self.procs[proc].kernel;
            if let Some(kernel) = kernel.some()
                && self.kernel_on(kernel, at, root)
            {
                return;
            }
            match self.power_on_picked(proc, at, root) {
                Some(child) => proc = child,
                None => return,
            }
        }
    }

    /// What the guest has picked on this vCPU begins to execute at `at`; its kernel does not.
    pub(crate) fn power_on_guest(&mut self, proc: ProcessorIx, at: Instant, root: ProcessorIx) {
        if let Some(child) = self.power_on_picked(proc, at, root) {
            self.power_on(child, at, root);
        }
    }

    /// One level of it; returns the level below.
    #[inline]
    fn power_on_picked(&mut self, proc: ProcessorIx, at: Instant, root: ProcessorIx) -> Option<ProcessorIx> {
        let p = &mut self.procs[proc];
        p.powered = true;
        p.root = root;
        p.charged_to = at;
        p.exec_from = at;
        p.until = if p.slice_left == Duration::MAX { Instant::NEVER } else { at + p.slice_left };
        if p.resched {
            p.resched = false;
            self.request(proc);
        }
        self.inside(proc)
    }

    /// The vCPU stops executing now, with everything its guest has picked.
    pub(crate) fn power_off(&mut self, mut proc: ProcessorIx) {
        loop {
            let kernel = self.procs[proc].kernel;
            if let Some(kernel) = kernel.some()
                && self.kernel_off(kernel)
            {
                return;
            }
            match self.power_off_picked(proc) {
                Some(child) => proc = child,
                None => return,
            }
        }
    }

    /// What the guest has picked on this vCPU stops executing now; its kernel goes on.
    pub(crate) fn power_off_guest(&mut self, proc: ProcessorIx) {
        if let Some(child) = self.power_off_picked(proc) {
            self.power_off(child);
        }
    }

    /// One level of it; returns the level below.
    #[inline]
    fn power_off_picked(&mut self, proc: ProcessorIx) -> Option<ProcessorIx> {
        self.charge(proc);
        let now = self.now;
        let p = &mut self.procs[proc];
        p.powered = false;
        p.slice_left = if p.until.is_never() { Duration::MAX } else { p.until.since(now.max(p.exec_from)) };
        self.inside(proc)
    }

    /// The vCPU goes on after a pause until `start`: its processor decided, and chose it again.
    fn delay(&mut self, mut proc: ProcessorIx, start: Instant) {
        loop {
            let kernel = self.procs[proc].kernel;
            if let Some(kernel) = kernel.some()
                && self.kernel_pause(kernel, start)
            {
                return;
            }
            self.charge(proc);
            let p = &mut self.procs[proc];
            p.until += start.since(p.charged_to);
            p.charged_to = start;
            p.exec_from = start;
            match self.inside(proc) {
                Some(child) => proc = child,
                None => return,
            }
        }
    }

    /// Charges what runs on the processor for its time up to now.
    #[inline(always)]
    pub(crate) fn charge(&mut self, proc: ProcessorIx) {
        let p = &self.procs[proc];
        if p.powered && self.now > p.charged_to {
            self.charge_slice(proc);
        }
    }

    /// The processor did something since it was last charged.
    fn charge_slice(&mut self, proc: ProcessorIx) {
        let now = self.now;
        let p = &mut self.procs[proc];
        let from = p.charged_to;
        let ran = now.since(from);
        let start = from.max(p.exec_from);
        let executed = now.since(start);
        p.charged_to = now;
        p.overhead += ran - executed;
        let (occupant, sched, cpu) = (p.occupant, p.sched, p.cpu);
        self.observer.observe(now, Event::Slice { processor: proc, occupant, from, start });
        let Some(unit) = occupant.charged() else {
            p.idle += executed;
            return;
        };
        if occupant.runs().is_some() {
            p.busy += executed;
            self.count_execution(unit, ran, executed, start);
        } else {
            p.idle += executed;
            if let Some(vcpu) = self.vcpus.get_mut(unit.index()) {
                vcpu.idled_away += ran;
            }
        }
        let id = self.units[unit].id;
        let s = &mut self.scheds[sched];
        s.policy.charge(now, cpu, id, ran);
        if !s.touched {
            s.touched = true;
            self.touched_scheds.push(sched);
        }
        self.observer.observe(now, Event::Called { scheduler: s.seen(sched) });
    }

    /// The unit was charged for `ran`, and executed for part of that, from `start` on.
    #[inline]
    fn count_execution(&mut self, unit: UnitIx, ran: Duration, executed: Duration, start: Instant) {
        if let Some(vcpu) = self.vcpus.get_mut(unit.index()) {
            vcpu.charged += ran;
            return;
        }
        let task = &mut self.tasks[unit.index() - self.vcpus.len()];
        task.executed += executed;
        if !task.started && !executed.is_zero() {
            task.started = true;
            task.jobs.start_latency.record(start.since(task.current.release));
        }
        if task.remaining != Duration::MAX {
            task.remaining = task.remaining.saturating_sub(executed);
        }
    }

    // ---- what comes next ----------------------------------------------------------------------------

    #[inline]
    pub(crate) fn touch_sched(&mut self, sched: SchedulerIx) {
        let s = &mut self.scheds[sched];
        if !s.touched {
            s.touched = true;
            self.touched_scheds.push(sched);
        }
    }

    #[inline]
    pub(crate) fn touch_proc(&mut self, proc: ProcessorIx) {
        let p = &mut self.procs[proc];
        if !p.touched {
            p.touched = true;
            self.touched_procs.push(proc);
        }
    }

    /// Brings the event trees up to date and checks what was touched.
    fn refresh_touched(&mut self) {
        while let Some(proc) = self.touched_procs.pop() {
            self.procs[proc].touched = false;
            let at = self.next_event(proc);
            self.proc_events.set(proc.index(), at);
        }
        while let Some(sched) = self.touched_scheds.pop() {
            let s = &mut self.scheds[sched];
            s.touched = false;
            // Already over when it was set (CBS, exhausted after its deadline): it runs at once.
            let at = s.policy.next_timer().at.max(self.now);
            self.timers.set(sched.index(), at);
            self.observer.observe(self.now, Event::Settled { scheduler: s.seen(sched) });
        }
    }

    /// The earliest end of a slice or job on this physical processor and everything it executes.
    fn next_event(&self, root: ProcessorIx) -> Instant {
        let mut proc = root;
        let mut next = if self.procs[root].resched { self.procs[root].exec_from } else { Instant::NEVER };
        loop {
            let p = &self.procs[proc];
            if let Some(kernel) = p.kernel.some()
                && let Some(until) = self.kernel_until(kernel)
            {
                return next.min(until);
            }
            next = next.min(p.until.max(p.exec_from));
            let Some(unit) = p.occupant.runs() else { return next };
            match self.child_proc(unit) {
                Some(child) => proc = child,
                None => return next.min(self.finish_of(proc, TaskIx(unit.index() - self.vcpus.len()))),
            }
        }
    }

    // ---- observation --------------------------------------------------------------------------------

    /// Tells the observer what happens now.
    #[inline(always)]
    pub(crate) fn notify(&mut self, event: Event<'_>) {
        self.observer.observe(self.now, event);
    }
}

/// Removes and returns the entry that comes before all others.
#[inline(always)]
fn take_extreme(
    pending: &mut Vec<ProcessorIx>,
    before: impl Fn(ProcessorIx, ProcessorIx) -> bool,
) -> Option<ProcessorIx> {
    let last = pending.pop()?;
    // There is seldom another one.
    let Some(best) =
        (0..pending.len()).reduce(|best, i| if before(pending[i], pending[best]) { i } else { best })
    else {
        return Some(last);
    };
    if before(pending[best], last) { Some(std::mem::replace(&mut pending[best], last)) } else { Some(last) }
}
