//! The machine in motion.
//!
//! One step handles one instant, in this order:
//! 1. processors: slices and jobs that end now;
//! 2. timers of policies that are due;
//! 3. releases of jobs, arrivals of packets;
//! 4. kernels with network work choose their next step (`net/`);
//! 5. decisions: every processor that was asked to pick, vCPUs (guests) before physical processors, until
//!    nobody is asked any more;
//! 6. the next event of everything that was touched, and the invariants.
//!
//! So a job that ends when another is released does not make its vCPU sleep in between, and no decision is
//! taken on half of what happens at one instant.

use punctual_model::trace::{Occupant, TraceEvent, TraceSink};
use punctual_sched::registry::WorkConservation;
use punctual_sched::{Duration, Instant, Run, Slice};

use crate::Error;
use crate::arrivals::Job;
use crate::machine::{Machine, NONE};

impl<T: TraceSink> Machine<'_, T> {
    /// Runs to the end of the host's duration.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        self.start();
        loop {
            self.refresh_touched();
            let next = self.proc_events.min().0.min(self.timers.min().0).min(self.releases.min().0);
            let next = next.min(self.net.at());
            self.check_progress(next);
            if let Some(account) = self.violation.take() {
                return Err(Error::Violation(account));
            }
            if next > self.end {
                break;
            }
            self.now = next;
            if T::ENABLED {
                self.flush_trace(next);
            }
            self.step();
        }
        self.finish();
        match self.violation.take() {
            Some(account) => Err(Error::Violation(account)),
            None => Ok(()),
        }
    }

    /// The first decision is due at time zero on every processor of a pool, work or not, and on vCPUs whose
    /// guest lets budgets idle away; other guests decide when they first get work.
    fn start(&mut self) {
        for sched in 0..self.scheds.len() {
            let idles_away = self.scheds[sched].info.work_conservation == WorkConservation::Never;
            if sched < self.host.pools.len() || idles_away {
                for cpu in 0..self.scheds[sched].procs.len() {
                    self.request(self.scheds[sched].procs[cpu] as usize);
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
        loop {
            let (at, proc) = self.proc_events.min();
            if at > self.now {
                break;
            }
            // Set again from its state after the decisions.
            self.proc_events.set(proc, Instant::NEVER);
            self.touch_proc(proc);
            self.processor_event(proc);
        }
        loop {
            let (at, sched) = self.timers.min();
            if at > self.now {
                break;
            }
            self.run_timers(sched);
        }
        if self.now < self.end {
            loop {
                let (at, task) = self.releases.min();
                if at > self.now {
                    break;
                }
                self.release(task);
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

    /// Lets every processor pick that was asked to, guests first.
    fn decide(&mut self) {
        while self.violation.is_none() {
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
    fn processor_event(&mut self, root: usize) {
        if self.procs[root].resched && self.procs[root].exec_from <= self.now {
            self.procs[root].resched = false;
            self.request(root);
        }
        let mut proc = root;
        loop {
            let p = &self.procs[proc];
            let unit = p.unit;
            if p.kernel != NONE
                && let Some(until) = self.kernel_until(p.kernel)
            {
                if until <= self.now {
                    self.kernel_event(p.kernel);
                }
                return;
            }
            if p.until <= self.now && p.exec_from <= self.now {
                self.request(proc);
            }
            let Run::Unit(_) = self.procs[proc].run else { return };
            match self.child_proc(unit) {
                Some(child) => proc = child,
                None => {
                    let task = unit as usize - self.vcpus.len();
                    if self.finish_of(proc, task) <= self.now {
                        self.complete(proc, task);
                    }
                    return;
                }
            }
        }
    }

    /// When the task that `proc` executes will have finished its current job.
    #[inline]
    fn finish_of(&self, proc: usize, task: usize) -> Instant {
        let p = &self.procs[proc];
        let remaining = self.tasks[task].remaining;
        if remaining == Duration::MAX { Instant::NEVER } else { p.charged_to.max(p.exec_from) + remaining }
    }

    fn complete(&mut self, proc: usize, task: usize) {
        self.charge(proc);
        self.events += 1;
        let now = self.now;
        let state = &mut self.tasks[task];
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
        if T::ENABLED {
            let missed = now > deadline;
            let task = punctual_model::index::TaskIx(task);
            self.emit(TraceEvent::Completion { task, job: job.number, response, missed });
        }
        if self.next_job(task, job) {
            self.begin_job(task);
        } else {
            self.sleep((self.vcpus.len() + task) as u32);
        }
    }

    /// What the task works on after `done`. False: nothing yet.
    #[inline]
    fn next_job(&mut self, task: usize, done: Job) -> bool {
        let served = if self.net.kernels.is_empty() { None } else { self.job_done(task, done) };
        let state = &mut self.tasks[task];
        state.current = match served {
            None => state.arrivals.after(done),
            Some(next) => next.unwrap_or(state.head),
        };
        state.current.number < state.head.number
    }

    fn release(&mut self, task: usize) {
        self.events += 1;
        let state = &mut self.tasks[task];
        let job = state.head;
        state.head = state.arrivals.after(job);
        state.jobs.released += u64::from(!state.arrivals.is_hog());
        self.releases.set(task, state.head.release);
        if T::ENABLED && !state.arrivals.is_hog() {
            let deadline = state.arrivals.deadline(job);
            let task = punctual_model::index::TaskIx(task);
            self.emit(TraceEvent::Release { task, job: job.number, deadline });
        }
        if self.tasks[task].current == job {
            self.start_job(task);
        }
    }

    /// The task was idle and gets its current job.
    pub(crate) fn start_job(&mut self, task: usize) {
        self.begin_job(task);
        self.wake((self.vcpus.len() + task) as u32);
    }

    /// The task's current job becomes what it works on.
    fn begin_job(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        state.remaining = state.arrivals.cost(state.current);
        state.started = false;
        let deadline = state.arrivals.deadline(state.current);
        let unit = &self.units[self.vcpus.len() + task];
        let (sched, id) = (unit.sched as usize, unit.id);
        let s = &mut self.scheds[sched];
        s.policy.set_deadline(self.now, id, deadline, &mut s.resched);
        self.after_call(sched);
    }

    fn run_timers(&mut self, sched: usize) {
        loop {
            let timer = self.scheds[sched].policy.next_timer();
            if timer.at > self.now || self.violation.is_some() {
                self.timers.set(sched, timer.at.max(self.now + Duration::from_ns(1)));
                return;
            }
            if let Some(cpu) = timer.charge {
                let proc = self.scheds[sched].procs[cpu.index()] as usize;
                self.charge(proc);
            }
            let s = &mut self.scheds[sched];
            s.policy.on_timer(self.now, &mut s.resched);
            self.after_call(sched);
            self.history.timer_ran(self.now);
            self.check_busy_instant();
        }
    }

    // ---- waking and sleeping ------------------------------------------------------------------------

    /// The unit got work; tells its scheduler.
    pub(crate) fn wake(&mut self, unit: u32) {
        let u = &mut self.units[unit as usize];
        u.awake = true;
        let (sched, id) = (u.sched as usize, u.id);
        if (unit as usize) < self.vcpus.len() {
            let vcpu = &mut self.vcpus[unit as usize];
            vcpu.wakes += 1;
            vcpu.woken_at = self.now;
            self.events += 1;
        }
        if T::ENABLED {
            self.emit(TraceEvent::Wake { unit: self.entity(unit) });
        }
        let s = &mut self.scheds[sched];
        s.awake += 1;
        s.policy.wake(self.now, id, &mut s.resched);
        self.after_call(sched);
    }

    /// The unit has no more work; tells its scheduler.
    pub(crate) fn sleep(&mut self, unit: u32) {
        let u = &mut self.units[unit as usize];
        u.awake = false;
        let (sched, id, on) = (u.sched as usize, u.id, u.running_on);
        if (unit as usize) < self.vcpus.len() {
            let vcpu = &mut self.vcpus[unit as usize];
            vcpu.sleeps += 1;
            vcpu.woken_at = Instant::NEVER;
            self.events += 1;
        }
        if on != NONE {
            self.charge(on as usize);
        }
        if T::ENABLED {
            self.emit(TraceEvent::Sleep { unit: self.entity(unit) });
        }
        let s = &mut self.scheds[sched];
        s.awake -= 1;
        s.policy.sleep(self.now, id, &mut s.resched);
        self.after_call(sched);
        self.check_asleep(unit);
    }

    /// After every call of a policy: passes its wishes on.
    #[inline]
    fn after_call(&mut self, sched: usize) {
        self.touch_sched(sched);
        while let Some(cpu) = self.scheds[sched].resched.pop() {
            let proc = self.scheds[sched].procs[cpu.index()] as usize;
            self.request(proc);
        }
        if T::ENABLED {
            self.trace_budgets(sched);
        }
    }

    /// The processor should pick as soon as it can. A vCPU without work gets some: its guest wants to run.
    fn request(&mut self, proc: usize) {
        if proc < self.physical {
            if !self.procs[proc].pending {
                self.procs[proc].pending = true;
                self.pending_physical.push(proc as u32);
            }
            return;
        }
        if !self.procs[proc].powered {
            self.procs[proc].resched = true;
        } else if !self.procs[proc].pending {
            self.procs[proc].pending = true;
            self.pending_virtual.push(proc as u32);
        }
        let vcpu = (proc - self.physical) as u32;
        if !self.units[vcpu as usize].awake {
            self.wake(vcpu);
        }
    }

    // ---- decisions ----------------------------------------------------------------------------------

    /// The processor picks.
    fn schedule(&mut self, proc: usize) {
        self.charge(proc);
        let sched = self.procs[proc].sched as usize;
        let cpu = self.procs[proc].cpu;
        let s = &mut self.scheds[sched];
        let slice = s.policy.pick(self.now, cpu, &mut s.resched);
        self.procs[proc].decisions += 1;
        self.history.decided(self.now, proc, slice);
        self.check_busy_instant();
        self.after_call(sched);
        if !self.check_slice(proc, slice) {
            return;
        }
        let changed = slice.run != self.procs[proc].run;
        let start = self.start_of(proc, slice, changed);
        if changed {
            self.switch(proc, slice);
        }
        self.begin_slice(proc, slice, start, changed);
        if T::ENABLED {
            self.trace_decision(proc, changed, start);
        }
        if proc >= self.physical && slice.run == Run::Idle {
            // The guest has nothing to do on this vCPU: it blocks.
            let vcpu = (proc - self.physical) as u32;
            if self.units[vcpu as usize].awake {
                self.sleep(vcpu);
            }
        }
    }

    /// When the picked unit starts to execute: after the overhead of the decision on a physical processor,
    /// as soon as its processor executes on a vCPU.
    #[inline]
    fn start_of(&mut self, proc: usize, slice: Slice, changed: bool) -> Instant {
        if proc >= self.physical {
            return self.now.max(self.procs[proc].charged_to);
        }
        let costs = &self.host.overheads;
        let mut start = self.now;
        let sched = &mut self.scheds[self.procs[proc].sched as usize];
        if !costs.lock.is_zero() && sched.info.shared_queue && sched.procs.len() > 1 {
            start = start.max(sched.lock_free_at) + costs.lock;
            sched.lock_free_at = start;
        }
        start += costs.decision;
        if changed {
            start += costs.context_switch;
            if let Run::Unit(id) = slice.run {
                let last_on = self.units[sched.units[id.index()] as usize].last_on;
                if last_on != NONE && last_on != proc as u32 {
                    start += costs.migration;
                }
            }
        }
        start
    }

    /// The old unit leaves the processor, the new one gets it.
    fn switch(&mut self, proc: usize, slice: Slice) {
        let sched = self.procs[proc].sched as usize;
        let old = self.procs[proc].unit;
        if let Run::Unit(_) = self.procs[proc].run {
            self.units[old as usize].running_on = NONE;
            self.scheds[sched].running -= 1;
            if let Some(child) = self.child_proc(old) {
                self.power_off(child);
            }
        }
        let new = slice.run.charged().map_or(NONE, |id| self.scheds[sched].units[id.index()]);
        if let Run::Unit(_) = slice.run {
            self.scheds[sched].running += 1;
            let unit = &mut self.units[new as usize];
            unit.running_on = proc as u32;
            unit.context_switches += 1;
            unit.migrations += u64::from(unit.last_on != NONE && unit.last_on != proc as u32);
            unit.last_on = proc as u32;
        }
        let p = &mut self.procs[proc];
        p.run = slice.run;
        p.unit = new;
        p.context_switches += 1;
    }

    #[inline]
    fn begin_slice(&mut self, proc: usize, slice: Slice, start: Instant, changed: bool) {
        let physical = proc < self.physical;
        let now = self.now;
        let p = &mut self.procs[proc];
        // A guest's slice counts from when its vCPU executes.
        p.until = if physical { slice.until } else { slice.until + start.since(now) };
        p.charged_to = if physical { now } else { start };
        p.exec_from = start;
        let (run, unit, root) = (p.run, p.unit, p.root);
        self.touch_proc(root as usize);
        if let (Run::Unit(_), Some(child)) = (run, self.child_proc(unit)) {
            if changed {
                self.power_on(child, start, root);
            } else if start > now {
                self.delay(child, start);
            }
        }
    }

    /// The vCPU begins to execute at `at`, with everything its guest has picked.
    fn power_on(&mut self, mut proc: usize, at: Instant, root: u32) {
        loop {
            let vcpu = &mut self.vcpus[proc - self.physical];
            if !vcpu.woken_at.is_never() {
                vcpu.wake_latency.record(at.since(vcpu.woken_at));
                vcpu.woken_at = Instant::NEVER;
            }
            let kernel = self.procs[proc].kernel;
            if kernel != NONE && self.kernel_on(kernel, at, root) {
                return;
            }
            match self.power_on_picked(proc, at, root) {
                Some(child) => proc = child,
                None => return,
            }
        }
    }

    /// What the guest has picked on this vCPU begins to execute at `at`; its kernel does not.
    pub(crate) fn power_on_guest(&mut self, proc: usize, at: Instant, root: u32) {
        if let Some(child) = self.power_on_picked(proc, at, root) {
            self.power_on(child, at, root);
        }
    }

    /// One level of it; returns the level below.
    #[inline]
    fn power_on_picked(&mut self, proc: usize, at: Instant, root: u32) -> Option<usize> {
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
        match (self.procs[proc].run, self.child_proc(self.procs[proc].unit)) {
            (Run::Unit(_), Some(child)) => Some(child),
            _ => None,
        }
    }

    /// The vCPU stops executing now, with everything its guest has picked.
    fn power_off(&mut self, mut proc: usize) {
        loop {
            let kernel = self.procs[proc].kernel;
            if kernel != NONE && self.kernel_off(kernel) {
                return;
            }
            match self.power_off_picked(proc) {
                Some(child) => proc = child,
                None => return,
            }
        }
    }

    /// What the guest has picked on this vCPU stops executing now; its kernel goes on.
    pub(crate) fn power_off_guest(&mut self, proc: usize) {
        if let Some(child) = self.power_off_picked(proc) {
            self.power_off(child);
        }
    }

    /// One level of it; returns the level below.
    #[inline]
    fn power_off_picked(&mut self, proc: usize) -> Option<usize> {
        self.charge(proc);
        let now = self.now;
        let p = &mut self.procs[proc];
        p.powered = false;
        p.slice_left = if p.until.is_never() { Duration::MAX } else { p.until.since(now.max(p.exec_from)) };
        match (self.procs[proc].run, self.child_proc(self.procs[proc].unit)) {
            (Run::Unit(_), Some(child)) => Some(child),
            _ => None,
        }
    }

    /// The vCPU goes on after a pause until `start`: its processor decided, and chose it again.
    fn delay(&mut self, mut proc: usize, start: Instant) {
        loop {
            let kernel = self.procs[proc].kernel;
            if kernel != NONE && self.kernel_pause(kernel, start) {
                return;
            }
            self.charge(proc);
            let p = &mut self.procs[proc];
            p.until += start.since(p.charged_to);
            p.charged_to = start;
            p.exec_from = start;
            match (self.procs[proc].run, self.child_proc(self.procs[proc].unit)) {
                (Run::Unit(_), Some(child)) => proc = child,
                _ => return,
            }
        }
    }

    /// Charges what runs on the processor for its time up to now.
    #[inline]
    pub(crate) fn charge(&mut self, proc: usize) {
        let now = self.now;
        let vcpus = self.vcpus.len();
        let p = &mut self.procs[proc];
        let from = p.charged_to;
        if !p.powered || now <= from {
            return;
        }
        let ran = now.since(from);
        let executed = now.since(from.max(p.exec_from));
        p.charged_to = now;
        p.overhead += ran - executed;
        let id = match p.run {
            Run::Idle => {
                p.idle += executed;
                return;
            }
            Run::IdleFor(id) => {
                p.idle += executed;
                if (p.unit as usize) < vcpus {
                    self.vcpus[p.unit as usize].idled_away += ran;
                }
                id
            }
            Run::Unit(id) => {
                p.busy += executed;
                self.units[p.unit as usize].charged += ran;
                if let Some(task) = (p.unit as usize).checked_sub(vcpus) {
                    let task = &mut self.tasks[task];
                    task.executed += executed;
                    if !task.started && !executed.is_zero() {
                        task.started = true;
                        let first = from.max(p.exec_from);
                        task.jobs.start_latency.record(first.since(task.current.release));
                    }
                    if task.remaining != Duration::MAX {
                        task.remaining = task.remaining.saturating_sub(executed);
                    }
                }
                id
            }
        };
        let (sched, cpu) = (p.sched as usize, p.cpu);
        self.scheds[sched].policy.charge(now, cpu, id, ran);
        self.touch_sched(sched);
        if T::ENABLED {
            self.trace_budgets(sched);
        }
    }

    // ---- what comes next ----------------------------------------------------------------------------

    #[inline]
    pub(crate) fn touch_sched(&mut self, sched: usize) {
        if !self.scheds[sched].touched {
            self.scheds[sched].touched = true;
            self.touched_scheds.push(sched as u32);
        }
    }

    #[inline]
    pub(crate) fn touch_proc(&mut self, proc: usize) {
        if !self.procs[proc].touched {
            self.procs[proc].touched = true;
            self.touched_procs.push(proc as u32);
        }
    }

    /// Brings the event trees up to date and checks what was touched.
    fn refresh_touched(&mut self) {
        while let Some(proc) = self.touched_procs.pop() {
            let proc = proc as usize;
            self.procs[proc].touched = false;
            let at = self.next_event(proc);
            self.proc_events.set(proc, at);
        }
        while let Some(sched) = self.touched_scheds.pop() {
            let sched = sched as usize;
            self.scheds[sched].touched = false;
            // Already over when it was set (CBS, exhausted after its deadline): it runs at once.
            let at = self.scheds[sched].policy.next_timer().at.max(self.now);
            self.timers.set(sched, at);
            self.check_work_conservation(sched);
        }
    }

    /// The earliest end of a slice or job on this physical processor and everything it executes.
    fn next_event(&self, root: usize) -> Instant {
        let mut proc = root;
        let mut next = if self.procs[root].resched { self.procs[root].exec_from } else { Instant::NEVER };
        loop {
            let p = &self.procs[proc];
            if p.kernel != NONE
                && let Some(until) = self.kernel_until(p.kernel)
            {
                return next.min(until);
            }
            next = next.min(p.until.max(p.exec_from));
            let Run::Unit(_) = p.run else { return next };
            match self.child_proc(p.unit) {
                Some(child) => proc = child,
                None => return next.min(self.finish_of(proc, p.unit as usize - self.vcpus.len())),
            }
        }
    }

    // ---- tracing ------------------------------------------------------------------------------------

    pub(crate) fn emit(&mut self, event: TraceEvent) {
        self.trace.event(self.now, event);
    }

    /// Emits what was waiting for its time to come.
    pub(crate) fn flush_trace(&mut self, until: Instant) {
        self.trace_later.sort_by_key(|(at, _)| *at);
        let due = self.trace_later.partition_point(|(at, _)| *at <= until);
        for (at, event) in self.trace_later.drain(..due) {
            self.trace.event(at, event);
        }
    }

    fn occupant(&self, proc: usize) -> Occupant {
        let p = &self.procs[proc];
        match p.run {
            Run::Idle => Occupant::Idle,
            Run::IdleFor(_) => Occupant::IdleFor(self.entity(p.unit)),
            Run::Unit(_) => Occupant::Unit(self.entity(p.unit)),
        }
    }

    /// The guest goes on where its kernel interrupted it.
    pub(crate) fn trace_guest(&mut self, proc: usize) {
        let vcpu = punctual_model::index::VcpuIx(proc - self.physical);
        self.emit(TraceEvent::Vcpu { vcpu, occupant: self.occupant(proc) });
    }

    fn trace_decision(&mut self, proc: usize, changed: bool, start: Instant) {
        let occupant = self.occupant(proc);
        if let Some(vcpu) = proc.checked_sub(self.physical) {
            if changed {
                self.emit(TraceEvent::Vcpu { vcpu: punctual_model::index::VcpuIx(vcpu), occupant });
            }
        } else if start > self.now {
            self.emit(TraceEvent::Processor { processor: proc, occupant: Occupant::Overhead });
            self.trace_later.push((start, TraceEvent::Processor { processor: proc, occupant }));
        } else if changed {
            self.emit(TraceEvent::Processor { processor: proc, occupant });
        }
    }

    fn trace_budgets(&mut self, sched: usize) {
        for slot in 0..self.scheds[sched].units.len() {
            let unit = self.scheds[sched].units[slot];
            let left = self.scheds[sched].policy.account(self.units[unit as usize].id).left;
            if left != self.traced_budgets[unit as usize] {
                self.traced_budgets[unit as usize] = left;
                if let Some(left) = left {
                    self.emit(TraceEvent::Budget { unit: self.entity(unit), left });
                }
            }
        }
    }
}

/// Removes and returns the entry that comes before all others.
#[inline]
fn take_extreme(pending: &mut Vec<u32>, before: impl Fn(u32, u32) -> bool) -> Option<usize> {
    let mut best = 0;
    for i in 1..pending.len() {
        if before(pending[i], pending[best]) {
            best = i;
        }
    }
    (!pending.is_empty()).then(|| pending.swap_remove(best) as usize)
}
