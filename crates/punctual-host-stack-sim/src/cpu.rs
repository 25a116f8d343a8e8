//! Processors: the contexts on them, what each did, and which thread runs where.

use punctual_host_stack::run_queue::{SLICE, place, preempts};
use punctual_host_stack::{Priority, ThreadId};

use crate::machine::{Machine, Timed};
use crate::thread::{State, Step};
use crate::watch::{Event, Watch};

impl<W: Watch> Machine<'_, W> {
    /// Something about the processor changes now.
    pub(crate) fn touch(&mut self, cpu: usize) {
        self.account(cpu);
        if !self.cpus[cpu].dirty {
            self.cpus[cpu].dirty = true;
            self.dirty.push(cpu);
        }
    }

    /// Charges the time since the last account to the topmost context.
    pub(crate) fn account(&mut self, cpu: usize) {
        let now = self.now;
        let state = &mut self.cpus[cpu];
        let ran = now - state.since;
        state.since = now;
        if ran == 0 {
            return;
        }
        let left = if let Some((_, left)) = &mut state.hard {
            state.interrupts += ran;
            left
        } else if let Some(soft) = &mut state.soft {
            state.interrupts += ran;
            &mut soft.left
        } else if let Some(thread) = state.current {
            let thread = &mut self.threads[thread.index()];
            thread.ran += ran;
            thread.left_vm = false;
            if thread.priority().is_fair() {
                thread.vruntime += ran;
                state.slice_left = state.slice_left.saturating_sub(ran);
                state.ready.ran(thread.vruntime);
            }
            &mut thread.left
        } else {
            return;
        };
        state.busy += ran;
        match left.checked_sub(ran) {
            Some(rest) => *left = rest,
            None => self.violated(|| format!("processor {cpu} ran a step for too long")),
        }
    }

    /// The topmost step of the processor has ended, or its thread's slice.
    pub(crate) fn step_ends(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        if let Some((queue, 0)) = state.hard {
            state.hard = None;
            self.hard_irq_done(cpu, queue);
        } else if state.hard.is_some() {
        } else if let Some(soft) = &state.soft {
            if soft.left == 0 {
                self.softirq_step_done(cpu);
            }
        } else if let Some(thread) = state.current
            && self.threads[thread.index()].left > 0
            && state.slice_left == 0
        {
            state.must_schedule = true;
        }
    }

    /// Decides what the processor does from now on.
    pub(crate) fn update(&mut self, cpu: usize) {
        self.account(cpu);
        loop {
            let state = &mut self.cpus[cpu];
            if state.hard.is_some() {
                break;
            }
            if let Some(queue) = state.raised.pop_front() {
                if let Some(current) = self.cpus[cpu].current {
                    self.leave_vm(current);
                }
                let cost = self.varied(self.stack.costs.hard_irq);
                self.cpus[cpu].hard = Some((queue, cost));
                break;
            }
            if self.cpus[cpu].soft.is_some() || self.start_softirq(cpu) {
                break;
            }
            self.schedule(cpu);
            let Some(thread) = self.cpus[cpu].current else { break };
            let one = &self.threads[thread.index()];
            if one.left > 0 {
                break;
            }
            match one.step {
                Step::None => self.advance(thread),
                _ => self.step_done(thread),
            }
            if self.threads[thread.index()].state != State::Running {
                self.cpus[cpu].current = None;
            }
        }
        self.arm(cpu);
    }

    /// When the topmost context needs attention next.
    fn arm(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.generation += 1;
        let left = if let Some((_, left)) = state.hard {
            left
        } else if let Some(soft) = &state.soft {
            soft.left
        } else if let Some(thread) = state.current {
            let thread = &self.threads[thread.index()];
            let others = thread.priority().is_fair() && state.ready.first().is_some();
            if others { thread.left.min(state.slice_left.max(1)) } else { thread.left }
        } else {
            return;
        };
        let (time, what) = (self.now + left, Timed::Cpu(cpu, state.generation));
        self.at(time, what);
    }

    /// May threads preempt the one that runs here?
    fn is_preemptible(&self, thread: ThreadId) -> bool {
        self.stack.method.has_irq_threads()
            || (self.threads[thread.index()].softirq.is_none() && !self.in_batch(thread))
    }

    /// Gives the processor to the thread that should have it.
    fn schedule(&mut self, cpu: usize) {
        if let Some(current) = self.cpus[cpu].current {
            if !self.cpus[cpu].must_schedule || !self.is_preemptible(current) {
                return;
            }
            self.leave_vm(current);
            let thread = &mut self.threads[current.index()];
            thread.state = State::Ready;
            let (priority, vruntime) = (thread.priority(), thread.vruntime);
            self.cpus[cpu].current = None;
            self.cpus[cpu].ready.put(current, priority, vruntime, true);
        }
        self.cpus[cpu].must_schedule = false;
        self.pull(cpu);
        if let Some((thread, _)) = self.cpus[cpu].ready.first() {
            self.switch_to(cpu, thread);
            self.push(cpu);
        } else if self.cpus[cpu].last.take().is_some() {
            self.observe(Event::Runs { cpu, thread: None });
        }
    }

    /// An interrupt, or another thread, puts a vCPU out of its VM, which it must enter again.
    fn leave_vm(&mut self, thread: ThreadId) {
        let one = &self.threads[thread.index()];
        if one.is_in_vm() && !one.left_vm {
            let cost = self.varied(self.stack.costs.vm_exit + self.stack.costs.vm_entry);
            let one = &mut self.threads[thread.index()];
            one.delayed_by(cost);
            one.left_vm = true;
        }
    }

    fn switch_to(&mut self, cpu: usize, thread: ThreadId) {
        let other = self.cpus[cpu].last != Some(thread);
        let cost = if other { self.varied(self.stack.costs.switch) } else { 0 };
        let state = &mut self.cpus[cpu];
        debug_assert!(state.current.is_none(), "processor {cpu} runs a thread already");
        state.ready.remove(thread);
        (state.current, state.last) = (Some(thread), Some(thread));
        state.slice_left = SLICE.as_ns();
        state.switches += u64::from(other);
        let one = &mut self.threads[thread.index()];
        one.state = State::Running;
        one.cpu = cpu;
        one.delayed_by(cost);
        if other {
            let who = one.who;
            self.observe(Event::Runs { cpu, thread: Some(who) });
        }
    }

    fn may_run(&self, thread: ThreadId, cpu: usize) -> bool {
        let thread = &self.threads[thread.index()];
        thread.softirq.is_none() && thread.allowed.contains(&cpu)
    }

    /// Takes a more urgent real-time thread from another processor, or any when there is nothing to do here.
    fn pull(&mut self, cpu: usize) {
        let own = self.cpus[cpu].ready.first().map(|first| first.1);
        let mut best: Option<(Priority, usize, ThreadId)> = None;
        for from in (0..self.cpus.len()).filter(|&from| from != cpu) {
            for (thread, priority) in self.cpus[from].ready.iter() {
                let better = match (own, best) {
                    (_, Some((found, _, _))) => priority > found,
                    (Some(own), None) => priority > own,
                    (None, None) => true,
                };
                if better && self.may_run(thread, cpu) && self.waits_for_thread(from, priority) {
                    best = Some((priority, from, thread));
                }
                // The first of a queue that may run here is the most urgent one.
                if priority.is_fair() && better {
                    break;
                }
            }
        }
        if let Some((_, from, thread)) = best {
            self.move_thread(from, cpu, thread);
        }
    }

    /// Does a ready thread of the processor wait for another thread, not for an interrupt or softirq?
    fn waits_for_thread(&self, cpu: usize, priority: Priority) -> bool {
        let current = self.cpus[cpu].current;
        current.is_some_and(|current| self.threads[current.index()].priority() >= priority)
    }

    /// Finds another processor for a real-time thread that waits here.
    fn push(&mut self, cpu: usize) {
        let waiting = self.cpus[cpu].ready.first().filter(|first| !first.1.is_fair());
        let Some((thread, priority)) = waiting else { return };
        if !self.may_run(thread, cpu) {
            return;
        }
        let to = self.place(thread, priority).filter(|&to| to != cpu);
        if let Some(to) = to.filter(|&to| self.running(to).is_none_or(|running| running < priority)) {
            self.move_thread(cpu, to, thread);
            self.touch(to);
            self.cpus[to].must_schedule = true;
        }
    }

    fn move_thread(&mut self, from: usize, to: usize, thread: ThreadId) {
        self.cpus[from].ready.remove(thread);
        let (priority, vruntime) =
            (self.threads[thread.index()].priority(), self.threads[thread.index()].vruntime);
        let vruntime = self.cpus[to].ready.moved(&self.cpus[from].ready, vruntime);
        self.threads[thread.index()].vruntime = vruntime;
        self.threads[thread.index()].cpu = to;
        self.cpus[to].ready.put(thread, priority, vruntime, false);
    }

    /// The priority of what a processor runs, or is about to run, as the scheduler sees it: threads only.
    fn running(&self, cpu: usize) -> Option<Priority> {
        let state = &self.cpus[cpu];
        let current = state.current.map(|thread| self.threads[thread.index()].priority());
        current.max(state.ready.first().map(|first| first.1))
    }

    fn place(&self, thread: ThreadId, priority: Priority) -> Option<usize> {
        let one = &self.threads[thread.index()];
        let running = one.allowed.iter().map(|&cpu| (cpu, self.running(cpu)));
        place(priority, one.cpu, running)
    }

    /// The thread has something to do, if it slept.
    pub(crate) fn wake(&mut self, thread: ThreadId) {
        if self.threads[thread.index()].state != State::Sleeping {
            return;
        }
        let priority = self.threads[thread.index()].priority();
        let cpu = self.place(thread, priority).unwrap_or(self.threads[thread.index()].cpu);
        let one = &mut self.threads[thread.index()];
        let from = std::mem::replace(&mut one.cpu, cpu);
        let who = one.who;
        if priority.is_fair() {
            let vruntime = self.cpus[cpu].ready.moved(&self.cpus[from].ready, one.vruntime);
            self.threads[thread.index()].vruntime = self.cpus[cpu].ready.woken(vruntime);
        }
        self.observe(Event::Wakes { thread: who });
        self.enqueue(thread);
    }

    /// Puts the thread on the run queue of its processor, and says when that must schedule.
    pub(crate) fn enqueue(&mut self, thread: ThreadId) {
        let one = &mut self.threads[thread.index()];
        one.state = State::Ready;
        let (cpu, priority, vruntime) = (one.cpu, one.priority(), one.vruntime);
        self.touch(cpu);
        self.cpus[cpu].ready.put(thread, priority, vruntime, false);
        if let Some(current) = self.cpus[cpu].current {
            let current = &self.threads[current.index()];
            if preempts((priority, vruntime), (current.priority(), current.vruntime)) {
                self.cpus[cpu].must_schedule = true;
            }
        }
    }

    /// The thread inherits a priority, or loses one that it inherited.
    pub(crate) fn inherit(&mut self, thread: ThreadId, priority: Priority) {
        let one = &mut self.threads[thread.index()];
        one.inherited = priority;
        let cpu = one.cpu;
        match one.state {
            State::Ready => {
                self.touch(cpu);
                self.cpus[cpu].ready.remove(thread);
                self.enqueue(thread);
            }
            State::Running => {
                let own = one.priority();
                self.touch(cpu);
                if self.cpus[cpu].ready.first().is_some_and(|first| first.1 > own) {
                    self.cpus[cpu].must_schedule = true;
                }
            }
            State::Sleeping | State::Blocked => {}
        }
    }
}
