//! What the host's threads do: IRQ and NAPI threads, ksoftirqd, vNIC threads, processes.

use punctual_host_stack::softnet::{DeviceId, List};
use punctual_host_stack::{ThreadId, Who};
use punctual_model::results::HostPart;

use crate::action::list_of;
use crate::machine::Machine;
use crate::queue::Queue;
use crate::request::Stamp;
use crate::thread::{State, Step};
use crate::watch::Watch;

impl<W: Watch> Machine<'_, W> {
    /// The thread begins a step.
    pub(crate) fn begin(&mut self, thread: ThreadId, step: Step, cost: u64, refill: u64) {
        let thread = &mut self.threads[thread.index()];
        thread.step = step;
        thread.left = cost + refill;
        thread.switched = std::mem::take(&mut thread.carried);
        thread.cost = cost + thread.switched;
        thread.refill = refill;
    }

    pub(crate) fn sleep(&mut self, thread: ThreadId) {
        self.threads[thread.index()].state = State::Sleeping;
    }

    /// The stamp of the step that the thread has ended.
    pub(crate) fn stamp_of(&self, thread: ThreadId, part: HostPart, wait: HostPart) -> Stamp {
        let thread = &self.threads[thread.index()];
        Stamp { cost: thread.cost, refill: thread.refill, part, wait }
    }

    /// The running thread has nothing under way: its next step, or it sleeps.
    pub(crate) fn advance(&mut self, thread: ThreadId) {
        if self.threads[thread.index()].softirq.is_some() {
            return self.softirq_goes_on(thread);
        }
        match self.threads[thread.index()].who {
            Who::Irq(..) => self.irq_thread(thread),
            Who::Napi(..) => self.napi_thread(thread),
            Who::Ksoftirqd(cpu) => self.ksoftirqd_thread(thread, cpu),
            Who::Kworker(cpu) => match self.kworkers[cpu].1.pop_front() {
                Some(instance) => self.begin(thread, Step::Inject(instance), 0, 0),
                None => self.sleep(thread),
            },
            Who::Vnic(instance) => self.vnic_thread(thread, instance),
            Who::Vcpu(instance) => self.vcpu_thread(thread, instance),
            Who::Process(instance) => self.process_thread(thread, instance),
        }
    }

    /// The thread's step is over.
    pub(crate) fn step_done(&mut self, thread: ThreadId) {
        let step = std::mem::replace(&mut self.threads[thread.index()].step, Step::None);
        match (step, self.threads[thread.index()].who) {
            (Step::None | Step::Softirq, _) => {}
            (Step::End, _) => self.threads[thread.index()].worked = false,
            (Step::Handler, _) => self.handler_done(thread),
            (Step::Inject(instance), _) => self.interrupt_guest(instance),
            (Step::VnicReceive(packet), _) => self.vnic_received(thread, packet),
            (Step::VnicSend(sent), Who::Vnic(instance)) => self.vnic_sent(thread, instance, sent),
            (Step::Process(packet), Who::Process(instance)) => self.processed(thread, instance, packet),
            (Step::Answer(request), who) => {
                let stamp = self.stamp_of(thread, HostPart::Send, HostPart::SendWait);
                self.stamp_step(request, stamp);
                self.handed_over(request, 0);
                self.answered(request);
                if let Who::Vcpu(_) = who {
                    let cost = self.varied(self.costs.vm_entry);
                    self.begin(thread, Step::Reenter, cost, 0);
                }
            }
            (step, Who::Vcpu(instance)) => self.guest_step_done(thread, instance, step),
            (step, who) => self.violated(|| format!("{who:?} has a step {step:?}")),
        }
    }

    fn queue_of(&self, thread: ThreadId) -> usize {
        let of = |queue: &Queue| [queue.irq_thread, queue.napi_thread].contains(&Some(thread));
        self.queues.iter().position(of).unwrap_or(0)
    }

    fn irq_thread(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        if std::mem::take(&mut self.queues[queue].handle) {
            let cost = self.varied(self.costs.irq_thread);
            self.begin(thread, Step::Handler, cost, 0);
        } else if self.threads[thread.index()].worked {
            let cost = self.varied(self.costs.irq_thread_end);
            self.begin(thread, Step::End, cost, 0);
        } else {
            self.sleep(thread);
        }
    }

    fn handler_done(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        let stamp = self.stamp_of(thread, HostPart::IrqThread, HostPart::IrqThreadWait);
        for at in 0..self.queues[queue].requests.len() {
            let request = self.queues[queue].requests[at].1;
            self.stamp_step(request, stamp);
        }
        self.threads[thread.index()].worked = true;
        let cpu = self.queues[queue].cpu;
        if let Some(napi) = self.queues[queue].napi_thread {
            let list = self.napi_list(queue);
            self.lists[list].schedule(DeviceId(queue as u32));
            return self.wake(napi);
        }
        let list = self.handler_list(self.queues[queue].priority);
        self.schedule_device(queue, cpu, list);
        let list = list_of(cpu, list);
        self.begin_softirq(thread, list, Some(list));
    }

    /// The list that the NAPI thread of a queue has for itself.
    fn napi_list(&self, queue: usize) -> usize {
        2 * self.cpus.len() + queue
    }

    fn napi_thread(&mut self, thread: ThreadId) {
        let queue = self.queue_of(thread);
        let list = self.napi_list(queue);
        if self.lists[list].is_pending() {
            let lock = list_of(self.threads[thread.index()].cpu, List::Common);
            self.begin_softirq(thread, list, Some(lock));
        } else {
            self.sleep(thread);
        }
    }

    fn ksoftirqd_thread(&mut self, thread: ThreadId, cpu: usize) {
        let pending = List::ALL.into_iter().map(|list| list_of(cpu, list));
        match pending.into_iter().find(|&list| self.lists[list].is_pending()) {
            Some(list) => self.begin_softirq(thread, list, Some(list)),
            None => self.sleep(thread),
        }
    }
}
