//! Best effort: units without a reservation beside those of any policy.
//!
//! # Rules
//! - **Below all others.** The policy inside never hears of best-effort units. They run where it leaves a
//!   processor idle ([`Run::Idle`]), and give way as soon as it asks for that processor. A budget that idles
//!   away ([`Run::IdleFor`]) leaves the processor idle for them as little as for others.
//! - **Among themselves** they take turns of [`TURN`] each, over all processors that they may run on. A unit
//!   that gave way keeps its place and the rest of its turn; one that wakes goes to the end of the queue.
//! - **Unseen.** The policy inside decides when it asked to, or its slice is over, never because of a
//!   best-effort unit: its units fare as if the others were not there.
//! - **Parameters.** Only the affinity counts.
//!
//! Linux's fair class below real-time threads is the model; Xen's Credit calls such units idle priority.
//! Pools without best-effort units have no such wrapper ([`PolicyInfo::build_for`]).
//!
//! [`PolicyInfo::build_for`]: crate::registry::PolicyInfo::build_for

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, UnitId};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Ahead, Policy};
use crate::slots::Slots;
use crate::time::{Duration, Instant};
use crate::wrap::Wrapper;

/// How long a best-effort unit may run before another one's turn, if one waits. Long beside a switch, short
/// beside what a person notices.
pub const TURN: Duration = Duration::from_ms(10);

#[derive(Clone, Debug)]
struct Unit {
    /// Its id in the policy inside. `None`: it is a best-effort unit.
    inside: Option<UnitId>,
    /// Where a best-effort unit may run.
    affinity: Option<CpuSet>,
    /// Has the best-effort unit work? Set by `wake`, cleared by `sleep`, checked by `pick`.
    awake: bool,
    /// The processor that has picked the best-effort unit and has not picked again.
    on: Option<CpuId>,
    /// The rest of its turn.
    left: Duration,
}

impl Unit {
    fn new(inside: Option<UnitId>, params: &UnitParams) -> Self {
        let affinity = params.affinity.clone().filter(|_| inside.is_none());
        Unit { inside, affinity, awake: false, on: None, left: TURN }
    }

    fn may_run(&self, cpu: CpuId) -> bool {
        self.affinity.as_ref().is_none_or(|set| set.contains(cpu))
    }
}

#[derive(Clone, Copy, Debug)]
struct Processor {
    /// Does the policy inside leave it idle? At first it does not.
    is_left: bool,
    /// Must the policy inside pick for it? Set when it asks, cleared and checked by `pick`.
    must_decide: bool,
    /// The end of the slice that the policy inside gave last.
    until: Instant,
    /// The best-effort unit there.
    unit: Option<UnitId>,
    /// Was it asked to pick for a best-effort unit, and has not yet?
    asked: bool,
}

/// Best-effort units around a policy; see the module's rules.
#[derive(Clone, Debug)]
pub struct Background {
    units: Slots<Unit>,
    /// By the id of the policy inside.
    outside: Vec<UnitId>,
    /// Best-effort units with work that no processor has picked.
    waiting: VecDeque<UnitId>,
    processors: Vec<Processor>,
    /// What the policy inside fills; emptied after each call.
    asked: CpuSet,
}

impl Background {
    /// Around a policy for a pool of `cpus` processors.
    pub fn new(cpus: usize) -> Self {
        let (is_left, must_decide, until) = (false, true, Instant::NEVER);
        let processor = Processor { is_left, must_decide, until, unit: None, asked: false };
        Background {
            units: Slots::new(),
            outside: Vec::new(),
            waiting: VecDeque::new(),
            processors: alloc::vec![processor; cpus],
            asked: CpuSet::new(cpus),
        }
    }

    /// Passes on what the policy inside asked for.
    fn pass_on(&mut self, resched: &mut CpuSet) {
        while let Some(cpu) = self.asked.pop() {
            self.processors[cpu.index()].must_decide = true;
            resched.insert(cpu);
        }
    }

    /// Asks a processor that nobody uses for each waiting unit, as far as there are any.
    fn ask(&mut self, resched: &mut CpuSet) {
        for unit in &self.waiting {
            let unit = &self.units[unit.index()];
            let idle = |(cpu, p): &(usize, &mut Processor)| {
                p.is_left && p.unit.is_none() && !p.asked && unit.may_run(CpuId(*cpu as u32))
            };
            if let Some((cpu, processor)) = self.processors.iter_mut().enumerate().find(idle) {
                processor.asked = true;
                resched.insert(CpuId(cpu as u32));
            }
        }
    }

    /// The best-effort unit of `cpu` gives way.
    fn put_back(&mut self, cpu: CpuId) {
        let Some(id) = self.processors[cpu.index()].unit.take() else { return };
        let unit = &mut self.units[id.index()];
        unit.on = None;
        if !unit.awake {
            return;
        }
        if unit.left.is_zero() {
            unit.left = TURN;
            self.waiting.push_back(id);
        } else {
            self.waiting.push_front(id);
        }
    }

    /// The first waiting unit that may run on `cpu` gets it.
    fn take(&mut self, cpu: CpuId) -> Option<UnitId> {
        let first = self.waiting.iter().position(|unit| self.units[unit.index()].may_run(cpu))?;
        let id = self.waiting.remove(first)?;
        self.units[id.index()].on = Some(cpu);
        self.processors[cpu.index()].unit = Some(id);
        Some(id)
    }

    fn forget(&mut self, id: UnitId) {
        self.waiting.retain(|waiting| *waiting != id);
    }
}

impl Wrapper for Background {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        if params.best_effort {
            params.check_affinity(self.processors.len())?;
            let id = self.units.insert(Unit::new(None, params));
            self.waiting.reserve(self.units.len() - self.waiting.len());
            return Ok(id);
        }
        let inner = inside.insert(now, params)?;
        let id = self.units.insert(Unit::new(Some(inner), params));
        self.outside.resize(self.outside.len().max(inner.index() + 1), id);
        self.outside[inner.index()] = id;
        self.waiting.reserve(self.units.len() - self.waiting.len());
        Ok(id)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let own = &self.units[unit.index()];
        let (inner, on) = (own.inside, own.on);
        match inner {
            Some(inner) => inside.remove(now, inner, &mut self.asked),
            None => self.forget(unit),
        }
        self.pass_on(resched);
        if let Some(cpu) = on {
            self.processors[cpu.index()].unit = None;
            resched.insert(cpu);
        }
        // The slot keeps its state.
        self.units[unit.index()].awake = false;
        self.units.remove(unit);
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let own = &mut self.units[unit.index()];
        if own.inside.is_none() != params.best_effort {
            let expected = "as it was when the unit came".into();
            return Err(ParamError::OutOfRange { field: UnitParams::BEST_EFFORT, expected });
        }
        if let Some(inner) = own.inside {
            let adjusted = inside.adjust(now, inner, params, &mut self.asked);
            self.pass_on(resched);
            return adjusted;
        }
        params.check_affinity(self.processors.len())?;
        own.affinity.clone_from(&params.affinity);
        if let Some(cpu) = own.on.filter(|cpu| !own.may_run(*cpu)) {
            resched.insert(cpu);
        }
        self.ask(resched);
        Ok(())
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let own = &mut self.units[unit.index()];
        if let Some(inner) = own.inside {
            inside.wake(now, inner, &mut self.asked);
            return self.pass_on(resched);
        }
        if core::mem::replace(&mut own.awake, true) {
            return;
        }
        own.left = TURN;
        // It may have slept since its processor picked it.
        if own.on.is_none() {
            self.waiting.push_back(unit);
            self.ask(resched);
        }
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let own = &mut self.units[unit.index()];
        if let Some(inner) = own.inside {
            inside.sleep(now, inner, &mut self.asked);
            return self.pass_on(resched);
        }
        if !core::mem::replace(&mut own.awake, false) {
            return;
        }
        match own.on {
            Some(cpu) => resched.insert(cpu),
            None => self.forget(unit),
        }
    }

    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        if let Some(inner) = self.units[unit.index()].inside {
            inside.set_deadline(now, inner, deadline, &mut self.asked);
            self.pass_on(resched);
        }
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        let own = &mut self.units[unit.index()];
        match own.inside {
            Some(inner) => inside.charge(now, cpu, inner, ran),
            None => own.left = own.left.saturating_sub(ran),
        }
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.put_back(cpu);
        let processor = &mut self.processors[cpu.index()];
        processor.asked = false;
        let mut slice = Slice { run: Run::Idle, until: processor.until };
        if processor.must_decide || !processor.is_left || processor.until <= now {
            processor.must_decide = false;
            slice = inside.pick(now, cpu, &mut self.asked);
            let processor = &mut self.processors[cpu.index()];
            (processor.is_left, processor.until) = (slice.run == Run::Idle, slice.until);
            self.pass_on(resched);
        }
        let Slice { run, until } = slice;
        let slice = match run {
            Run::Unit(inner) => Slice { run: Run::Unit(self.outside[inner.index()]), until },
            Run::IdleFor(inner) => Slice { run: Run::IdleFor(self.outside[inner.index()]), until },
            Run::Idle => match self.take(cpu) {
                Some(unit) => {
                    Slice { run: Run::Unit(unit), until: until.min(now + self.units[unit.index()].left) }
                }
                None => slice,
            },
        };
        self.ask(resched);
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
        let processor = &mut self.processors[cpu.index()];
        if let Some(inner) = self.units[unit.index()].inside {
            if processor.is_left {
                return None;
            }
            let slice = inside.yield_to(now, cpu, inner, &mut self.asked)?;
            processor.until = slice.until;
            self.pass_on(resched);
            return Some(Slice { run: Run::Unit(unit), until: slice.until });
        }
        let before = processor.unit?;
        let own = &self.units[unit.index()];
        let at = self.waiting.iter().position(|waiting| *waiting == unit).filter(|_| own.may_run(cpu))?;
        self.waiting[at] = before;
        processor.unit = Some(unit);
        let until = processor.until.min(now + own.left);
        self.units[before.index()].on = None;
        self.units[unit.index()].on = Some(cpu);
        self.ask(resched);
        Some(Slice { run: Run::Unit(unit), until })
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        inside.on_timer(now, &mut self.asked);
        self.pass_on(resched);
    }

    fn ranking(&self, inside: &dyn Policy, cpu: CpuId, out: &mut Vec<UnitId>) {
        inside.ranking(cpu, out);
        out.iter_mut().for_each(|unit| *unit = self.outside[unit.index()]);
        let ids = (0..self.units.len()).map(|id| UnitId(id as u32));
        let best_effort = |id: &UnitId| {
            let unit = &self.units[id.index()];
            unit.inside.is_none() && unit.awake && unit.may_run(cpu)
        };
        out.extend(ids.filter(best_effort));
    }

    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        match self.units[unit.index()].inside {
            Some(inner) => inside.account(inner),
            None => Account { may_overrun: true, ..Account::default() },
        }
    }

    fn ahead(&self, inside: &dyn Policy, unit: UnitId) -> Option<Ahead> {
        self.units[unit.index()].inside.and_then(|inner| inside.ahead(inner))
    }
}
