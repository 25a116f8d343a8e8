//! The interface between a scheduling policy and whatever drives it.
//!
//! A policy decides which *unit* (a vCPU, or a task inside a guest) runs on which processor of one pool.
//! A *driver* (the simulator, a live enforcer, a test) owns the clock and the processors. The shape is
//! that of Xen's scheduler table (`xen/common/sched/private.h`: `do_schedule`, `wake`, `sleep`,
//! `insert_unit`, `remove_unit`, `adjust`).
//!
//! # The contract
//!
//! - `now` never goes back from one call to the next.
//! - Every processor picks once before time passes, so that budgets can idle away from the start.
//! - Before `pick`, `sleep`, `remove` and `adjust`, the driver has charged every unit concerned for all the
//!   time it ran until `now` ([`Policy::charge`]); before `on_timer` it has charged the processor named by
//!   [`Timer::charge`].
//! - After a call that fills `resched`, the driver calls `pick` on each of those processors at the same
//!   instant (a real machine: as soon as the interrupt arrives). It also calls `pick` at the latest at
//!   [`Slice::until`].
//! - `pick` for a processor ends what ran there before: the policy knows from its own last answer which
//!   unit that was. A unit never runs on two processors: `pick` never returns a unit that the policy last
//!   gave to another processor which has not picked again since.
//! - All calls but `insert` and `adjust` work without allocation once the units are inserted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use crate::cpuset::{CpuId, CpuSet};
use crate::driver::{Decision, DriverState};
use crate::time::{Duration, Instant};

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

/// What a user may set for a unit. Each policy reads what it documents and ignores the rest, so one host
/// file runs under every policy. `None` means the policy's default, or an error where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitParams {
    /// Processor time per period (a server's budget, SEDF's slice).
    pub budget: Option<Duration>,
    /// Replenishment period.
    pub period: Option<Duration>,
    /// Fixed priority; a smaller number is more urgent.
    pub priority: Option<u32>,
    /// Relative deadline, for deadline-driven policies whose driver does not set absolute deadlines.
    pub deadline: Option<Duration>,
    /// Proportional share.
    pub weight: Option<u32>,
    /// Upper limit in percent of one processor; 0 means none.
    pub cap_percent: Option<u32>,
    /// May the unit run on time that no other unit wants after its budget is used up?
    pub extratime: Option<bool>,
    /// Processors of the pool that the unit may run on; `None` means all.
    pub affinity: Option<CpuSet>,
    /// Is it a best-effort unit, below all others whatever the policy? Then of the parameters only the
    /// affinity counts. See [`crate::background`].
    pub best_effort: bool,
}

impl UnitParams {
    /// The name of `budget` in host files and errors.
    pub const BUDGET: &str = "budget";
    /// The name of `period`.
    pub const PERIOD: &str = "period";
    /// The name of `priority`.
    pub const PRIORITY: &str = "priority";
    /// The name of `deadline`.
    pub const DEADLINE: &str = "deadline";
    /// The name of `weight`.
    pub const WEIGHT: &str = "weight";
    /// The name of `cap_percent`.
    pub const CAP_PERCENT: &str = "cap_percent";
    /// The name of `extratime`.
    pub const EXTRATIME: &str = "extratime";
    /// The name of `affinity`.
    pub const AFFINITY: &str = "affinity";
    /// The name of `best_effort`.
    pub const BEST_EFFORT: &str = "best_effort";

    /// The affinity must leave at least one of the pool's `cpus` processors.
    ///
    /// # Errors
    /// [`ParamError::OutOfRange`] for `affinity`.
    pub fn check_affinity(&self, cpus: usize) -> Result<(), ParamError> {
        match &self.affinity {
            Some(set) if !(0..cpus).any(|cpu| set.contains(CpuId(cpu as u32))) => {
                Err(ParamError::OutOfRange {
                    field: UnitParams::AFFINITY,
                    expected: alloc::format!("at least one of the pool's {cpus} processors").into(),
                })
            }
            _ => Ok(()),
        }
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
    /// When [`Policy::on_timer`] must be called; [`Instant::NEVER`] if there is nothing to wait for.
    pub at: Instant,
    /// The processor whose running unit must be charged up to `at` first, if any.
    pub charge: Option<CpuId>,
}

impl Timer {
    /// No timer.
    pub const NEVER: Timer = Timer { at: Instant::NEVER, charge: None };
}

/// A unit's budget account, for metrics, checks and displays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Budget left now. `None` when the policy keeps no budget.
    pub left: Option<Duration>,
    /// The most the unit can hold.
    pub max: Option<Duration>,
    /// The unit may run though `left` is zero (extratime, best-effort policies).
    pub may_overrun: bool,
    /// Current absolute deadline, in deadline-driven policies.
    pub deadline: Option<Instant>,
    /// The only processor the unit can be picked on now, in partitioned policies; `None`: any it may run on.
    pub home: Option<CpuId>,
    /// How often the budget reached zero.
    pub exhaustions: u64,
    /// How often budget was added.
    pub replenishments: u64,
}

/// Why parameters of a unit were refused. `field` is the parameter's name as in [`UnitParams`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// The policy needs this parameter and has no default for it.
    Missing {
        /// The parameter's name.
        field: &'static str,
    },
    /// The value is outside what the policy accepts.
    OutOfRange {
        /// The parameter's name.
        field: &'static str,
        /// What was expected, as a phrase: "at most the period (10ms)".
        expected: Box<str>,
    },
}

impl ParamError {
    /// The parameter that the error is about.
    pub fn field(&self) -> &'static str {
        match self {
            ParamError::Missing { field } | ParamError::OutOfRange { field, .. } => field,
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::Missing { field } => write!(f, "`{field}` is missing and has no default"),
            ParamError::OutOfRange { field, expected } => write!(f, "`{field}` must be {expected}"),
        }
    }
}

impl core::error::Error for ParamError {}

/// A scheduling policy: see the module's contract.
pub trait Policy: Send {
    /// Adds a unit, asleep, at `now`.
    ///
    /// # Errors
    /// [`ParamError`] names the parameter; the policy is unchanged.
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError>;

    /// Removes a unit, wherever it is; its id may be given out again. If it was running, its processor is
    /// in `resched`.
    fn remove(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet);

    /// Changes a unit's parameters. When they take effect is the policy's rule (documented there).
    ///
    /// # Errors
    /// [`ParamError`] names the parameter; the unit keeps its old ones.
    fn adjust(
        &mut self,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError>;

    /// The unit got work. Waking a unit that is awake does nothing. Processors that should pick again
    /// (Xen: are tickled) are added to `resched`.
    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet);

    /// The unit has no more work. If it was running, its processor is added to `resched`.
    fn sleep(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet);

    /// As [`Policy::sleep`] of the unit that `cpu` runs, which is about to pick and so need not be asked to.
    fn sleep_before_pick(&mut self, now: Instant, unit: UnitId, cpu: CpuId, resched: &mut CpuSet) {
        let _ = cpu;
        self.sleep(now, unit, resched);
    }

    /// The unit's current work is due at `deadline` (absolute). The driver says so before `wake` and when
    /// queued work becomes current. Policies that do not order by such deadlines ignore it.
    fn set_deadline(&mut self, now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        let _ = (now, unit, deadline, resched);
    }

    /// `unit`, which the last `pick` on `cpu` returned, has run (or idled, [`Run::IdleFor`]) for `ran` up
    /// to `now`, not counting what was charged before.
    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration);

    /// Chooses what `cpu` does from `now` on. Other processors that should pick because of this choice
    /// (a preempted unit that may run elsewhere) are added to `resched`.
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice;

    /// When something changes by time alone (replenishment, accounting). By default never: only events and
    /// the ends of slices change anything.
    fn next_timer(&self) -> Timer {
        Timer::NEVER
    }

    /// Handles the entry that [`Policy::next_timer`] announced, exactly one; the driver calls it again
    /// while `next_timer().at <= now`. A late call (`now > at`) behaves as the policy's rules say for a
    /// late replenishment: its time stays `at`, nothing drifts. By default nothing happens.
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let _ = (now, resched);
    }

    /// For a driver with a [`DriverState`]: `cpu` decides. What the policy does by itself until `now` is done
    /// first; what ran is charged; `asleep`, which is what `cpu` runs and has no more work, sleeps; and `cpu`
    /// picks `decision`. What the policy does by itself at the very instant of the sleep comes after the
    /// sleep, as in the simulator. A clock that goes back stands still.
    fn drive_pick(
        &mut self,
        driver: &mut DriverState,
        now: Instant,
        cpu: CpuId,
        decision: &mut Decision,
        asleep: Option<UnitId>,
    ) {
        let now = now.max(driver.now);
        if driver.timer_at <= now {
            self.drive_timers(driver, now, asleep.is_none());
        }
        driver.now = now;
        if let Some((unit, ran)) = driver.processors[cpu.index()].take(now) {
            self.charge(now, cpu, unit, ran);
        }
        if let Some(unit) = asleep {
            self.sleep_before_pick(now, unit, cpu, &mut driver.resched);
            // It picks now, whoever asked for it.
            driver.resched.remove(cpu);
            driver.timer_at = self.next_timer().at;
            if driver.timer_at <= now {
                self.drive_timers(driver, now, true);
            }
        }
        let slice = self.pick(now, cpu, &mut driver.resched);
        driver.processors[cpu.index()].run = slice.run;
        driver.timer_at = self.next_timer().at;
        *decision = slice.into();
    }

    /// For a driver with a [`DriverState`]: [`Policy::wake`], after what the policy does by itself until
    /// `now`. A clock that goes back stands still.
    fn drive_wake(&mut self, driver: &mut DriverState, now: Instant, unit: UnitId) {
        let now = now.max(driver.now);
        if driver.timer_at <= now {
            self.drive_timers(driver, now, true);
        }
        driver.now = now;
        self.wake(now, unit, &mut driver.resched);
        driver.timer_at = self.next_timer().at;
    }

    /// For a driver with a [`DriverState`]: all that the policy does by itself until `until`, each thing at
    /// its own time; at `until` itself only if that `is_included`.
    #[inline(never)]
    fn drive_timers(&mut self, driver: &mut DriverState, until: Instant, is_included: bool) {
        while driver.is_due(until, is_included) {
            self.drive_timer(driver);
        }
    }

    /// For a driver with a [`DriverState`]: what the policy does by itself next, at its own time.
    #[inline(never)]
    fn drive_timer(&mut self, driver: &mut DriverState) {
        let now = driver.timer_at.max(driver.now);
        driver.now = now;
        if let Some(cpu) = self.next_timer().charge
            && let Some((unit, ran)) = driver.processors[cpu.index()].take(now)
        {
            self.charge(now, cpu, unit, ran);
        }
        self.on_timer(now, &mut driver.resched);
        driver.timer_at = self.next_timer().at;
    }

    /// Fills `out` with the units eligible on `cpu` (with budget or credit, runnable or not) from most to
    /// least urgent. A live enforcer maps the order to kernel priorities, and the kernel preempts by them at
    /// wake-ups: so a unit that sleeps stands where its wake-up would put it, as far as that is known.
    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>);

    /// The unit's account. By default that of a policy without budgets, deadlines and homes.
    fn account(&self, unit: UnitId) -> Account {
        let _ = unit;
        Account::default()
    }
}

/// Sorts units by a key of `key`. One copy of the sort for all policies: each that has its own makes the
/// library of a hypervisor 10 KB larger.
pub(crate) fn sort_by_key<K: Ord>(units: &mut [UnitId], key: impl Fn(UnitId) -> K) {
    sort(units, &|a, b| key(a).cmp(&key(b)));
}

fn sort(units: &mut [UnitId], order: &dyn Fn(UnitId, UnitId) -> Ordering) {
    units.sort_unstable_by(|a, b| order(*a, *b));
}
