//! The interface between a scheduling policy and its driver.
//!
//! A policy decides which *unit* (a vCPU, or a task inside a guest) runs on which processor of one pool.
//! A *driver* (the simulator, a live enforcer, a hypervisor, a test) owns the clock and the processors. The
//! shape is that of Xen's scheduler table (`xen/common/sched/private.h`: `do_schedule`, `wake`, `sleep`,
//! `insert_unit`, `remove_unit`, `adjust`).
//!
//! # The contract
//!
//! - `now` never goes back from one call to the next.
//! - Every processor picks once before time passes, so that budgets can idle away from the start.
//! - Before `pick`, `sleep`, `remove` and `adjust`, the driver has charged every unit concerned for all the
//!   time it ran until `now` ([`Policy::charge`]), and of vCPUs that share a budget the one that runs; before
//!   `on_timer` it has charged the processor named by [`Timer::charge`], and calls it only if the timer is
//!   still due then.
//! - After a call that fills `resched`, the driver calls `pick` on each of those processors at the same
//!   instant (a real machine: as soon as the interrupt arrives). It also calls `pick` at the latest at
//!   [`Slice::until`].
//! - `pick` for a processor ends what ran there before: the policy knows from its own last answer which
//!   unit that was. A unit never runs on two processors: `pick` never returns a unit that the policy last
//!   gave to another processor which has not picked again since.
//! - All calls but `insert` and `adjust` work without allocation once the units are inserted.
//!
//! [`Driver`](crate::driver::Driver) does the driver's part. In debug builds a
//! [`Contract`](crate::contract::Contract) around each policy checks both sides.

use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Decision, Slice, Timer, UnitId};
use crate::driver_state::DriverState;
use crate::params::{ParamError, UnitParams};
use crate::time::{Duration, Instant};

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

/// The next replenishment of a unit, and those after it, where the policy can say them ahead of time:
/// nothing that the unit or another one runs changes them. So a scheduler that charges units itself can
/// carry them out without the policy, which learns of them later: by the charge of what each unit ran up to
/// the replenishment, and the timer at its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// When it is due.
    pub at: Instant,
    /// From one to the next.
    pub period: Duration,
    /// What the unit has after it, whatever it had before.
    pub budget: Duration,
    /// The unit's place among those with budget.
    pub urgency: Urgency,
    /// What happens to it if the unit has no work by then.
    pub asleep: Asleep,
}

/// What a unit is ranked by; the smaller is the more urgent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// This number, which no other unit of the policy has.
    Fixed(u64),
    /// Its next replenishment.
    Deadline,
}

/// What happens to a replenishment that is due while its unit has no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asleep {
    /// It takes place.
    Replenished,
    /// It takes place, and the budget is lost at once, as at every other sleep.
    Discarded,
    /// It takes place when the unit wakes up; the next is due at the end of the period that goes on then.
    Waits,
    /// It takes place when the unit wakes up, and a period begins then.
    Restarts,
}

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

    /// As [`Policy::sleep`] of the unit that `cpu` runs. `cpu` is about to pick, so it need not be added to
    /// `resched`.
    fn sleep_before_pick(&mut self, now: Instant, unit: UnitId, cpu: CpuId, resched: &mut CpuSet) {
        let _ = cpu;
        self.sleep(now, unit, resched);
    }

    /// The unit's current work is due at `deadline` (absolute). The driver calls this before `wake` and
    /// when queued work becomes current. Policies that do not order by such deadlines ignore it.
    fn set_deadline(&mut self, now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        let _ = (now, unit, deadline, resched);
    }

    /// `unit`, which the last `pick` on `cpu` returned, has run for `ran` up to `now`, or idled that long
    /// ([`IdleFor`](crate::Run::IdleFor)), not counting what was charged before.
    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration);

    /// Chooses what `cpu` does from `now` on. Other processors that should pick because of this choice
    /// (a preempted unit that may run elsewhere) are added to `resched`.
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice;

    /// Right after a `pick` on `cpu`, at the same instant: the unit that it returned yields the processor to
    /// `unit`, and waits at its place. Until the next `pick` there, `cpu` counts as urgent as the more urgent
    /// of the two. `None`, and nothing has changed: `unit` does not wait for `cpu`, or has no budget. By
    /// default no unit yields, and vCPUs of one VM take no [turns](crate::turns).
    ///
    /// KVM's directed yield (`yield_to`, Linux `kernel/sched/syscalls.c`) is the model.
    fn yield_to(&mut self, now: Instant, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> Option<Slice> {
        let _ = (now, cpu, unit, resched);
        None
    }

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

    /// For a driver with a [`DriverState`], in one call: handles the timers that are due, charges what ran on
    /// `cpu`, puts `asleep` to sleep, which `cpu` runs and which has no more work, and lets `cpu` pick its
    /// `decision`. As in the simulator, timers due at the very instant of the sleep come after it. A `now`
    /// before that of the last call counts as the latter.
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
            // It picks now, whatever asked for it.
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

    /// For a driver with a [`DriverState`]: handles the timers that are due, then [`Policy::wake`]. A `now`
    /// before that of the last call counts as the latter.
    fn drive_wake(&mut self, driver: &mut DriverState, now: Instant, unit: UnitId) {
        let now = now.max(driver.now);
        if driver.timer_at <= now {
            self.drive_timers(driver, now, true);
        }
        driver.now = now;
        self.wake(now, unit, &mut driver.resched);
        driver.timer_at = self.next_timer().at;
    }

    /// For a driver with a [`DriverState`]: handles the timers that are due until `until`, each at its own
    /// time; those due exactly then only if `until` `is_included`.
    #[inline(never)]
    fn drive_timers(&mut self, driver: &mut DriverState, until: Instant, is_included: bool) {
        while driver.is_due(until, is_included) {
            self.drive_timer(driver);
        }
    }

    /// For a driver with a [`DriverState`]: handles the next timer, at its own time or, overdue, now.
    #[inline(never)]
    fn drive_timer(&mut self, driver: &mut DriverState) {
        let now = driver.timer_at.max(driver.now);
        driver.now = now;
        if let Some(cpu) = self.next_timer().charge
            && let Some((unit, ran)) = driver.processors[cpu.index()].take(now)
        {
            self.charge(now, cpu, unit, ran);
        }
        // The charge may have moved it: a sporadic server's refill merges with a later one.
        if self.next_timer().at <= now {
            self.on_timer(now, &mut driver.resched);
        }
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

    /// The unit's replenishments, if they can be said ahead of time. By default they cannot.
    fn ahead(&self, unit: UnitId) -> Option<Ahead> {
        let _ = unit;
        None
    }
}
