//! The contract between driver and policy, checked at every call in debug builds.
//!
//! [`PolicyInfo::build`](crate::registry::PolicyInfo::build) puts each policy into a [`Contract`] in builds
//! with debug assertions, so every test checks the contract of [`crate::policy`], under any driver. Other
//! builds have no such wrapper.
//!
//! A processor of the simulator pauses while its vCPU does not run, and a live enforcer learns only later
//! what ran, so not every driver charges what the clock says. [`Charges`] says which do.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, Timer, UnitId};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Policy};
use crate::time::{Duration, Instant};
use crate::wrap::{Wrapped, Wrapper};

/// What a driver charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charges {
    /// All the time that passes while a unit has a processor, before the processor picks.
    Elapsed,
    /// What the driver learns, when it learns it.
    Reported,
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    awake: bool,
    /// The processor that was given the unit last and has not picked since.
    on: Option<CpuId>,
}

#[derive(Clone, Copy, Debug)]
struct Processor {
    run: Run,
    /// Until when its unit is charged.
    charged: Instant,
    /// Has a call asked it to pick since it picked last? Drivers take the set that calls fill when they like.
    asked: bool,
}

/// A wrapper that checks what driver and policy owe each other; see the module.
#[derive(Debug)]
pub struct Contract {
    charges: Charges,
    now: Instant,
    units: Vec<Option<Unit>>,
    processors: Vec<Processor>,
}

/// The policy in a [`Contract`], in builds with debug assertions; otherwise the policy as it is.
pub fn checked(policy: Box<dyn Policy>, cpus: usize, charges: Charges) -> Box<dyn Policy> {
    if cfg!(debug_assertions) { Box::new(Wrapped::new(Contract::new(cpus, charges), policy)) } else { policy }
}

impl Contract {
    /// For a pool of `cpus` processors without units.
    pub fn new(cpus: usize, charges: Charges) -> Self {
        let idle = Processor { run: Run::Idle, charged: Instant::ZERO, asked: false };
        Contract { charges, now: Instant::ZERO, units: Vec::new(), processors: alloc::vec![idle; cpus] }
    }

    fn pass(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time goes back from {} to {now}", self.now);
        self.now = now;
    }

    fn unit(&mut self, unit: UnitId) -> &mut Unit {
        let known = self.units.get_mut(unit.index()).and_then(Option::as_mut);
        debug_assert!(known.is_some(), "{unit:?} is not inserted");
        known.expect("checked above")
    }

    fn check_cpu(&self, cpu: CpuId) {
        debug_assert!(cpu.index() < self.processors.len(), "the pool has no {cpu:?}");
    }

    /// What the processor runs must have been charged up to now.
    fn check_charged(&self, cpu: CpuId) {
        let Processor { run, charged, .. } = self.processors[cpu.index()];
        debug_assert!(
            self.charges == Charges::Reported || run.charged().is_none() || charged == self.now,
            "{}: {cpu:?} has {run:?}, charged up to {charged} only",
            self.now
        );
    }

    /// The unit's processor, if any, whose time must have been charged.
    fn charged_processor(&mut self, unit: UnitId) -> Option<CpuId> {
        let on = self.unit(unit).on;
        if let Some(cpu) = on {
            self.check_charged(cpu);
        }
        on
    }

    /// Notes which processors are asked to pick.
    fn note_asked(&mut self, resched: &CpuSet) {
        resched.iter().for_each(|cpu| self.processors[cpu.index()].asked = true);
    }

    fn check_asked(&self, unit: UnitId, on: Option<CpuId>) {
        debug_assert!(
            on.is_none_or(|cpu| self.processors[cpu.index()].asked),
            "{unit:?} leaves {on:?}, which is not asked to pick"
        );
    }

    /// The unit gets the processor, which nothing else has.
    fn give(&mut self, cpu: CpuId, slice: Slice) {
        if let Some(before) = self.processors[cpu.index()].run.charged() {
            self.unit(before).on = None;
        }
        let asked = self.processors[cpu.index()].asked;
        self.processors[cpu.index()] = Processor { run: slice.run, charged: self.now, asked };
        debug_assert!(
            self.charges == Charges::Reported || slice.until > self.now,
            "{} {cpu:?}: {slice:?} ends at once",
            self.now
        );
        let Some(unit) = slice.run.charged() else {
            return;
        };
        let state = self.unit(unit);
        debug_assert!(state.on.is_none(), "{cpu:?} is given {unit:?}, which {:?} has", state.on);
        debug_assert_eq!(
            state.awake,
            matches!(slice.run, Run::Unit(_)),
            "{cpu:?} is given {:?}: it runs if it is awake, and its budget idles away if it sleeps",
            slice.run
        );
        state.on = Some(cpu);
    }
}

impl Wrapper for Contract {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        self.pass(now);
        let unit = inside.insert(now, params)?;
        if self.units.len() <= unit.index() {
            self.units.resize(unit.index() + 1, None);
        }
        let before = self.units[unit.index()].replace(Unit { awake: false, on: None });
        debug_assert!(before.is_none(), "{unit:?} is given out twice");
        Ok(unit)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.pass(now);
        let on = self.charged_processor(unit);
        inside.remove(now, unit, resched);
        self.note_asked(resched);
        self.check_asked(unit, on);
        if let Some(cpu) = on {
            self.processors[cpu.index()].run = Run::Idle;
        }
        self.units[unit.index()] = None;
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        self.pass(now);
        self.charged_processor(unit);
        let adjusted = inside.adjust(now, unit, params, resched);
        self.note_asked(resched);
        adjusted
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.pass(now);
        self.unit(unit).awake = true;
        inside.wake(now, unit, resched);
        self.note_asked(resched);
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.pass(now);
        let on = self.charged_processor(unit);
        let was_awake = core::mem::replace(&mut self.unit(unit).awake, false);
        inside.sleep(now, unit, resched);
        self.note_asked(resched);
        self.check_asked(unit, on.filter(|_| was_awake));
    }

    fn sleep_before_pick(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        cpu: CpuId,
        resched: &mut CpuSet,
    ) {
        self.pass(now);
        self.check_cpu(cpu);
        let on = self.charged_processor(unit);
        debug_assert_eq!(on, Some(cpu), "{unit:?} sleeps on another processor than the one that picks");
        self.unit(unit).awake = false;
        inside.sleep_before_pick(now, unit, cpu, resched);
        self.note_asked(resched);
    }

    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        self.pass(now);
        self.unit(unit);
        inside.set_deadline(now, unit, deadline, resched);
        self.note_asked(resched);
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        self.pass(now);
        self.check_cpu(cpu);
        self.unit(unit);
        let processor = &mut self.processors[cpu.index()];
        if self.charges == Charges::Elapsed {
            let has = processor.run.charged();
            debug_assert_eq!(has, Some(unit), "{cpu:?} is charged for a unit that it does not have");
            let elapsed = now.since(processor.charged);
            debug_assert_eq!(ran, elapsed, "{unit:?} had {cpu:?} since {}", processor.charged);
        }
        processor.charged = now;
        inside.charge(now, cpu, unit, ran);
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.pass(now);
        self.check_cpu(cpu);
        self.check_charged(cpu);
        let was_asked = resched.contains(cpu);
        let slice = inside.pick(now, cpu, resched);
        self.note_asked(resched);
        self.processors[cpu.index()].asked = !was_asked && resched.contains(cpu);
        self.give(cpu, slice);
        slice
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        self.pass(now);
        let Timer { at, charge } = inside.next_timer();
        debug_assert!(at <= now, "the timer of {at} is handled at {now}");
        if let Some(cpu) = charge {
            self.check_charged(cpu);
        }
        inside.on_timer(now, resched);
        self.note_asked(resched);
    }

    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        debug_assert!(
            matches!(self.units.get(unit.index()), Some(Some(_))),
            "the account of {unit:?}, which is not inserted"
        );
        inside.account(unit)
    }
}
