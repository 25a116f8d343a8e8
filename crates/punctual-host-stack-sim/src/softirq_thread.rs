//! Softirqs in threads, and the lock that they run under.

use punctual_host_stack::lock::Taken;
use punctual_host_stack::softnet::{After, Softirq};
use punctual_host_stack::{Priority, SoftirqRest, ThreadId, Who};
use punctual_model::results::HostPart;
use punctual_sched::Instant;

use crate::machine::Machine;
use crate::packet::Sent;
use crate::thread::{Phase, State, Step, ThreadSoftirq};
use crate::watch::{Event, Watch};

impl<W: Watch> Machine<'_, W> {
    /// The thread runs actions on `list`, under `lock` if there is one.
    pub(crate) fn begin_softirq(&mut self, thread: ThreadId, list: usize, lock: Option<usize>) {
        let lock = lock.filter(|_| self.stack.method.has_softirq_lock());
        let run = Softirq::begin(Instant::from_ns(self.now));
        self.threads[thread.index()].softirq =
            Some(ThreadSoftirq { list, lock, phase: Phase::NeedsLock, run });
    }

    pub(crate) fn softirq_goes_on(&mut self, thread: ThreadId) {
        let one = &self.threads[thread.index()];
        let (Some(softirq), who, priority) = (one.softirq, one.who, one.priority()) else { return };
        if softirq.phase == Phase::NeedsLock {
            let taken = softirq.lock.map(|lock| (lock, self.locks[lock].take(thread, priority)));
            match taken {
                Some((lock, Taken::Waits { holder })) => {
                    self.threads[thread.index()].state = State::Blocked;
                    let other = self.threads[holder.index()].who;
                    self.observe(Event::WaitsForLock { thread: who, holder: other });
                    let inherited = self.locks[lock].inherited();
                    return self.inherit(holder, inherited);
                }
                Some((_, Taken::Held)) => self.observe(Event::Locks { thread: who }),
                None => {}
            }
            self.softirq_phase(thread, Phase::Runs);
        }
        if softirq.lock.is_some() && self.is_done(softirq.list) {
            // Another thread has emptied the list.
            return self.action_over(thread, softirq);
        }
        match self.action_step(softirq.list) {
            Some(cost) => self.begin(thread, Step::Softirq, cost, 0),
            None => self.action_over(thread, softirq),
        }
    }

    fn softirq_phase(&mut self, thread: ThreadId, phase: Phase) {
        if let Some(softirq) = &mut self.threads[thread.index()].softirq {
            softirq.phase = phase;
        }
    }

    /// The thread's action is over: it releases the lock.
    fn action_over(&mut self, thread: ThreadId, mut softirq: ThreadSoftirq) {
        let cpu = self.threads[thread.index()].cpu;
        let pending = self.lists[softirq.list].is_pending();
        if !self.stack.method.has_irq_threads() {
            let now = Instant::from_ns(self.now);
            let after = softirq.run.after(now, pending, self.cpus[cpu].must_schedule);
            if after == After::Again {
                self.threads[thread.index()].softirq = Some(softirq);
                return;
            }
        }
        let goes_on = pending
            && self.stack.softirq_rest == SoftirqRest::Thread
            && softirq.list < 2 * self.cpus.len()
            && softirq.lock.is_some();
        if goes_on && self.steals(thread, softirq.lock) {
            return;
        }
        softirq.phase = Phase::NeedsLock;
        self.threads[thread.index()].softirq = goes_on.then_some(softirq);
        if let Some(lock) = softirq.lock {
            let who = self.threads[thread.index()].who;
            self.observe(Event::Unlocks { thread: who });
            let next = self.locks[lock].release();
            self.inherit(thread, Priority::FAIR);
            if let Some(next) = next {
                self.lock_granted(lock, next);
            }
        }
        let list_is_the_processors = softirq.list < 2 * self.cpus.len();
        if pending && !goes_on && list_is_the_processors && self.ksoftirqd[softirq.list / 2] != thread {
            self.wake(self.ksoftirqd[softirq.list / 2]);
        }
    }

    /// Does a thread that releases the lock take it again before its first waiter (`rt_mutex`: a more urgent
    /// thread steals it, and so does a fair one from a fair one)?
    fn steals(&self, thread: ThreadId, lock: Option<usize>) -> bool {
        let own = self.threads[thread.index()].own;
        lock.is_some_and(|lock| {
            let waiter = self.locks[lock].inherited();
            own > waiter || waiter.is_fair()
        })
    }

    fn lock_granted(&mut self, lock: usize, thread: ThreadId) {
        let who = self.threads[thread.index()].who;
        self.softirq_phase(thread, Phase::Runs);
        self.observe(Event::Locks { thread: who });
        self.stamp_lock_wait(who);
        let inherited = self.locks[lock].inherited();
        self.threads[thread.index()].inherited = inherited;
        self.enqueue(thread);
    }

    /// Stamps the requests that the thread serves: they waited for the lock with it.
    fn stamp_lock_wait(&mut self, who: Who) {
        match who {
            Who::Irq(card, cpu) | Who::Napi(card, cpu) => {
                let queue = self.queues.iter().position(|queue| (queue.card, queue.cpu) == (card, cpu));
                if let Some(queue) = queue {
                    self.stamp_ring(queue, HostPart::LockWait);
                }
            }
            Who::Vnic(instance) => {
                for backlog in 0..self.backlogs.len() {
                    for at in 0..self.backlogs[backlog].len() {
                        if let Sent::Answer { server, request } = self.backlogs[backlog][at]
                            && server == instance
                        {
                            self.stamp(request, HostPart::SendLockWait);
                        }
                    }
                }
            }
            Who::Ksoftirqd(_) | Who::Kworker(_) | Who::Vcpu(_) | Who::Process(_) => {}
        }
    }
}
