//! The receive side of a Linux host's network stack, as pure decisions: who serves which device, for how
//! long, under which lock, and which thread a processor runs.
//!
//! `docs/host-stack.md` has the rules in prose. Sources: O. F. Garcia Alvarado, *Research on real-time
//! network stacks of commodity hosted virtual machine environments*, University of Tsukuba 2019 (rt-stack),
//! chapters 3 to 5; Linux `net/core/dev.c` and `kernel/softirq.c`.
//!
//! - [`Method`]: how a host handles interrupts of network cards.
//! - [`softnet`]: a processor's poll lists (`softnet_data`, `net_rx_action`) and the limits of a softirq.
//! - [`lock`]: the softirq lock with priority inheritance.
//! - [`run_queue`]: which thread a processor runs: `SCHED_FIFO` above the fair class.
//!
//! None of them reads a clock, and none allocates per decision once its tables have their size.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bounds;
pub mod description;
pub mod lock;
pub mod run_queue;
pub mod softnet;

/// Index of a thread of the host, given by the driver of these rules: `0..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How urgent a thread is: `SCHED_FIFO` with a priority from 1 to 99, or 0 for the fair class. Greater is
/// more urgent, as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(pub u8);

impl Priority {
    /// The fair class.
    pub const FAIR: Priority = Priority(0);
    /// The most urgent `SCHED_FIFO` priority.
    pub const MAX: Priority = Priority(99);

    /// Is it of the fair class?
    pub const fn is_fair(self) -> bool {
        self.0 == 0
    }
}

/// How the host handles interrupts of network cards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// Hard IRQ, then softirq on return from the interrupt, above all threads (rt-stack s.3.2, Fig. 3-3).
    Vanilla,
    /// PREEMPT_RT: IRQ threads run the softirq under a lock of their processor (s.3.2, Fig. 3-4).
    Threaded,
    /// As [`Method::Threaded`], with processors that only urgent threads use (s.3.2, Fig. 3-5).
    Exclusive,
    /// As [`Method::Threaded`], with a poll list and a lock of their own for urgent IRQ threads (ch. 4).
    Partitioned,
    /// PREEMPT_RT with threaded NAPI: a thread polls each device, under the processor's softirq lock (Linux
    /// 5.12 and later, `napi_threaded_poll`).
    ThreadedNapi,
    /// As [`Method::ThreadedNapi`] without the softirq lock (Linux 6.18 with
    /// `CONFIG_PREEMPT_RT_NEEDS_BH_LOCK` off).
    ThreadedNapiUnlocked,
}

impl Method {
    /// All, in the order in which users see them.
    pub const ALL: [Method; 6] = [
        Method::Vanilla,
        Method::Threaded,
        Method::Exclusive,
        Method::Partitioned,
        Method::ThreadedNapi,
        Method::ThreadedNapiUnlocked,
    ];

    /// Its name in host files.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Vanilla => "vanilla",
            Method::Threaded => "threaded",
            Method::Exclusive => "exclusive",
            Method::Partitioned => "partitioned",
            Method::ThreadedNapi => "threaded-napi",
            Method::ThreadedNapiUnlocked => "threaded-napi-unlocked",
        }
    }

    /// Do IRQ threads exist, and are softirqs preemptible?
    pub const fn has_irq_threads(self) -> bool {
        !matches!(self, Method::Vanilla)
    }

    /// Does a thread of its own poll each device?
    pub const fn has_napi_threads(self) -> bool {
        matches!(self, Method::ThreadedNapi | Method::ThreadedNapiUnlocked)
    }

    /// Must a thread hold a lock to run the softirq?
    pub const fn has_softirq_lock(self) -> bool {
        !matches!(self, Method::Vanilla | Method::ThreadedNapiUnlocked)
    }

    /// The poll list on which an interrupt handler of this priority puts its device
    /// (`napi_schedule_irqoff`, rt-stack Fig. 4-5): priorities from `rtnet_prio` on use the urgent one.
    pub fn list_of(self, handler: Priority, rtnet_prio: Priority) -> softnet::List {
        match self {
            Method::Partitioned if !handler.is_fair() && handler >= rtnet_prio => softnet::List::Urgent,
            _ => softnet::List::Common,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::softnet::List;
    use super::*;

    #[test]
    fn only_the_partitioned_method_tells_urgent_handlers_apart() {
        for method in Method::ALL {
            let lists = [0, 46, 47, 50].map(|p| method.list_of(Priority(p), Priority(47)));
            let urgent = if method == Method::Partitioned { List::Urgent } else { List::Common };
            assert_eq!(lists, [List::Common, List::Common, urgent, urgent], "{}", method.name());
        }
    }

    #[test]
    fn a_fair_handler_is_never_urgent() {
        assert_eq!(Method::Partitioned.list_of(Priority::FAIR, Priority::FAIR), List::Common);
    }
}
