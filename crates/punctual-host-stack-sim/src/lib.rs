//! A Linux host with its network stack: cards, interrupts, softirqs, threads and guests as one event machine.
//!
//! The decisions (poll lists, softirq limits, the softirq lock, run queues) are [`punctual_host_stack`]; this
//! crate is the mechanism around them. `docs/host-stack.md` has the rules.
//!
//! The machine of pools, `punctual-sim`, cannot run such a host: a softirq borrows the context of whichever
//! thread or interrupt is there, takes a lock whose holder inherits priorities, and a packet passes a dozen
//! of such steps in a few microseconds. The scheduling interface of policies has neither contexts nor locks.
//!
//! [`simulate`] runs the machine, [`simulate_watched`] tells a [`Watch`] what happens, [`simulate_traced`]
//! writes a trace.
//!
//! # Floors
//!
//! A module uses those of the floors below, never those above or beside.
//!
//! 1. What there is: `packet`, `queue` (receive queues, streams), `thread`, `processor`, `action` (of a
//!    softirq), `instance` (a server with its VM), `request`; [`Event`] and [`Watch`]; [`Violation`].
//! 2. `machine`: all of it together, and the loop over its events.
//! 3. What happens, a part of the machine in each module: `build`, `clients` (what is sent), `card`
//!    (arrivals, interrupts), `cpu` (contexts, accounting, scheduling), `softirq` (actions),
//!    `softirq_thread` (actions in threads, the lock), `threads` (IRQ and NAPI threads, ksoftirqd), `vnic`,
//!    `process`, `guest` (vCPUs), `cache`, `account` (where the time of a request went), `results`.

#![forbid(unsafe_code)]

mod account;
mod action;
mod build;
mod cache;
mod card;
mod clients;
mod cpu;
mod error;
mod guest;
mod instance;
mod machine;
mod packet;
mod process;
mod processor;
mod queue;
mod request;
mod results;
mod softirq;
mod softirq_thread;
mod thread;
mod threads;
mod vnic;
mod watch;

pub use error::Violation;
pub use watch::{Event, Watch};

use machine::Machine;
use punctual_host_stack::HostStack;
use punctual_model::Results;
use punctual_model::trace::{StackEvent, TraceSink};
use punctual_sched::Instant;

/// Simulates `stack` for its duration.
///
/// # Errors
/// An invariant breaks.
pub fn simulate(stack: &HostStack) -> Result<Results, Violation> {
    // Not generic: the machine is compiled once, with this crate's optimisation.
    simulate_watched(stack, ())
}

/// Simulates `stack` for its duration and tells `watch` what happens.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_watched<W: Watch>(stack: &HostStack, watch: W) -> Result<Results, Violation> {
    let mut machine = Machine::new(stack, watch);
    machine.run()?;
    machine.results()
}

/// Simulates `stack` for its duration and tells `trace` which thread runs where, and where requests are.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_traced<T: TraceSink<StackEvent>>(
    stack: &HostStack,
    trace: &mut T,
) -> Result<Results, Violation> {
    simulate_watched(stack, Tracer { trace, end_ns: stack.duration.as_ns() })
}

/// Hands what a trace shows to its sink.
struct Tracer<'t, T> {
    trace: &'t mut T,
    end_ns: u64,
}

impl<T: TraceSink<StackEvent>> Watch for Tracer<'_, T> {
    fn event(&mut self, now_ns: u64, event: Event) {
        let event = match event {
            Event::Runs { cpu, thread } => StackEvent::Thread { processor: cpu, thread },
            Event::Spent { server, request, part, began_ns, ended_ns } => StackEvent::Part {
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
