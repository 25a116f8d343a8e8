//! What other threads may read of a unit while it is under enforcement.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_model::results::Delivery;

use crate::driver::Order;

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
    /// [`UnitCounters::GONE`], [`UnitCounters::PARKED`], [`UnitCounters::UNMANAGED`], otherwise
    /// [`UnitCounters::FIRST_RANK`] and the rank.
    pub order: AtomicU64,
    /// Has it too many threads to be enforced? See [`super::THREADS_MAX`].
    pub is_crowd: AtomicBool,
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
