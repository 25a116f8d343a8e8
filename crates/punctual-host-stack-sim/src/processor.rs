//! A processor with its contexts.

use std::collections::VecDeque;

use punctual_host_stack::ThreadId;
use punctual_host_stack::run_queue::RunQueue;
use punctual_host_stack::softnet::Softirq;

/// A softirq on return from an interrupt.
pub(crate) struct Soft {
    pub(crate) run: Softirq,
    pub(crate) left: u64,
}

/// A processor.
pub(crate) struct Cpu {
    /// Queues whose interrupt waits.
    pub(crate) raised: VecDeque<usize>,
    /// The hard IRQ under way: its queue and the time that it still needs.
    pub(crate) hard: Option<(usize, u64)>,
    pub(crate) soft: Option<Soft>,
    pub(crate) current: Option<ThreadId>,
    pub(crate) last: Option<ThreadId>,
    pub(crate) ready: RunQueue,
    pub(crate) slice_left: u64,
    pub(crate) must_schedule: bool,
    /// A hard IRQ has ended above threads: a softirq may begin.
    pub(crate) irq_returns: bool,
    pub(crate) since: u64,
    pub(crate) generation: u32,
    pub(crate) dirty: bool,
    pub(crate) busy: u64,
    pub(crate) interrupts: u64,
    pub(crate) switches: u64,
}

impl Cpu {
    pub(crate) fn new(threads: usize) -> Self {
        Cpu {
            raised: VecDeque::new(),
            hard: None,
            soft: None,
            current: None,
            last: None,
            ready: RunQueue::new(threads),
            slice_left: 0,
            must_schedule: false,
            irq_returns: false,
            since: 0,
            generation: 0,
            dirty: false,
            busy: 0,
            interrupts: 0,
            switches: 0,
        }
    }
}
