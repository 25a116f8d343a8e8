//! What a driver keeps of its processors: what runs there, and until when that is charged.

use alloc::vec::Vec;

use crate::cpuset::CpuSet;
use crate::decision::{Run, UnitId};
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
