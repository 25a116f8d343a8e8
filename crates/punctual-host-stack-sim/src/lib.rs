//! A Linux host with its network stack: cards, interrupts, softirqs, threads and guests as one event machine.
//!
//! The decisions (poll lists, softirq limits, the softirq lock, run queues) are
//! [`punctual_host_stack`]; here is the mechanism around them. `docs/host-stack.md` has the rules.
//!
//! It is a machine of its own beside that of pools: a softirq borrows the context of whichever thread
//! or interrupt is there, takes a lock whose holder inherits priorities, and a packet passes a dozen of such
//! steps in a few microseconds. The scheduling interface of policies knows neither.
//!
//! - `build`: the machine of a host.
//! - `cpu`: processors: contexts, accounting, which thread runs where.
//! - `card`: receive queues, arrivals, interrupts.
//! - `softirq`: actions, whoever runs them.
//! - `threads`, `guest`: what threads do: IRQ, NAPI, ksoftirqd, vNIC, processes; vCPUs.
//! - `request`: where the time of each request went.

#![forbid(unsafe_code)]

mod build;
mod card;
mod cpu;
mod guest;
mod request;
mod results;
mod softirq;
mod threads;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use punctual_host_stack::ThreadId;
use punctual_host_stack::description::{HostStack, Path, StackCosts};
use punctual_host_stack::lock::PiLock;
use punctual_host_stack::softnet::{List, PollList};
use punctual_jobs::{mix, uniform_ns};
use punctual_model::results::HostPart;
use punctual_model::trace::{TraceEvent, TraceSink};
use punctual_model::{Host, Results};
use punctual_sched::{Duration, Instant};

use card::{Queue, Stream};
use cpu::Cpu;
use guest::Guest;
use request::{OpenCall, Request, Times};
use softirq::Action;
use threads::Thread;

/// What happens, for whoever watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The card's queue interrupts the processor.
    Interrupt {
        /// The card's number.
        card: usize,
        /// The processor.
        cpu: usize,
    },
    /// The processor runs the thread; `None`: nothing.
    Runs {
        /// The processor.
        cpu: usize,
        /// The thread.
        thread: Option<Who>,
    },
    /// The thread becomes ready.
    Wakes {
        /// The thread.
        thread: Who,
    },
    /// The thread waits for the softirq lock.
    WaitsForLock {
        /// The thread.
        thread: Who,
        /// Who holds it, and has at least the waiting thread's priority now.
        holder: Who,
    },
    /// The thread holds the softirq lock.
    Locks {
        /// The thread.
        thread: Who,
    },
    /// The thread lets the softirq lock go.
    Unlocks {
        /// The thread.
        thread: Who,
    },
    /// A queue of the card was polled.
    Polled {
        /// The card's number.
        card: usize,
        /// Frames taken.
        frames: u32,
    },
    /// A request has spent this time on a part of its way.
    Spent {
        /// The server's number, counts included.
        server: usize,
        /// The request's number among those of this server, from 1.
        request: u64,
        /// The part.
        part: HostPart,
        /// When it began, in ns after the start.
        began_ns: u64,
        /// When it ended.
        ended_ns: u64,
    },
    /// An answer leaves the host.
    Answered {
        /// The server's number, counts included.
        server: usize,
    },
}

pub use punctual_host_stack::description::Who;

/// An invariant of the machine was violated: what, when, by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Is told what happens in a host's network stack, in order.
pub trait Watch {
    /// `event` happens at `now_ns` after the start.
    fn event(&mut self, now_ns: u64, event: Event);
}

impl Watch for () {
    fn event(&mut self, _: u64, _: Event) {}
}

impl<F: FnMut(u64, Event)> Watch for F {
    fn event(&mut self, now_ns: u64, event: Event) {
        self(now_ns, event);
    }
}

/// Tells a trace which thread runs where, and where each request is.
struct StackTracer<'t, T> {
    trace: &'t mut T,
    end_ns: u64,
}

impl<T: TraceSink> Watch for StackTracer<'_, T> {
    fn event(&mut self, now_ns: u64, event: Event) {
        let event = match event {
            Event::Runs { cpu, thread } => TraceEvent::HostThread { processor: cpu, thread },
            Event::Spent { server, request, part, began_ns, ended_ns } => TraceEvent::RequestPart {
                server,
                request,
                part,
                began: Instant::from_ns(began_ns),
                ended: Instant::from_ns(ended_ns.min(self.end_ns)),
            },
            _ => return,
        };
        self.trace.event(Instant::from_ns(now_ns), event);
    }
}

/// Simulates a host with a network stack and tells `trace` what happens.
///
/// # Errors
/// When an invariant breaks.
pub fn simulate_stack_traced<T: TraceSink>(
    host: &Host,
    stack: &HostStack,
    trace: &mut T,
) -> Result<Results, Violation> {
    simulate_stack(host, stack, StackTracer { trace, end_ns: host.duration.as_ns() })
}

/// Simulates a host with a network stack and tells `watch` what happens.
///
/// # Errors
/// When an invariant breaks.
pub fn simulate_stack<W: Watch>(host: &Host, stack: &HostStack, watch: W) -> Result<Results, Violation> {
    let mut machine = Machine::new(host, stack, watch);
    machine.run()?;
    machine.results()
}

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timed {
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
enum Use {
    Softirq,
    Process,
    Send,
    GuestInterrupt,
    GuestStack,
}

impl Use {
    const COUNT: usize = Use::GuestStack as usize + 1;
}

/// Index of a processor's poll list.
fn list_of(cpu: usize, list: List) -> usize {
    2 * cpu + list.index()
}

/// What a packet is for.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A request: index into the requests.
    Request(u32),
    /// Some frames of a stream, merged to one packet (GRO).
    Stream { frames: u32 },
}

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
struct Packet {
    server: usize,
    bytes: u32,
    load: Load,
}

/// A packet on its way out.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Answer { server: usize, request: u32 },
    Ack { server: usize },
}

/// One of a server's instances.
struct Instance {
    /// Index into the host's servers.
    server: usize,
    path: Path,
    queue: usize,
    /// vCPU thread or process.
    main: ThreadId,
    vnic: Option<ThreadId>,
    /// Packets that wait in the VM's interface for the vNIC thread.
    tap: VecDeque<Packet>,
    /// What the vNIC thread is to send.
    outgoing: VecDeque<Sent>,
    /// Packets in the host's socket of a process, or of an outsourced server.
    socket: VecDeque<Packet>,
    guest: Guest,
    stream: Option<usize>,
    /// Bytes copied for it.
    copied: u64,
    seed: u64,
    sent: u64,
    answered: u64,
    /// Number of the last request whose answer it handed to the host's card, or to a backlog.
    last_handed: u64,
    /// Answers on their way from there: numbers and backlogs, in the order in which they were handed over.
    handed: VecDeque<(u64, usize)>,
    bytes: u64,
}

/// The machine.
struct Machine<'h, W> {
    host: &'h Host,
    stack: &'h HostStack,
    /// Costs of the host's own steps; a guest's are those of the host file.
    costs: StackCosts,
    watch: W,
    now: u64,
    end: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Timed)>>,
    sequence: u64,
    events: u64,
    cpus: Vec<Cpu>,
    dirty: Vec<usize>,
    threads: Vec<Thread>,
    ksoftirqd: Vec<ThreadId>,
    /// The kworker of each processor, where one injects interrupts, and the VMs that it is to interrupt.
    kworkers: Vec<(ThreadId, VecDeque<usize>)>,
    /// Poll lists with what serves them: two for each processor, then those of NAPI and vNIC threads.
    lists: Vec<PollList>,
    actions: Vec<Action>,
    /// A lock for each list of a processor.
    locks: Vec<PiLock>,
    queues: Vec<Queue>,
    streams: Vec<Stream>,
    /// Packets that were handed to a processor's, or a vNIC thread's, backlog.
    backlogs: Vec<VecDeque<Sent>>,
    instances: Vec<Instance>,
    requests: Vec<Request>,
    free: Vec<u32>,
    calls: Vec<OpenCall>,
    free_calls: Vec<u32>,
    times: Vec<Times>,
    /// Bytes copied by everybody.
    copied: u64,
    /// By instance and step: what others had copied when it was last used.
    marks: Vec<u64>,
    draws: u64,
    seed: u64,
    violation: Option<String>,
}

impl<W: Watch> Machine<'_, W> {
    fn at(&mut self, time: u64, what: Timed) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, what)));
    }

    fn tell(&mut self, event: Event) {
        self.watch.event(self.now, event);
    }

    fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} ns: {}", self.now, what()));
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
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

    fn random(&mut self, most: u64) -> u64 {
        self.draws += 1;
        uniform_ns(most, mix(self.seed, self.draws))
    }

    /// The cost of a step, varied.
    fn varied(&mut self, cost: Duration) -> u64 {
        let (cost, ppm) = (cost.as_ns(), u64::from(self.stack.costs.jitter_ppm));
        if ppm == 0 {
            return cost;
        }
        let most = cost * ppm / 1_000_000;
        cost - most + self.random(2 * most)
    }

    fn copy_cost(&self, bytes: u32) -> Duration {
        Duration::from_ns(self.stack.costs.copy_per_kib.as_ns() * u64::from(bytes) / 1024)
    }

    /// Counts a copy for the instance.
    fn copies(&mut self, instance: usize, bytes: u32) {
        self.copied += u64::from(bytes);
        self.instances[instance].copied += u64::from(bytes);
    }
}
