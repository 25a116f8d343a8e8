//! A scheduler in the kernel that runs the units of a pool: what it is told, and what it reports.
//!
//! A limit is an absolute amount of charged time: what a unit had been charged at the look, and what the
//! policy says is left of its budget. So it does not matter when the limit arrives, and the unit runs on
//! meanwhile.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use punctual_sched::{Account, Duration, Instant};
use punctual_scx::{Loaded, Mechanism, State, Table, UNITS_MAX};

use crate::clock::now;
use crate::driver::{Observation, Order};
use crate::unit::LiveUnit;

/// A limit that differs by less from the one that the kernel has is left: the clock of a unit that runs is
/// read at another instant than the one at which the kernel charges it.
const DIFFERENCE_MIN_NS: u64 = 5_000;

/// No limit: years.
const UNLIMITED_NS: u64 = u64::MAX / 4;

/// A scheduler in the kernel that has the units of a pool of one processor.
pub struct Kernel {
    pub(super) scheduler: Loaded,
    pub(super) decided: Decided,
    /// By unit, the id of its group.
    groups: Vec<Option<u64>>,
    /// When it was last asked whether units have ended.
    pub(super) asked: Instant,
}

/// What the kernel was told, and how much of what it charged the policy knows.
#[derive(Debug)]
pub struct Decided {
    table: Table,
    seen_ns: [u64; UNITS_MAX],
}

/// How long a unit with this account may run until its policy must know; `None` without end.
pub fn limit(account: Account) -> Option<Duration> {
    account.left.filter(|left| !(account.may_overrun && left.is_zero()))
}

impl Default for Decided {
    fn default() -> Decided {
        Decided { table: Table::default(), seen_ns: [0; UNITS_MAX] }
    }
}

impl Decided {
    /// What a unit ran since this was asked last, and whether it has work.
    pub fn observe(&mut self, state: &State, unit: usize) -> Observation {
        let now = state.units[unit];
        let seen = &mut self.seen_ns[unit];
        let ran = now.used_ns.saturating_sub(*seen);
        *seen = now.used_ns.max(*seen);
        Observation { ran: Duration::from_ns(ran), has_work: Some(now.runnable > 0) }
    }

    /// Takes by unit its order and what is left of its budget, `None` where it has no limit. Returns the
    /// table that the kernel is to have if that differs from the one that it has.
    pub fn table(
        &mut self,
        state: &State,
        orders: impl Iterator<Item = (usize, Order, Option<Duration>)>,
    ) -> Option<&Table> {
        let mut table = Table { order: Vec::with_capacity(UNITS_MAX), limits_ns: self.table.limits_ns };
        let mut ranked: Vec<(u16, u32)> = Vec::with_capacity(UNITS_MAX);
        for (unit, order, left) in orders.filter(|(unit, ..)| *unit < UNITS_MAX) {
            let left_ns = match order {
                Order::Parked => 0,
                Order::Ranked(rank) => {
                    ranked.push((rank, unit as u32));
                    left.map_or(UNLIMITED_NS, Duration::as_ns)
                }
            };
            let limit = self.seen_ns[unit].saturating_add(left_ns);
            let before = self.table.limits_ns[unit];
            // One that the kernel has parked goes on with the least that is left.
            let is_used_up = state.units[unit].used_ns >= before && left_ns > 0;
            if limit.abs_diff(before) > DIFFERENCE_MIN_NS || is_used_up {
                table.limits_ns[unit] = limit;
            }
        }
        ranked.sort_unstable();
        table.order.extend(ranked.iter().map(|(_, unit)| *unit));
        if table == self.table {
            return None;
        }
        self.table = table;
        Some(&self.table)
    }

    /// A unit that has the number from now on was charged this before.
    fn begin(&mut self, unit: usize, used_ns: u64) {
        if let Some(seen) = self.seen_ns.get_mut(unit) {
            *seen = used_ns;
            self.table.limits_ns[unit] = 0;
        }
    }
}

impl Kernel {
    /// Loads the scheduler for a pool with these processors. `tells_sleep`: the policy asks for work.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn load(processors: &[usize], tells_sleep: bool) -> Result<Kernel, punctual_scx::Error> {
        let scheduler = Loaded::load(processors.first().copied().unwrap_or(0), tells_sleep)?;
        Ok(Kernel { scheduler, decided: Decided::default(), groups: Vec::new(), asked: now() })
    }

    /// Readable when the scheduler has something to tell.
    pub(super) fn events(&self) -> io::Result<OwnedFd> {
        self.scheduler.as_fd().try_clone_to_owned()
    }

    /// Makes the threads of a unit its number's.
    pub(super) fn add(&mut self, number: usize, unit: &LiveUnit) -> io::Result<()> {
        if number >= UNITS_MAX {
            return Err(io::Error::other(format!("it has {UNITS_MAX} units")));
        }
        let group = std::fs::metadata(unit.group().directory())?.ino();
        let state = self.scheduler.read(now().as_ns())?;
        self.decided.begin(number, state.units[number].used_ns);
        self.groups.resize(self.groups.len().max(number + 1), None);
        self.groups[number] = Some(group);
        self.scheduler.add(number as u32, group)
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(group) = self.groups.get_mut(number).and_then(Option::take) {
            self.scheduler.remove(group);
        }
    }
}
