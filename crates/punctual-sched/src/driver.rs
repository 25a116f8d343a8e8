//! A policy and the processors that it decides about, driven as the [contract](crate::policy) asks.
//!
//! A [`Driver`] knows what each processor does. It charges units before the calls that need it, refreshes the
//! timer and collects the processors that must pick. The owner of the clock calls it:
//!
//! - [`Driver::advance`] lets time pass and handles the timers that are due, each at its own time.
//!   [`Driver::pass`] lets time pass and leaves them overdue, as a late driver does.
//! - All other calls happen at [`Driver::now`].
//! - After each call, the processors that [`Driver::take_resched`] names pick, and a processor picks at the
//!   latest at the end of its slice. Every processor picks once before time passes.
//!
//! A hypervisor that cannot afford several calls through pointers per decision uses
//! [`Policy::drive_pick`] and [`Policy::drive_wake`], which do the same in one. The simulator and the live
//! enforcer call the policy themselves: a simulated vCPU pauses in the middle of a slice, and an enforcer
//! reconstructs what ran. In debug builds a [`Contract`](crate::contract::Contract) watches them.

use alloc::boxed::Box;

use crate::cpuset::CpuId;
use crate::decision::{Run, Slice, UnitId};
use crate::driver_state::DriverState;
use crate::params::{ParamError, UnitParams};
use crate::policy::Policy;
use crate::time::Instant;

/// A policy and its processors; see the module.
pub struct Driver<P: Policy + ?Sized = dyn Policy> {
    /// The policy.
    pub policy: Box<P>,
    /// The time, the processors, and who must pick.
    pub state: DriverState,
}

impl<P: Policy + ?Sized> Driver<P> {
    /// Idle processors under a new policy, at the origin of time.
    pub fn new(policy: Box<P>, cpus: usize) -> Self {
        let state = DriverState::new(cpus, policy.next_timer().at);
        Driver { policy, state }
    }

    /// The time of the last call.
    #[inline]
    pub fn now(&self) -> Instant {
        self.state.now
    }

    /// When the policy's next timer is due.
    #[inline]
    pub fn timer_at(&self) -> Instant {
        self.state.timer_at
    }

    /// Time passes until `now`, timers included, each at its own time. An earlier time counts as now.
    #[inline(always)]
    pub fn advance(&mut self, now: Instant) {
        self.handle_timers(now, true);
    }

    /// As [`Driver::advance`], but timers that are due exactly at `now` are left for later.
    #[inline(always)]
    pub fn advance_before_timers(&mut self, now: Instant) {
        self.handle_timers(now, false);
    }

    #[inline(always)]
    fn handle_timers(&mut self, now: Instant, is_included: bool) {
        let now = now.max(self.state.now);
        while self.state.is_due(now, is_included) {
            self.policy.drive_timer(&mut self.state);
        }
        self.state.now = now;
    }

    /// Time passes until `now`, and timers stay overdue. An earlier time counts as now.
    pub fn pass(&mut self, now: Instant) {
        self.state.now = now.max(self.state.now);
    }

    /// Handles one timer that is due now or overdue. Was there one?
    pub fn on_timer(&mut self) -> bool {
        let is_due = self.state.is_due(self.state.now, true);
        if is_due {
            self.policy.drive_timer(&mut self.state);
        }
        is_due
    }

    /// Charges what ran on `cpu` until now.
    pub fn charge(&mut self, cpu: CpuId) {
        let now = self.state.now;
        if let Some((unit, ran)) = self.state.processors[cpu.index()].take(now) {
            self.policy.charge(now, cpu, unit, ran);
        }
    }

    /// The processor that has the unit, running or idling for it.
    pub fn cpu_of(&self, unit: UnitId) -> Option<CpuId> {
        let has = self.state.processors.iter().position(|processor| processor.run.charged() == Some(unit));
        has.map(|cpu| CpuId(cpu as u32))
    }

    /// Charges the unit; the processor that has it.
    fn charge_unit(&mut self, unit: UnitId) -> Option<CpuId> {
        let cpu = self.cpu_of(unit)?;
        self.charge(cpu);
        Some(cpu)
    }

    /// Reads the policy's next timer, after calls that went past the driver.
    pub fn refresh_timer(&mut self) {
        self.state.timer_at = self.policy.next_timer().at;
    }

    /// See [`Policy::insert`].
    ///
    /// # Errors
    /// Those of the policy.
    pub fn insert(&mut self, params: &UnitParams) -> Result<UnitId, ParamError> {
        let inserted = self.policy.insert(self.state.now, params);
        self.refresh_timer();
        inserted
    }

    /// See [`Policy::remove`].
    pub fn remove(&mut self, unit: UnitId) {
        let cpu = self.charge_unit(unit);
        self.policy.remove(self.state.now, unit, &mut self.state.resched);
        self.refresh_timer();
        if let Some(cpu) = cpu {
            self.state.processors[cpu.index()].run = Run::Idle;
        }
    }

    /// See [`Policy::adjust`].
    ///
    /// # Errors
    /// Those of the policy.
    pub fn adjust(&mut self, unit: UnitId, params: &UnitParams) -> Result<(), ParamError> {
        match params.vm.filter(|_| params.shares_budget) {
            // Whichever vCPU of the VM runs.
            Some(_) => (0..self.state.processors.len() as u32).for_each(|cpu| self.charge(CpuId(cpu))),
            None => drop(self.charge_unit(unit)),
        }
        let adjusted = self.policy.adjust(self.state.now, unit, params, &mut self.state.resched);
        self.refresh_timer();
        adjusted
    }

    /// See [`Policy::set_deadline`].
    pub fn set_deadline(&mut self, unit: UnitId, deadline: Instant) {
        self.policy.set_deadline(self.state.now, unit, deadline, &mut self.state.resched);
        self.refresh_timer();
    }

    /// See [`Policy::wake`].
    pub fn wake(&mut self, unit: UnitId) {
        self.policy.wake(self.state.now, unit, &mut self.state.resched);
        self.refresh_timer();
    }

    /// See [`Policy::sleep`].
    pub fn sleep(&mut self, unit: UnitId) {
        self.charge_unit(unit);
        self.policy.sleep(self.state.now, unit, &mut self.state.resched);
        self.refresh_timer();
    }

    /// See [`Policy::pick`].
    pub fn pick(&mut self, cpu: CpuId) -> Slice {
        self.charge(cpu);
        self.state.resched.remove(cpu);
        let slice = self.policy.pick(self.state.now, cpu, &mut self.state.resched);
        self.state.processors[cpu.index()].run = slice.run;
        self.refresh_timer();
        slice
    }

    /// A processor that must pick, the lowest of several; it counts as asked no more.
    pub fn take_resched(&mut self) -> Option<CpuId> {
        self.state.resched.pop()
    }
}
