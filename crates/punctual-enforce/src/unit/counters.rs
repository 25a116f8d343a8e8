//! What other threads may read of a unit while it is under enforcement.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_model::results::Delivery;

use crate::driver::Order;
use punctual_linux::os::sched::Attributes;

/// What other threads may read of a unit at any time, without a lock.
#[derive(Debug, Default)]
pub struct UnitCounters {
    /// Budget left in ns; `u64::MAX` when the policy keeps none.
    pub left_ns: AtomicU64,
    /// Processor time so far.
    pub cpu_time_ns: AtomicU64,
    /// Exhaustions so far.
    pub exhaustions: AtomicU64,
    /// Replenishments so far.
    pub replenishments: AtomicU64,
    /// [`UnitCounters::GONE`], [`UnitCounters::PARKED`], [`UnitCounters::UNMANAGED`],
    /// [`UnitCounters::GIVEN_UP`], otherwise
    /// [`UnitCounters::FIRST_RANK`] and the rank.
    pub order: AtomicU64,
    /// Has it too many threads to be enforced? See [`super::THREADS_MAX`].
    pub is_crowd: AtomicBool,
    /// Is a thread of it outside its group, or is it given up? Then it gets no real-time priority.
    pub is_displaced: AtomicBool,
    /// The scheduling class that it has.
    pub given: GivenClass,
    /// Periods of its budget that passed, as of the last half second, like all below.
    pub periods: AtomicU64,
    /// See [`Delivery::delivered`].
    pub delivered: AtomicU64,
    /// See [`Delivery::longest_without_ns`].
    pub longest_without_ns: AtomicU64,
    /// 99 % of [`Delivery::wait`] were at most that.
    pub wait_p99_ns: AtomicU64,
    /// How many there were of these.
    pub waits: AtomicU64,
}

impl UnitCounters {
    /// [`UnitCounters::order`] of a unit that has ended or was released.
    pub const GONE: u64 = 0;
    /// [`UnitCounters::order`] of a parked unit.
    pub const PARKED: u64 = 1;
    /// [`UnitCounters::order`] of the most urgent unit; less urgent ones count up.
    pub const FIRST_RANK: u64 = 2;
    /// [`UnitCounters::order`] of a unit that plain Linux schedules.
    pub const UNMANAGED: u64 = u64::MAX;
    /// [`UnitCounters::order`] of a unit that could not be enforced any more. It is in the fair class.
    pub const GIVEN_UP: u64 = u64::MAX - 1;

    /// For a unit without a budget that is never parked.
    pub fn set_unmanaged(&self) {
        self.left_ns.store(u64::MAX, Ordering::Relaxed);
        self.order.store(Self::UNMANAGED, Ordering::Relaxed);
    }

    /// Publishes what it was delivered.
    pub fn set_delivery(&self, delivery: &Delivery) {
        self.periods.store(delivery.periods, Ordering::Relaxed);
        self.delivered.store(delivery.delivered, Ordering::Relaxed);
        self.longest_without_ns.store(delivery.longest_without_ns, Ordering::Relaxed);
        self.wait_p99_ns.store(delivery.wait.quantile_ppm(990_000).as_ns(), Ordering::Relaxed);
        self.waits.store(delivery.wait.count(), Ordering::Relaxed);
    }

    /// Publishes the order; `None` when the unit is gone.
    pub fn set_order(&self, order: Option<Order>) {
        let value = match order {
            None => Self::GONE,
            Some(Order::Parked) => Self::PARKED,
            Some(Order::Ranked(rank)) => Self::FIRST_RANK + u64::from(rank),
        };
        self.order.store(value, Ordering::Relaxed);
    }
}

/// The scheduling class that an enforcer gave the threads of a unit last. The watchdog compares it with the
/// one that they have.
#[derive(Debug, Default)]
pub struct GivenClass(AtomicU64);

/// A reading of [`GivenClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassReading(u64);

impl GivenClass {
    /// The code of `SCHED_IDLE`; a real-time priority is its own code, and 0 means that nothing is known.
    const IDLE: u64 = 100;
    /// The code of `SCHED_EXT`.
    const EXT: u64 = 101;

    /// The threads get, or may get meanwhile, another class.
    pub fn forget(&self) {
        self.set(0);
    }

    /// Every thread has this real-time priority now.
    pub fn set_fifo(&self, priority: u32) {
        debug_assert!((1..Self::IDLE).contains(&u64::from(priority)), "no real-time priority: {priority}");
        self.set(u64::from(priority));
    }

    /// Every thread has `SCHED_EXT` now.
    pub fn set_ext(&self) {
        self.set(Self::EXT);
    }

    /// Every thread has `SCHED_IDLE` now.
    pub fn set_idle(&self) {
        self.set(Self::IDLE);
    }

    /// With a number of its own for each change: two readings are equal only if nothing changed in between.
    fn set(&self, code: u64) {
        let changes = self.0.load(Ordering::SeqCst) >> 8;
        self.0.store((changes + 1) << 8 | code, Ordering::SeqCst);
    }

    /// What it is now.
    pub fn read(&self) -> ClassReading {
        ClassReading(self.0.load(Ordering::SeqCst))
    }
}

impl ClassReading {
    /// The class; `None` where it is not known.
    pub fn class(self) -> Option<Attributes> {
        match self.0 & 0xff {
            0 => None,
            GivenClass::IDLE => Some(Attributes::idle()),
            GivenClass::EXT => Some(Attributes::ext()),
            priority => Some(Attributes::fifo(priority as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_was_given_twice_is_another_reading() {
        let given = GivenClass::default();
        assert_eq!(given.read().class(), None);
        given.set_fifo(70);
        let first = given.read();
        assert_eq!(first.class(), Some(Attributes::fifo(70)));
        assert_eq!(first, given.read());
        given.set_idle();
        assert_eq!(given.read().class(), Some(Attributes::idle()));
        given.set_fifo(70);
        assert_ne!(first, given.read());
        given.forget();
        assert_eq!(given.read().class(), None);
    }
}
