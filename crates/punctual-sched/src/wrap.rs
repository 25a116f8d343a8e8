//! Policies around policies: to record the calls of a policy, to shift its time, to inject faults.
//!
//! A [`Wrapper`] gets every call of a driver together with the policy inside. Calls that it does not override
//! reach that policy unchanged. [`Wrapped`] is the two as one policy, so wrappers compose, and a driver does
//! not know whether it drives a policy or a wrapped one.
//!
//! - [`Recorder`] notes every [`Call`]; calls can be made again, on another policy.
//! - [`TimeShift`] starts the policy's time line before the driver's.
//! - [`Contract`](crate::contract::Contract) checks what driver and policy owe each other.
//! - [`Background`](crate::background::Background) adds best-effort units.
//! - [`Turns`](crate::turns::Turns) lets the vCPUs of a VM alternate.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Slice, Timer, UnitId};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Ahead, Policy};
use crate::time::{Duration, Instant};

/// What stands between a driver and the policy `inside`. Each method is that of [`Policy`]; by default the
/// policy inside answers.
pub trait Wrapper: Send {
    /// See [`Policy::insert`].
    ///
    /// # Errors
    /// Those of the policy inside.
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        inside.insert(now, params)
    }

    /// See [`Policy::remove`].
    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.remove(now, unit, resched);
    }

    /// See [`Policy::adjust`].
    ///
    /// # Errors
    /// Those of the policy inside.
    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        inside.adjust(now, unit, params, resched)
    }

    /// See [`Policy::wake`].
    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.wake(now, unit, resched);
    }

    /// See [`Policy::sleep`].
    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.sleep(now, unit, resched);
    }

    /// See [`Policy::sleep_before_pick`].
    fn sleep_before_pick(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        cpu: CpuId,
        resched: &mut CpuSet,
    ) {
        let _ = cpu;
        self.sleep(inside, now, unit, resched);
    }

    /// See [`Policy::set_deadline`].
    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        inside.set_deadline(now, unit, deadline, resched);
    }

    /// See [`Policy::charge`].
    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        inside.charge(now, cpu, unit, ran);
    }

    /// See [`Policy::pick`].
    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        inside.pick(now, cpu, resched)
    }

    /// See [`Policy::yield_to`].
    fn yield_to(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        cpu: CpuId,
        unit: UnitId,
        resched: &mut CpuSet,
    ) -> Option<Slice> {
        inside.yield_to(now, cpu, unit, resched)
    }

    /// See [`Policy::next_timer`].
    fn next_timer(&self, inside: &dyn Policy) -> Timer {
        inside.next_timer()
    }

    /// See [`Policy::on_timer`].
    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        inside.on_timer(now, resched);
    }

    /// See [`Policy::ranking`].
    fn ranking(&self, inside: &dyn Policy, cpu: CpuId, out: &mut Vec<UnitId>) {
        inside.ranking(cpu, out);
    }

    /// See [`Policy::account`].
    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        inside.account(unit)
    }

    /// See [`Policy::ahead`].
    fn ahead(&self, inside: &dyn Policy, unit: UnitId) -> Option<Ahead> {
        inside.ahead(unit)
    }
}

/// A policy in a wrapper.
pub struct Wrapped<W> {
    wrapper: W,
    inside: Box<dyn Policy>,
}

impl<W: Wrapper> Wrapped<W> {
    /// Puts the policy `inside` into `wrapper`.
    pub fn new(wrapper: W, inside: Box<dyn Policy>) -> Self {
        Wrapped { wrapper, inside }
    }
}

impl<W: Wrapper> Policy for Wrapped<W> {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        self.wrapper.insert(&mut *self.inside, now, params)
    }

    fn remove(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.wrapper.remove(&mut *self.inside, now, unit, resched);
    }

    fn adjust(
        &mut self,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        self.wrapper.adjust(&mut *self.inside, now, unit, params, resched)
    }

    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.wrapper.wake(&mut *self.inside, now, unit, resched);
    }

    fn sleep(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.wrapper.sleep(&mut *self.inside, now, unit, resched);
    }

    fn sleep_before_pick(&mut self, now: Instant, unit: UnitId, cpu: CpuId, resched: &mut CpuSet) {
        self.wrapper.sleep_before_pick(&mut *self.inside, now, unit, cpu, resched);
    }

    fn set_deadline(&mut self, now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        self.wrapper.set_deadline(&mut *self.inside, now, unit, deadline, resched);
    }

    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        self.wrapper.charge(&mut *self.inside, now, cpu, unit, ran);
    }

    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.wrapper.pick(&mut *self.inside, now, cpu, resched)
    }

    fn yield_to(&mut self, now: Instant, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> Option<Slice> {
        self.wrapper.yield_to(&mut *self.inside, now, cpu, unit, resched)
    }

    fn next_timer(&self) -> Timer {
        self.wrapper.next_timer(&*self.inside)
    }

    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        self.wrapper.on_timer(&mut *self.inside, now, resched);
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.wrapper.ranking(&*self.inside, cpu, out);
    }

    fn account(&self, unit: UnitId) -> Account {
        self.wrapper.account(&*self.inside, unit)
    }

    fn ahead(&self, unit: UnitId) -> Option<Ahead> {
        self.wrapper.ahead(&*self.inside, unit)
    }
}

/// A call of a policy with its arguments. Calls that change nothing and that no decision needs
/// ([`Policy::ranking`], [`Policy::account`]) are not among them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Policy::insert`].
    Insert(Instant, UnitParams),
    /// [`Policy::remove`].
    Remove(Instant, UnitId),
    /// [`Policy::adjust`].
    Adjust(Instant, UnitId, UnitParams),
    /// [`Policy::wake`].
    Wake(Instant, UnitId),
    /// [`Policy::sleep`].
    Sleep(Instant, UnitId),
    /// [`Policy::set_deadline`]; the deadline comes last.
    SetDeadline(Instant, UnitId, Instant),
    /// [`Policy::charge`].
    Charge(Instant, CpuId, UnitId, Duration),
    /// [`Policy::pick`].
    Pick(Instant, CpuId),
    /// [`Policy::yield_to`].
    YieldTo(Instant, CpuId, UnitId),
    /// [`Policy::next_timer`].
    NextTimer,
    /// [`Policy::on_timer`].
    OnTimer(Instant),
}

impl Call {
    /// Makes the call again. Its answer is dropped: the same calls in the same order get the same answers.
    #[inline]
    pub fn make(&self, policy: &mut dyn Policy, resched: &mut CpuSet) {
        match self {
            Call::Insert(now, params) => drop(policy.insert(*now, params)),
            Call::Remove(now, unit) => policy.remove(*now, *unit, resched),
            Call::Adjust(now, unit, params) => drop(policy.adjust(*now, *unit, params, resched)),
            Call::Wake(now, unit) => policy.wake(*now, *unit, resched),
            Call::Sleep(now, unit) => policy.sleep(*now, *unit, resched),
            Call::SetDeadline(now, unit, deadline) => policy.set_deadline(*now, *unit, *deadline, resched),
            Call::Charge(now, cpu, unit, ran) => policy.charge(*now, *cpu, *unit, *ran),
            Call::Pick(now, cpu) => {
                policy.pick(*now, *cpu, resched);
            }
            Call::YieldTo(now, cpu, unit) => {
                policy.yield_to(*now, *cpu, *unit, resched);
            }
            Call::NextTimer => {
                policy.next_timer();
            }
            Call::OnTimer(now) => policy.on_timer(*now, resched),
        }
    }
}

/// Gives every call to `note`, then to the policy inside.
pub struct Recorder<F> {
    /// Where calls go, for instance the sending end of a channel.
    pub note: F,
}

impl<F: Fn(Call) + Send> Wrapper for Recorder<F> {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        (self.note)(Call::Insert(now, params.clone()));
        inside.insert(now, params)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        (self.note)(Call::Remove(now, unit));
        inside.remove(now, unit, resched);
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        (self.note)(Call::Adjust(now, unit, params.clone()));
        inside.adjust(now, unit, params, resched)
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        (self.note)(Call::Wake(now, unit));
        inside.wake(now, unit, resched);
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        (self.note)(Call::Sleep(now, unit));
        inside.sleep(now, unit, resched);
    }

    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        (self.note)(Call::SetDeadline(now, unit, deadline));
        inside.set_deadline(now, unit, deadline, resched);
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        (self.note)(Call::Charge(now, cpu, unit, ran));
        inside.charge(now, cpu, unit, ran);
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        (self.note)(Call::Pick(now, cpu));
        inside.pick(now, cpu, resched)
    }

    fn yield_to(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        cpu: CpuId,
        unit: UnitId,
        resched: &mut CpuSet,
    ) -> Option<Slice> {
        (self.note)(Call::YieldTo(now, cpu, unit));
        inside.yield_to(now, cpu, unit, resched)
    }

    fn next_timer(&self, inside: &dyn Policy) -> Timer {
        (self.note)(Call::NextTimer);
        inside.next_timer()
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        (self.note)(Call::OnTimer(now));
        inside.on_timer(now, resched);
    }
}

/// The policy inside lives in a time line that began `earlier` than the driver's: it gets the driver's
/// time plus `earlier`, and its answers are converted back. Instants before the driver's time 0 become 0.
#[derive(Clone, Copy, Debug)]
pub struct TimeShift {
    /// How much earlier.
    pub earlier: Duration,
}

impl TimeShift {
    fn inward(self, at: Instant) -> Instant {
        at + self.earlier
    }

    fn outward(self, at: Instant) -> Instant {
        if at.is_never() { at } else { Instant::ZERO + at.since(self.inward(Instant::ZERO)) }
    }
}

impl Wrapper for TimeShift {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        inside.insert(self.inward(now), params)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.remove(self.inward(now), unit, resched);
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        inside.adjust(self.inward(now), unit, params, resched)
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.wake(self.inward(now), unit, resched);
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.sleep(self.inward(now), unit, resched);
    }

    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        inside.set_deadline(self.inward(now), unit, self.inward(deadline), resched);
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        inside.charge(self.inward(now), cpu, unit, ran);
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let slice = inside.pick(self.inward(now), cpu, resched);
        Slice { until: self.outward(slice.until), ..slice }
    }

    fn yield_to(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        cpu: CpuId,
        unit: UnitId,
        resched: &mut CpuSet,
    ) -> Option<Slice> {
        let slice = inside.yield_to(self.inward(now), cpu, unit, resched)?;
        Some(Slice { until: self.outward(slice.until), ..slice })
    }

    fn next_timer(&self, inside: &dyn Policy) -> Timer {
        let timer = inside.next_timer();
        Timer { at: self.outward(timer.at), ..timer }
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        inside.on_timer(self.inward(now), resched);
    }

    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        let account = inside.account(unit);
        Account { deadline: account.deadline.map(|at| self.outward(at)), ..account }
    }

    fn ahead(&self, inside: &dyn Policy, unit: UnitId) -> Option<Ahead> {
        inside.ahead(unit).map(|ahead| Ahead { at: self.outward(ahead.at), ..ahead })
    }
}
