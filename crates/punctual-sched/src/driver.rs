//! What a driver of real processors, such as a hypervisor, keeps beside a policy.
//!
//! [`Policy::drive_pick`], [`Policy::drive_wake`] and [`Policy::drive_timer`], which take it, do the driver's
//! part of the contract in one call through a pointer each: several calls cost such a driver more than the
//! decision itself.
//!
//! [`Policy::drive_pick`]: crate::policy::Policy::drive_pick
//! [`Policy::drive_wake`]: crate::policy::Policy::drive_wake
//! [`Policy::drive_timer`]: crate::policy::Policy::drive_timer

use alloc::vec::Vec;

use crate::cpuset::CpuSet;
use crate::policy::{Run, Slice, UnitId};
use crate::time::{Duration, Instant};

/// What a processor does, and until when a driver has charged that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// What its last pick gave it.
    pub run: Run,
    /// Until when that was charged.
    pub charged: Instant,
}

impl Running {
    /// Idle from the driver's origin on.
    pub const IDLE: Running = Running { run: Run::Idle, charged: Instant::ZERO };

    /// What ran and is not charged yet, if anything; it counts as charged from now on.
    #[inline]
    pub fn take(&mut self, now: Instant) -> Option<(UnitId, Duration)> {
        let ran = now.since(core::mem::replace(&mut self.charged, now));
        let unit = self.run.charged()?;
        (!ran.is_zero()).then_some((unit, ran))
    }
}

/// A [`Slice`] in numbers alone, as a C interface has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// 0: nothing; 1: `unit` runs; 2: nothing, and the budget of `unit` idles away.
    pub run: u32,
    /// See `run`.
    pub unit: u32,
    /// The processor must pick again then at the latest; all ones: never.
    pub until_ns: u64,
}

impl Decision {
    /// The processor does nothing until somebody asks it to pick.
    pub const IDLE: Decision = Decision { run: 0, unit: 0, until_ns: u64::MAX };

    /// The slice.
    #[inline]
    pub fn slice(&self) -> Slice {
        let run = match self.run {
            0 => Run::Idle,
            1 => Run::Unit(UnitId(self.unit)),
            _ => Run::IdleFor(UnitId(self.unit)),
        };
        Slice { run, until: Instant::from_ns(self.until_ns) }
    }
}

impl From<Slice> for Decision {
    #[inline]
    fn from(slice: Slice) -> Decision {
        let (run, unit) = match slice.run {
            Run::Idle => (0, 0),
            Run::Unit(unit) => (1, unit.0),
            Run::IdleFor(unit) => (2, unit.0),
        };
        Decision { run, unit, until_ns: slice.until.as_ns() }
    }
}

/// The time, the processors, and what the policy asked for.
#[derive(Clone, Debug)]
pub struct DriverState {
    /// When the last call was made.
    pub now: Instant,
    /// When the policy does something by itself, as of the last call.
    pub timer_at: Instant,
    /// What each processor does.
    pub processors: Vec<Running>,
    /// Processors that must pick.
    pub resched: CpuSet,
}

impl DriverState {
    /// `cpus` idle processors at the driver's origin, for a policy whose timer is due at `timer_at`.
    pub fn new(cpus: usize, timer_at: Instant) -> Self {
        DriverState {
            now: Instant::ZERO,
            timer_at,
            processors: alloc::vec![Running::IDLE; cpus],
            resched: CpuSet::new(cpus),
        }
    }

    /// Is the policy's timer due until then? At `until` itself only if that `is_included`, and never at an
    /// instant that never comes.
    #[inline]
    pub fn is_due(&self, until: Instant, is_included: bool) -> bool {
        self.timer_at < until || (is_included && self.timer_at == until && !until.is_never())
    }
}
