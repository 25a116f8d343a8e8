//! How a host handles interrupts of network cards.

use crate::softnet::List;
use crate::thread::Priority;

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
    pub fn list_of(self, handler: Priority, rtnet_prio: Priority) -> List {
        match self {
            Method::Partitioned if !handler.is_fair() && handler >= rtnet_prio => List::Urgent,
            _ => List::Common,
        }
    }
}

#[cfg(test)]
mod tests {
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
