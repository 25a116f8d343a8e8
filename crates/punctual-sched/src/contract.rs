//! The contract between driver and policy, checked at every call in debug builds.
//!
//! [`PolicyInfo::build`](crate::registry::PolicyInfo::build) puts each policy into a [`Contract`] in builds
//! with debug assertions, so every test checks the contract of [`crate::policy`], under any driver. Other
//! builds have no such wrapper.
//!
//! A processor of the simulator pauses while its vCPU does not run, and a live enforcer learns only later
//! what ran, so not every driver charges what the clock says. [`Charges`] says which do.
//!
//! Around [`Turns`] and [`VmServers`] it also checks that the vCPUs of a VM take turns.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, Timer, UnitId};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Policy};
use crate::time::{Duration, Instant};
use crate::turns::{TURN, Turns};
use crate::vm_server::VmServers;
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

/// What turns depend on.
#[derive(Clone, Debug, Default)]
struct Vcpu {
    params: UnitParams,
    /// Since when it waits, if it does.
    since: Instant,
    /// What others of its VM have run, since it waits, where it might have run.
    waited: Duration,
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
    /// By unit, where the vCPUs of a VM must take turns.
    vcpus: Option<Vec<Vcpu>>,
}

/// The policy in a [`Contract`], in builds with debug assertions; otherwise the policy as it is.
pub fn checked(policy: Box<dyn Policy>, cpus: usize, charges: Charges) -> Box<dyn Policy> {
    if cfg!(debug_assertions) { Box::new(Wrapped::new(Contract::new(cpus, charges), policy)) } else { policy }
}

/// The policy in [`Turns`], and those in a [`Contract`] as [`checked`].
pub fn in_turns(policy: Box<dyn Policy>, cpus: usize, charges: Charges) -> Box<dyn Policy> {
    take_turns(Box::new(Wrapped::new(Turns::new(cpus), policy)), cpus, charges)
}

/// The policy in [`Turns`] and [`VmServers`], and those in a [`Contract`] as [`checked`].
pub fn in_vm_servers(policy: Box<dyn Policy>, cpus: usize, charges: Charges) -> Box<dyn Policy> {
    let turns = Box::new(Wrapped::new(Turns::new(cpus), policy));
    take_turns(Box::new(Wrapped::new(VmServers::new(cpus), turns)), cpus, charges)
}

/// As [`checked`], for a policy under which the vCPUs of a VM take turns.
fn take_turns(policy: Box<dyn Policy>, cpus: usize, charges: Charges) -> Box<dyn Policy> {
    if !cfg!(debug_assertions) {
        return policy;
    }
    let contract = Contract { vcpus: Some(Vec::new()), ..Contract::new(cpus, charges) };
    Box::new(Wrapped::new(contract, policy))
}

impl Contract {
    /// For a pool of `cpus` processors without units.
    pub fn new(cpus: usize, charges: Charges) -> Self {
        let idle = Processor { run: Run::Idle, charged: Instant::ZERO, asked: false };
        let processors = alloc::vec![idle; cpus];
        Contract { charges, now: Instant::ZERO, units: Vec::new(), processors, vcpus: None }
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
            self.begin_to_wait(before);
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
        self.begin_to_wait(unit);
    }

    fn vcpu(&self, unit: UnitId) -> Option<&Vcpu> {
        self.vcpus.as_ref()?.get(unit.index())
    }

    /// From now on it waits, if it has no processor.
    fn begin_to_wait(&mut self, unit: UnitId) {
        let now = self.now;
        if let Some(vcpu) = self.vcpus.as_mut().and_then(|vcpus| vcpus.get_mut(unit.index())) {
            (vcpu.since, vcpu.waited) = (now, Duration::ZERO);
        }
    }

    /// The unit has these parameters; turns are counted again.
    fn set_params(&mut self, unit: UnitId, params: UnitParams) {
        let Some(vcpus) = &mut self.vcpus else { return };
        if vcpus.len() <= unit.index() {
            vcpus.resize(unit.index() + 1, Vcpu::default());
        }
        vcpus[unit.index()].params = params;
        vcpus.iter_mut().for_each(|vcpu| vcpu.waited = Duration::ZERO);
    }

    /// Is the unit one of a VM whose vCPUs take turns?
    fn takes_turns(&self, unit: UnitId) -> bool {
        self.vcpu(unit).is_some_and(|vcpu| vcpu.params.vm.is_some())
    }

    /// Does `other`, a vCPU of the unit's VM, wait, and may it run on `cpu`?
    fn waits_beside(&self, unit: UnitId, cpu: CpuId, other: UnitId) -> bool {
        let (Some(own), Some(waits)) = (self.vcpu(unit), self.vcpu(other)) else { return false };
        let Some(state) = self.units[other.index()] else { return false };
        other != unit
            && own.params.vm.is_some()
            && waits.params.vm == own.params.vm
            // Those that share a budget are one unit, which takes no turns with the others.
            && waits.params.shares_budget == own.params.shares_budget
            && waits.params.best_effort == own.params.best_effort
            && (state.awake && state.on.is_none())
            && waits.params.affinity.as_ref().is_none_or(|set| set.contains(cpu))
    }

    /// Is a processor about to pick that may take the unit?
    fn is_called(&self, unit: UnitId) -> bool {
        let affinity = self.vcpu(unit).and_then(|vcpu| vcpu.params.affinity.as_ref());
        let mut processors = (0..).map(CpuId).zip(&self.processors);
        processors.any(|(cpu, processor)| processor.asked && affinity.is_none_or(|set| set.contains(cpu)))
    }

    fn units(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.units.len() as u32).map(UnitId)
    }

    /// `cpu` goes on with the unit: no other vCPU of its VM has waited for longer than their turns take.
    fn check_turns(&self, inside: &dyn Policy, cpu: CpuId, unit: UnitId) {
        if !self.takes_turns(unit) {
            return;
        }
        let vm = |unit: UnitId| {
            self.vcpu(unit).and_then(|vcpu| Some((vcpu.params.vm?, vcpu.params.shares_budget)))
        };
        let vcpus = self.units().filter(|other| vm(*other) == vm(unit)).count() as u64;
        for other in self.units().filter(|other| self.waits_beside(unit, cpu, *other)) {
            let waited = self.vcpu(other).map_or(Duration::ZERO, |vcpu| vcpu.waited);
            let account = inside.account(other);
            let is_here = account.home.is_none_or(|home| home == cpu) && !self.is_called(other);
            debug_assert!(
                waited < TURN * vcpus || !has_budget(account) || !is_here,
                "{cpu:?} goes on with {unit:?}, while {other:?} of the same VM has waited for {waited}"
            );
        }
    }
}

/// Has the unit budget, and not only extra time?
fn has_budget(account: Account) -> bool {
    account.left.is_none_or(|left| !left.is_zero() && !account.may_overrun)
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
        self.set_params(unit, params.clone());
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
        self.set_params(unit, UnitParams::default());
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
        if adjusted.is_ok() {
            self.set_params(unit, params.clone());
        }
        adjusted
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.pass(now);
        if !core::mem::replace(&mut self.unit(unit).awake, true) {
            self.begin_to_wait(unit);
        }
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
        if !self.takes_turns(unit) || !self.unit(unit).awake {
            return;
        }
        for other in self.units() {
            if !self.waits_beside(unit, cpu, other) {
                continue;
            }
            let account = inside.account(other);
            if account.home.is_some_and(|home| home != cpu) {
                continue;
            }
            if let Some(vcpu) = self.vcpus.as_mut().and_then(|vcpus| vcpus.get_mut(other.index())) {
                // Without budget it does not wait for a turn.
                let beside = ran.min(now.since(vcpu.since));
                vcpu.waited = if has_budget(account) { vcpu.waited + beside } else { Duration::ZERO };
            }
        }
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.pass(now);
        self.check_cpu(cpu);
        self.check_charged(cpu);
        let was_asked = resched.contains(cpu);
        let before = self.processors[cpu.index()].run;
        let slice = inside.pick(now, cpu, resched);
        self.note_asked(resched);
        self.processors[cpu.index()].asked = !was_asked && resched.contains(cpu);
        self.give(cpu, slice);
        if let Run::Unit(unit) = slice.run
            && slice.run == before
        {
            self.check_turns(inside, cpu, unit);
        }
        slice
    }

    fn yield_to(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        cpu: CpuId,
        unit: UnitId,
        resched: &mut CpuSet,
    ) -> Option<Slice> {
        self.pass(now);
        self.check_cpu(cpu);
        let before = self.processors[cpu.index()];
        debug_assert!(
            matches!(before.run, Run::Unit(_)) && before.charged == now,
            "{cpu:?} yields {:?}, which it has not just picked",
            before.run
        );
        let on = self.unit(unit).on;
        let slice = inside.yield_to(now, cpu, unit, resched);
        self.note_asked(resched);
        debug_assert!(
            slice.is_none_or(|slice| on.is_none() && slice.run == Run::Unit(unit)),
            "{cpu:?} yields to {unit:?}, which {on:?} has, and gets {slice:?}"
        );
        self.give(cpu, slice?);
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
