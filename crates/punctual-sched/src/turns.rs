//! Turns: the vCPUs of one VM that want the same processor alternate on it, under any policy.
//!
//! The vCPUs of a guest wait for each other while they run: for a spinlock, for the answer to an
//! interprocessor interrupt. Where a strict order gives the processor to the one that waits, the other one
//! never gets on, and the guest stands still.
//!
//! # Rules
//! - **Turns.** While another vCPU of its VM is ready and may run on the same processor, a vCPU runs there
//!   for at most [`TURN`]. Then that vCPU runs whose last turn ended longest ago.
//! - **A turn** is [`TURN`] of execution. A vCPU that sleeps, or gives way to another VM, keeps the rest of
//!   its turn. One that runs alone takes turns all the same, so a vCPU that wakes up after them comes next.
//! - **A turn is not interrupted** by a vCPU of the same VM that wakes up: guests send interprocessor
//!   interrupts with locks held, for which the woken vCPU would only spin. Only sleep ends a turn early.
//! - **The order between VMs is the policy's.** The turns are at the place of the vCPU that the policy picks:
//!   while it is another one's turn, the processor counts as urgent as the more urgent of the two.
//! - **Budgets are the policy's.** Each vCPU pays for what it runs itself. One without budget takes no turn,
//!   and on extra time it takes none in place of one that has budget.
//! - **A vCPU waits** on a processor for at most one turn of each other vCPU of its VM. One that the policy
//!   has called another processor for does not wait before that has picked.
//! - **Which units**: those with the same [`UnitParams::vm`]. Reserved vCPUs and best-effort ones take no
//!   turns with each other: a best-effort unit never delays a reserved one.
//!
//! The policy decides as always; then the vCPU that it picked yields ([`Policy::yield_to`]) to the one whose
//! turn it is. [`PolicyInfo::build_for`] puts only policies with such units into this wrapper.
//!
//! [`PolicyInfo::build_for`]: crate::registry::PolicyInfo::build_for

use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, UnitId};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Ahead, Policy};
use crate::time::{Duration, Instant};
use crate::vec_growth;
use crate::wrap::Wrapper;

/// How long a vCPU runs at most while another one of its VM waits for the same processor. Long beside a
/// switch, short beside the periods of guests' timers (4 ms).
pub const TURN: Duration = Duration::from_ms(1);

#[derive(Clone, Debug)]
struct Unit {
    vm: Option<u32>,
    affinity: Option<CpuSet>,
    /// The next vCPU of the same VM, in a ring; itself without others.
    next: u32,
    /// Has it work? Set by `wake`, cleared by `sleep`, checked wherever turns are.
    awake: bool,
    /// The processor that has picked it and has not picked again.
    on: Option<CpuId>,
    /// When it woke up or lost its processor last.
    since: Instant,
    /// The rest of its turn.
    left: Duration,
    /// Which turn of all was its last to end; 0: none.
    ended: u64,
    /// Has it begun a turn, and neither ended it nor slept since? Set by `pick`, cleared by `charge` and
    /// `sleep`.
    in_turn: bool,
}

/// Who comes first among the vCPUs of a VM: one in its turn, then that one whose last turn ended longest ago.
type Turn = (bool, u64);

impl Unit {
    fn new(id: u32) -> Unit {
        Unit {
            vm: None,
            affinity: None,
            next: id,
            awake: false,
            on: None,
            since: Instant::ZERO,
            left: TURN,
            ended: 0,
            in_turn: false,
        }
    }
}

/// What [`Turns::of`] must know of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its [`UnitParams::vm`].
    pub vm: Option<u32>,
    /// Its [`UnitParams::affinity`].
    pub affinity: Option<CpuSet>,
    /// Has it work?
    pub awake: bool,
}

/// What a processor does.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    /// The unit that it runs; while it picks, the one that it ran.
    unit: Option<UnitId>,
    /// Does its slice end with the turn, because another vCPU of the VM waits? Set by `pick`, checked by
    /// `ask`.
    is_shared: bool,
    /// While it picks: did the slice before end with the turn?
    was_shared: bool,
    /// Has the policy called it, so that it is about to pick? Set after each call of the policy, cleared by
    /// `pick`, checked by `is_called`.
    called: bool,
    /// Is it about to pick for another reason? Set before each call of the policy, cleared by `pick`.
    asked: bool,
}

/// Turns around a policy; see the module's rules.
#[derive(Clone, Debug)]
pub struct Turns {
    units: Vec<Unit>,
    processors: Vec<Processor>,
    /// Units that wait, unless a processor that is about to pick takes them.
    called: Vec<UnitId>,
    /// Turns that have ended.
    ended: u64,
    /// When the last call was made after which a unit may wait.
    now: Instant,
}

impl Turns {
    /// Around a policy for a pool of `cpus` processors.
    pub fn new(cpus: usize) -> Self {
        let processors = alloc::vec![Processor::default(); cpus];
        Turns { units: Vec::new(), processors, called: Vec::new(), ended: 0, now: Instant::ZERO }
    }

    /// Around a policy that has units already, no two of them of one VM, on `processors`, each with the unit
    /// that it runs.
    pub fn of(
        processors: impl IntoIterator<Item = Option<UnitId>>,
        units: impl IntoIterator<Item = (UnitId, Known)>,
        now: Instant,
    ) -> Self {
        let on = |unit| Processor { unit, ..Processor::default() };
        let processors = processors.into_iter().map(on).collect();
        let mut turns = Turns { units: Vec::new(), processors, called: Vec::new(), ended: 0, now };
        for (id, Known { vm, affinity, awake }) in units {
            turns.make_room(id);
            turns.units[id.index()] = Unit { vm, affinity, awake, since: now, ..Unit::new(id.0) };
        }
        for (cpu, processor) in (0..).map(CpuId).zip(&turns.processors) {
            if let Some(unit) = processor.unit {
                let unit = &mut turns.units[unit.index()];
                (unit.on, unit.in_turn) = (Some(cpu), true);
            }
        }
        turns
    }

    /// The unit, and those with lower numbers, have a place.
    fn make_room(&mut self, unit: UnitId) {
        while self.units.len() <= unit.index() {
            let next = Unit::new(self.units.len() as u32);
            vec_growth::push(&mut self.units, next);
        }
        vec_growth::reserve(&mut self.called, self.units.len());
    }

    fn has_siblings(&self, unit: UnitId) -> bool {
        self.units[unit.index()].next != unit.0
    }

    /// The other vCPUs of the unit's VM.
    fn siblings(&self, unit: UnitId) -> impl Iterator<Item = UnitId> + '_ {
        let next = move |at: &UnitId| Some(UnitId(self.units[at.index()].next)).filter(|next| *next != unit);
        core::iter::successors(next(&unit), next)
    }

    /// Joins the ring of its VM.
    fn join(&mut self, unit: UnitId, vm: Option<u32>) {
        let same = |(id, other): &(usize, &Unit)| *id != unit.index() && other.vm == vm;
        let other = vm.and_then(|_| self.units.iter().enumerate().find(same).map(|(id, _)| id));
        let mut next = unit.0;
        if let Some(index) = other {
            let other = &mut self.units[index];
            // One that was alone has taken no turns; it is in one while it runs.
            if other.next as usize == index {
                other.in_turn = other.on.is_some();
            }
            next = core::mem::replace(&mut other.next, unit.0);
        }
        (self.units[unit.index()].vm, self.units[unit.index()].next) = (vm, next);
    }

    /// Leaves the ring of its VM.
    fn leave(&mut self, unit: UnitId) {
        let next = self.units[unit.index()].next;
        if let Some(before) = self.siblings(unit).last() {
            self.units[before.index()].next = next;
        }
        (self.units[unit.index()].vm, self.units[unit.index()].next) = (None, unit.0);
    }

    fn may_run(&self, inside: &dyn Policy, unit: UnitId, cpu: CpuId) -> bool {
        self.units[unit.index()].affinity.as_ref().is_none_or(|set| set.contains(cpu))
            && inside.account(unit).home.is_none_or(|home| home == cpu)
    }

    /// Has it work, but no processor?
    fn waits(&self, unit: UnitId) -> bool {
        let unit = &self.units[unit.index()];
        unit.awake && unit.on.is_none()
    }

    /// Has the unit just begun to wait, and is a processor, other than `but`, about to pick that may take it?
    fn is_called(&self, inside: &dyn Policy, unit: UnitId, but: Option<CpuId>) -> bool {
        if self.units[unit.index()].since < self.now {
            return false;
        }
        let processors = (0..).map(CpuId).zip(&self.processors);
        let mut called = processors.filter(|(cpu, processor)| processor.called && Some(*cpu) != but);
        called.any(|(cpu, _)| self.may_run(inside, unit, cpu))
    }

    /// Does it wait for `cpu` alone?
    fn waits_for(&self, inside: &dyn Policy, unit: UnitId, cpu: CpuId) -> bool {
        self.waits(unit) && self.may_run(inside, unit, cpu) && !self.is_called(inside, unit, Some(cpu))
    }

    fn turn(&self, unit: UnitId) -> Turn {
        let unit = &self.units[unit.index()];
        (!unit.in_turn, unit.ended)
    }

    /// Its place among the vCPUs of its VM; no two have the same.
    fn place(&self, unit: UnitId) -> (Turn, UnitId) {
        (self.turn(unit), unit)
    }

    /// Of the other vCPUs of the VM that wait for `cpu`, the first behind the place `after`.
    #[inline(never)]
    fn first_waiting(
        &self,
        inside: &dyn Policy,
        unit: UnitId,
        cpu: CpuId,
        after: Option<(Turn, UnitId)>,
    ) -> Option<UnitId> {
        let waiting = self.siblings(unit).filter(|other| self.waits_for(inside, *other, cpu));
        let places = waiting.map(|other| self.place(other));
        places.filter(|place| after.is_none_or(|at| at < *place)).min().map(|(_, other)| other)
    }

    /// `picked` yields `cpu` to the vCPU of its VM whose turn it is, and the slice ends with the turn if
    /// another one waits.
    ///
    /// Not inlined, as those below: their variables are not on a hypervisor's stack while the policy picks.
    #[inline(never)]
    fn take_turn(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        cpu: CpuId,
        (picked, mut slice): (UnitId, Slice),
        resched: &mut CpuSet,
    ) -> Slice {
        let own = self.turn(picked);
        let (mut runs, mut refused) = (picked, None);
        while let Some(first) = self.first_waiting(inside, picked, cpu, refused)
            && self.turn(first) < own
        {
            if let Some(other) = inside.yield_to(now, cpu, first, resched) {
                self.note_called(resched);
                (runs, slice) = (first, other);
                break;
            }
            // It has no budget.
            refused = Some(self.place(first));
        }
        // Also while another processor may take it: it may not.
        let waits = |other| self.waits(other) && self.may_run(inside, other, cpu);
        let is_shared = self.siblings(runs).any(waits);
        self.processors[cpu.index()].is_shared = is_shared;
        if is_shared {
            slice.until = slice.until.min(now + self.units[runs.index()].left);
        }
        slice
    }

    /// Before a call of the policy: notes which processors are about to pick.
    fn note_asked(&mut self, resched: &CpuSet) {
        for cpu in resched.iter() {
            let processor = &mut self.processors[cpu.index()];
            processor.asked |= !processor.called;
        }
    }

    /// After the call: notes which it called.
    fn note_called(&mut self, resched: &CpuSet) {
        for cpu in resched.iter() {
            let processor = &mut self.processors[cpu.index()];
            processor.called |= !processor.asked;
        }
    }

    /// The unit may have begun to wait: then processors that run others of its VM limit their slices, or it
    /// is its turn there.
    fn ask(&mut self, inside: &dyn Policy, unit: UnitId, resched: &mut CpuSet) {
        if !self.waits(unit) || !self.has_siblings(unit) {
            return;
        }
        if self.is_called(inside, unit, None) {
            if !self.called.contains(&unit) {
                self.called.push(unit);
            }
            return;
        }
        let mut at = self.units[unit.index()].next;
        while at != unit.0 {
            let other = &self.units[at as usize];
            at = other.next;
            // Where the slice ends with the turn it is looked at then.
            if let Some(cpu) = other.on
                && !self.processors[cpu.index()].is_shared
                && self.may_run(inside, unit, cpu)
            {
                self.processors[cpu.index()].asked = true;
                resched.insert(cpu);
            }
        }
    }

    /// The vCPUs of the unit's VM may have begun to wait, the unit among them.
    #[inline(never)]
    fn ask_for_all(&mut self, inside: &dyn Policy, unit: UnitId, resched: &mut CpuSet) {
        let mut at = unit;
        loop {
            self.ask(inside, at, resched);
            at = UnitId(self.units[at.index()].next);
            if at == unit {
                return;
            }
        }
    }

    /// A processor has picked: units that it might have taken, but did not, may wait.
    #[inline(never)]
    fn ask_again(&mut self, inside: &dyn Policy, resched: &mut CpuSet) {
        for _ in 0..self.called.len() {
            let unit = self.called.remove(0);
            self.ask(inside, unit, resched);
        }
    }

    /// The processor has picked.
    #[inline(never)]
    fn note_picked(&mut self, inside: &dyn Policy, now: Instant, cpu: CpuId, run: Run, resched: &mut CpuSet) {
        let runs = match run {
            Run::Unit(unit) => Some(unit),
            Run::Idle | Run::IdleFor(_) => None,
        };
        let processor = &mut self.processors[cpu.index()];
        let before = core::mem::replace(&mut processor.unit, runs);
        let turns_end = processor.was_shared && !processor.is_shared;
        if let Some(unit) = runs {
            let own = &mut self.units[unit.index()];
            (own.on, own.in_turn) = (Some(cpu), true);
        }
        if let Some(before) = before.filter(|before| runs != Some(*before)) {
            self.units[before.index()].since = now;
        }
        // Who waited for a turn here may wait for one elsewhere from now on.
        if let Some(before) = before
            && (runs != Some(before) || turns_end)
        {
            self.ask_for_all(inside, before, resched);
        }
        self.ask_again(inside, resched);
    }
}

impl Wrapper for Turns {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        let id = inside.insert(now, params)?;
        self.make_room(id);
        self.units[id.index()] = Unit { affinity: params.affinity.clone(), ..Unit::new(id.0) };
        self.join(id, params.vm);
        Ok(id)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.now = now;
        self.note_asked(resched);
        inside.remove(now, unit, resched);
        self.note_called(resched);
        let sibling = UnitId(self.units[unit.index()].next);
        self.leave(unit);
        self.called.retain(|called| *called != unit);
        let own = &mut self.units[unit.index()];
        own.awake = false;
        if let Some(cpu) = own.on.take() {
            self.processors[cpu.index()].unit = None;
        }
        self.ask_for_all(inside, sibling, resched);
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        self.now = now;
        self.note_asked(resched);
        inside.adjust(now, unit, params, resched)?;
        self.note_called(resched);
        self.units[unit.index()].affinity.clone_from(&params.affinity);
        if self.units[unit.index()].vm != params.vm {
            let sibling = UnitId(self.units[unit.index()].next);
            self.leave(unit);
            self.join(unit, params.vm);
            self.ask_for_all(inside, sibling, resched);
        }
        self.ask_for_all(inside, unit, resched);
        Ok(())
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.now = now;
        self.note_asked(resched);
        inside.wake(now, unit, resched);
        self.note_called(resched);
        let own = &mut self.units[unit.index()];
        if !core::mem::replace(&mut own.awake, true) {
            own.since = now;
            self.ask(inside, unit, resched);
        }
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.note_asked(resched);
        inside.sleep(now, unit, resched);
        self.note_called(resched);
        let own = &mut self.units[unit.index()];
        (own.awake, own.in_turn) = (false, false);
    }

    fn sleep_before_pick(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        cpu: CpuId,
        resched: &mut CpuSet,
    ) {
        self.note_asked(resched);
        inside.sleep_before_pick(now, unit, cpu, resched);
        self.note_called(resched);
        let own = &mut self.units[unit.index()];
        (own.awake, own.in_turn) = (false, false);
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        inside.charge(now, cpu, unit, ran);
        let own = &mut self.units[unit.index()];
        // A budget that idles away is no turn.
        if own.next == unit.0 || !own.awake {
            return;
        }
        own.left = own.left.saturating_sub(ran);
        if own.left.is_zero() {
            self.ended += 1;
            (own.left, own.ended, own.in_turn) = (TURN, self.ended, false);
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
        self.note_asked(resched);
        inside.set_deadline(now, unit, deadline, resched);
        self.note_called(resched);
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.now = now;
        let processor = &mut self.processors[cpu.index()];
        processor.was_shared = core::mem::take(&mut processor.is_shared);
        (processor.called, processor.asked) = (false, false);
        if let Some(before) = processor.unit {
            self.units[before.index()].on = None;
        }
        self.note_asked(resched);
        let mut slice = inside.pick(now, cpu, resched);
        self.note_called(resched);
        if let Run::Unit(picked) = slice.run
            && self.has_siblings(picked)
        {
            slice = self.take_turn(inside, now, cpu, (picked, slice), resched);
        }
        self.note_picked(inside, now, cpu, slice.run, resched);
        slice
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        self.note_asked(resched);
        inside.on_timer(now, resched);
        self.note_called(resched);
    }

    fn ranking(&self, inside: &dyn Policy, cpu: CpuId, out: &mut Vec<UnitId>) {
        inside.ranking(cpu, out);
        let turn = |unit: &UnitId| self.turn(*unit);
        let are_siblings = |one: UnitId, other: &UnitId| self.siblings(one).any(|sibling| sibling == *other);
        let mut at = 0;
        while at < out.len() {
            let unit = out[at];
            let is_ready_sibling =
                |other: &UnitId| self.units[other.index()].awake && are_siblings(unit, other);
            if self.units[unit.index()].awake
                && self.has_siblings(unit)
                && !out[..at].iter().any(is_ready_sibling)
            {
                // The VM stands where its most urgent ready vCPU does. Those whose turn comes before, or
                // would if they woke up, come before it there.
                for behind in at + 1..out.len() {
                    if are_siblings(unit, &out[behind]) && turn(&out[behind]) < turn(&unit) {
                        out[at..=behind].rotate_right(1);
                        at += 1;
                    }
                }
            }
            at += 1;
        }
        // Side by side they stand in the order of their turns, asleep or not.
        for end in 1..out.len() {
            let mut at = end;
            while at > 0 && are_siblings(out[at], &out[at - 1]) && turn(&out[at]) < turn(&out[at - 1]) {
                out.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    /// Whose turn it is decides about the ranking of a VM's vCPUs.
    fn ahead(&self, inside: &dyn Policy, unit: UnitId) -> Option<Ahead> {
        let is_alone = self.units[unit.index()].next == unit.0;
        inside.ahead(unit).filter(|_| is_alone)
    }
}
