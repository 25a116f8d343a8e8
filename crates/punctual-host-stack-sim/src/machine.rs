//! The machine: its state, its events in the order of time, chance and copies.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use punctual_host_stack::lock::PiLock;
use punctual_host_stack::softnet::PollList;
use punctual_host_stack::{HostStack, StackCosts, ThreadId};
use punctual_jobs::{mix, uniform_ns};
use punctual_sched::Duration;

use crate::action::Action;
use crate::error::Violation;
use crate::instance::Instance;
use crate::packet::Sent;
use crate::processor::Cpu;
use crate::queue::{Queue, Stream};
use crate::request::{OpenCall, Request, Times};
use crate::thread::Thread;
use crate::watch::{Event, Watch};

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timed {
    /// The topmost step of a processor, or the slice of its thread, ends; void with another generation.
    Cpu(usize, u32),
    /// A queue interrupts; void with another generation.
    Interrupt(usize, u32),
    /// The client of a server sends, or its clients begin a call.
    Request(usize),
    /// The clients send the next requests of a call.
    CallGoesOn(u32),
    /// A request is in the card.
    Arrives(usize, u32),
}

/// Steps of a server whose data a cache may hold.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Softirq,
    Process,
    Send,
    GuestInterrupt,
    GuestStack,
}

impl Use {
    pub(crate) const COUNT: usize = Use::GuestStack as usize + 1;
}

/// The machine.
pub(crate) struct Machine<'h, W> {
    pub(crate) stack: &'h HostStack,
    /// Costs of the host's own steps; a guest's are those of the host file.
    pub(crate) costs: StackCosts,
    pub(crate) watch: W,
    pub(crate) now: u64,
    pub(crate) end: u64,
    pub(crate) heap: BinaryHeap<Reverse<(u64, u64, Timed)>>,
    pub(crate) sequence: u64,
    pub(crate) events: u64,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) dirty: Vec<usize>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) ksoftirqd: Vec<ThreadId>,
    /// The kworker of each processor, where one injects interrupts, and the VMs that it is to interrupt.
    pub(crate) kworkers: Vec<(ThreadId, VecDeque<usize>)>,
    /// Poll lists with what serves them: two for each processor, then those of NAPI and vNIC threads.
    pub(crate) lists: Vec<PollList>,
    pub(crate) actions: Vec<Action>,
    /// A lock for each list of a processor.
    pub(crate) locks: Vec<PiLock>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) streams: Vec<Stream>,
    /// Packets that were handed to a processor's, or a vNIC thread's, backlog.
    pub(crate) backlogs: Vec<VecDeque<Sent>>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) requests: Vec<Request>,
    pub(crate) free: Vec<u32>,
    pub(crate) calls: Vec<OpenCall>,
    pub(crate) free_calls: Vec<u32>,
    pub(crate) times: Vec<Times>,
    /// Bytes copied by everybody.
    pub(crate) copied: u64,
    /// By instance and step: what others had copied when it was last used.
    pub(crate) marks: Vec<u64>,
    pub(crate) draws: u64,
    pub(crate) seed: u64,
    pub(crate) violation: Option<String>,
}

impl<W: Watch> Machine<'_, W> {
    pub(crate) fn at(&mut self, time: u64, what: Timed) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, what)));
    }

    pub(crate) fn observe(&mut self, event: Event) {
        self.watch.event(self.now, event);
    }

    pub(crate) fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} ns: {}", self.now, what()));
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while let Some(Reverse((time, _, what))) = self.heap.pop() {
            if time > self.end {
                break;
            }
            debug_assert!(time >= self.now, "time advances");
            self.now = time;
            self.happens(what);
            while let Some(cpu) = self.dirty.pop() {
                self.cpus[cpu].dirty = false;
                self.update(cpu);
            }
            if let Some(what) = self.violation.take() {
                return Err(Violation(what));
            }
        }
        self.now = self.end;
        for cpu in 0..self.cpus.len() {
            self.account(cpu);
        }
        Ok(())
    }

    fn happens(&mut self, what: Timed) {
        match what {
            Timed::Cpu(cpu, generation) if self.cpus[cpu].generation == generation => {
                self.events += 1;
                self.touch(cpu);
                self.step_ends(cpu);
            }
            Timed::Interrupt(queue, generation) if self.queues[queue].generation == generation => {
                self.events += 1;
                self.interrupt(queue);
            }
            Timed::Cpu(..) | Timed::Interrupt(..) => {}
            Timed::Request(instance) => self.client_sends(instance),
            Timed::CallGoesOn(call) => self.call_goes_on(call),
            Timed::Arrives(queue, request) => self.request_arrives(queue, request),
        }
    }

    pub(crate) fn random(&mut self, most: u64) -> u64 {
        self.draws += 1;
        uniform_ns(most, mix(self.seed, self.draws))
    }

    /// The cost of a step, varied.
    pub(crate) fn varied(&mut self, cost: Duration) -> u64 {
        let (cost, ppm) = (cost.as_ns(), u64::from(self.stack.costs.jitter_ppm));
        if ppm == 0 {
            return cost;
        }
        let most = cost * ppm / 1_000_000;
        cost - most + self.random(2 * most)
    }

    pub(crate) fn copy_cost(&self, bytes: u32) -> Duration {
        Duration::from_ns(self.stack.costs.copy_per_kib.as_ns() * u64::from(bytes) / 1024)
    }
}
