//! Units, and what a policy answers: which unit a processor runs, and until when at most.

use crate::cpuset::CpuId;
use crate::time::Instant;

/// A unit of scheduling in one policy instance: a small dense index, reused after removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub u32);

impl UnitId {
    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a processor does during a slice, in the order of `enum punctual_run` of the C interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// No unit runs and none is charged.
    Idle,
    /// The unit runs.
    Unit(UnitId),
    /// No unit runs, yet this unit's budget idles away (periodic server): the driver charges it as if it ran.
    IdleFor(UnitId),
}

impl Run {
    /// The unit that is charged for the slice.
    #[inline]
    pub fn charged(self) -> Option<UnitId> {
        match self {
            Run::Unit(unit) | Run::IdleFor(unit) => Some(unit),
            Run::Idle => None,
        }
    }
}

/// A decision: what runs and until when at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// What the processor does.
    pub run: Run,
    /// The processor must `pick` again no later than this, provided it executes the slice without a pause.
    /// A driver that pauses the processor (a vCPU that is itself descheduled) moves it by the pause.
    /// Always later than the `now` of the `pick` that returned it.
    pub until: Instant,
}

/// The next time-driven change inside a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timer {
    /// When [`crate::Policy::on_timer`] must be called; [`Instant::NEVER`] if there is nothing to wait for.
    pub at: Instant,
    /// The processor whose running unit must be charged up to `at` first, if any.
    pub charge: Option<CpuId>,
}

impl Timer {
    /// No timer.
    pub const NEVER: Timer = Timer { at: Instant::NEVER, charge: None };
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
