//! The machine of a host.

use std::collections::{BinaryHeap, VecDeque};

use punctual_host_stack::lock::PiLock;
use punctual_host_stack::softnet::PollList;
use punctual_host_stack::{HostStack, Injection, Load, Path, Priority, Server, ThreadId, Who};

use crate::action::Action;
use crate::instance::{Guest, Instance};
use crate::machine::{Machine, Timed, Use};
use crate::processor::Cpu;
use crate::queue::{Queue, Stream, spacing_ns};
use crate::request::Times;
use crate::thread::Thread;
use crate::watch::Watch;

/// Processors that threads and cards may use.
struct Processors<'h> {
    stack: &'h HostStack,
    all: Vec<usize>,
}

impl Processors<'_> {
    /// Those for something of this priority among `own`.
    fn for_priority(&self, priority: Priority, own: &[usize]) -> Vec<usize> {
        self.stack.processors_for(priority, own)
    }
}

impl<'h, W: Watch> Machine<'h, W> {
    pub(crate) fn new(stack: &'h HostStack, watch: W) -> Self {
        let processors = Processors { stack, all: (0..stack.processors).collect() };
        let mut machine = Machine {
            stack,
            costs: stack.host_costs(),
            watch,
            now: 0,
            end: stack.duration.as_ns(),
            heap: BinaryHeap::new(),
            sequence: 0,
            events: 0,
            cpus: Vec::new(),
            dirty: Vec::new(),
            threads: Vec::new(),
            ksoftirqd: Vec::new(),
            kworkers: Vec::new(),
            lists: Vec::new(),
            actions: Vec::new(),
            locks: Vec::new(),
            queues: Vec::new(),
            streams: Vec::new(),
            backlogs: Vec::new(),
            instances: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            times: stack.servers.iter().map(|_| Times::new()).collect(),
            copied: 0,
            marks: Vec::new(),
            draws: 0,
            seed: punctual_jobs::mix(stack.seed, 0),
            violation: None,
        };
        machine.add_queues(&processors);
        for cpu in 0..stack.processors {
            let thread = machine.thread(Who::Ksoftirqd(cpu), Priority::FAIR, vec![cpu]);
            machine.ksoftirqd.push(thread);
            if stack.injection == Injection::Kworker {
                let thread = machine.thread(Who::Kworker(cpu), Priority::FAIR, vec![cpu]);
                machine.kworkers.push((thread, VecDeque::new()));
            }
        }
        for (index, server) in stack.servers.iter().enumerate() {
            for _ in 0..server.count {
                machine.add_instance(index, server, &processors);
            }
        }
        machine.size_tables(stack.processors);
        machine.start();
        machine
    }

    fn thread(&mut self, who: Who, priority: Priority, allowed: Vec<usize>) -> ThreadId {
        self.threads.push(Thread::new(who, priority, allowed));
        ThreadId(self.threads.len() as u32 - 1)
    }

    fn add_queues(&mut self, processors: &Processors<'_>) {
        for (card, config) in self.stack.cards.iter().enumerate() {
            for cpu in processors.for_priority(config.priority, &config.processors) {
                let mut queue = Queue::new(card, cpu, config.priority);
                if self.stack.method.has_irq_threads() {
                    queue.irq_thread = Some(self.thread(Who::Irq(card, cpu), config.priority, vec![cpu]));
                }
                if self.stack.method.has_napi_threads() {
                    let allowed = processors.for_priority(config.priority, &processors.all);
                    queue.napi_thread = Some(self.thread(Who::Napi(card, cpu), config.priority, allowed));
                }
                self.queues.push(queue);
            }
        }
    }

    fn add_instance(&mut self, index: usize, server: &Server, processors: &Processors<'_>) {
        let number = self.instances.len();
        // Servers of a card take its queues in turn.
        let of_card = |queue: &usize| self.queues[*queue].card == server.card;
        let queues: Vec<usize> = (0..self.queues.len()).filter(of_card).collect();
        let queue = queues[number % queues.len()];
        let who = if server.path.is_vm() { Who::Vcpu(number) } else { Who::Process(number) };
        let allowed = processors.for_priority(server.priority, &processors.all);
        let main = self.thread(who, server.priority, allowed);
        let vnic = (server.path == Path::Virtio).then(|| {
            let allowed = processors.for_priority(server.vnic_priority, &processors.all);
            self.thread(Who::Vnic(number), server.vnic_priority, allowed)
        });
        self.instances.push(Instance {
            server: index,
            path: server.path,
            queue,
            main,
            vnic,
            tap: VecDeque::new(),
            outgoing: VecDeque::new(),
            socket: VecDeque::new(),
            guest: Guest::default(),
            stream: None,
            copied: 0,
            seed: punctual_jobs::task_seed(self.stack.seed, number),
            sent: 0,
            answered: 0,
            last_handed: 0,
            handed: VecDeque::new(),
            bytes: 0,
        });
    }

    fn size_tables(&mut self, processors: usize) {
        let (threads, devices) = (self.threads.len(), self.queues.len() + processors);
        self.cpus = (0..processors).map(|_| Cpu::new(threads)).collect();
        self.locks = (0..2 * processors).map(|_| PiLock::new(threads)).collect();
        let lists = 2 * processors + self.queues.len() + self.instances.len();
        self.lists = (0..lists).map(|_| PollList::new(devices, self.stack.jiffy)).collect();
        self.actions = (0..lists).map(|_| Action::new()).collect();
        self.backlogs = vec![VecDeque::new(); processors + self.instances.len()];
        self.marks = vec![0; self.instances.len() * Use::COUNT];
    }

    /// Clients begin.
    fn start(&mut self) {
        for number in 0..self.instances.len() {
            let server = &self.stack.servers[self.instances[number].server];
            match server.load {
                Load::Requests { gap_min, gap_max, .. } => {
                    let seed = self.instances[number].seed;
                    let first = punctual_jobs::cost_ns(seed, 0, gap_min.as_ns(), gap_max.as_ns());
                    self.at(server.start.as_ns() + first, Timed::Request(number));
                }
                Load::Stream { window } => {
                    let card = server.card;
                    let on_card = |other: &&Instance| {
                        let other = &self.stack.servers[other.server];
                        other.card == card && matches!(other.load, Load::Stream { .. })
                    };
                    let streams = self.instances.iter().filter(on_card).count() as u64;
                    let spacing = spacing_ns(self.stack.cards[card].bandwidth_bps, streams);
                    let queue = self.instances[number].queue;
                    let next = server.start.as_ns() + spacing * number as u64;
                    let stream = self.streams.len();
                    self.streams.push(Stream::new(number, queue, spacing, next, window));
                    self.instances[number].stream = Some(stream);
                    self.queues[queue].streams.push(stream);
                }
            }
        }
        for queue in 0..self.queues.len() {
            self.arm_interrupt(queue);
        }
    }
}
