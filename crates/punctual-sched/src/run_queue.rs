//! The run queue that the dynamic-priority policies share: the most urgent units of a pool get its
//! processors.
//!
//! One queue for the whole pool, ordered by an urgency `K` (smaller is more urgent) and FIFO among equals; a
//! running unit is not in the queue. A unit may be restricted to some processors, so the queue is kept as one
//! heap per *distinct* affinity in use, and a processor looks at the heads of the heaps that it may serve:
//! one without affinities, one or two when units are pinned.
//!
//! **Tickle.** A unit that becomes ready, or is displaced, asks for one processor in the order of Xen's
//! `runq_tickle` (`xen/common/sched/rt.c`): its previous processor if idle, any idle one, the one that runs
//! the least urgent unit if that is strictly less urgent. Processors already tickled are skipped, since they
//! will look at the queue anyway. Xen leaves one gap there: a processor tickled for X may find that Y, which
//! may run nowhere else, is more urgent; then X waits, though another processor could take it. Here X asks
//! again.
//!
//! **Place in the queue.** A unit is put behind its equals when it becomes ready or its urgency changes; it
//! keeps its place when it is displaced. A running unit keeps its processor against equals, unless it has
//! been demoted (exhaustion, end of a time slice).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::affinity::Affinities;
use crate::cpuset::{CpuId, CpuSet};
use crate::pairing::PairingHeaps;
use crate::policy::{ParamError, UnitId, sort_by_key};
use crate::slots::Slots;

const NONE: u32 = u32::MAX;

/// What the queue knows of a unit, and the policy's own state of it.
#[derive(Debug)]
struct Member<K, T> {
    data: T,
    key: (K, u64),
    /// Index of its affinity.
    class: u32,
    /// Does it want a processor? Set by `ready`, cleared by `unready`, checked by `pick` and `tickle`.
    ready: bool,
    /// Is it present? Cleared while its id is free.
    present: bool,
    /// Processor it was last given, or `NONE`: still there until that processor picks again.
    cpu: u32,
    /// Processor it ran on last; a preference only.
    last: u32,
}

/// What a processor does.
#[derive(Clone, Copy, Debug)]
struct Processor<K> {
    /// The unit that the last pick gave it, or `NONE`.
    unit: u32,
    /// Is that unit still ready? Otherwise the processor counts as idle: it is about to pick.
    busy: bool,
    /// May that unit not run there any more? Set and cleared by `set_affinity`, checked by `pick`.
    forbidden: bool,
    /// Urgency of that unit.
    key: K,
    /// Does that unit give way to equals at the next pick? Set by `demote`, cleared by `pick`.
    yields: bool,
    /// The unit that it was tickled for, or `NONE`; set by `tickle`, cleared by `pick`.
    tickled_for: u32,
}

/// A run queue over `cpus` processors for units with policy state `T`, ordered by `K`.
#[derive(Debug)]
pub struct RunQueue<K, T> {
    members: Slots<Member<K, T>>,
    heaps: PairingHeaps<(K, u64)>,
    affinities: Affinities,
    processors: Vec<Processor<K>>,
    /// Processors that are neither busy nor tickled.
    idle: CpuSet,
    sequence: u64,
}

impl<K, T> Index<UnitId> for RunQueue<K, T> {
    type Output = T;
    #[inline]
    fn index(&self, unit: UnitId) -> &T {
        &self.members[unit.index()].data
    }
}

impl<K, T> IndexMut<UnitId> for RunQueue<K, T> {
    #[inline]
    fn index_mut(&mut self, unit: UnitId) -> &mut T {
        &mut self.members[unit.index()].data
    }
}

/// `Err` about `field` unless `holds`.
pub(crate) fn require(
    holds: bool,
    field: &'static str,
    expected: impl FnOnce() -> Box<str>,
) -> Result<(), ParamError> {
    if holds {
        return Ok(());
    }
    Err(ParamError::OutOfRange { field, expected: expected() })
}

impl<K: Ord + Copy + Default, T> RunQueue<K, T> {
    /// An empty queue over `cpus` idle processors.
    pub fn new(cpus: usize) -> Self {
        let idle = Processor {
            unit: NONE,
            busy: false,
            forbidden: false,
            key: K::default(),
            yields: false,
            tickled_for: NONE,
        };
        RunQueue {
            members: Slots::new(),
            heaps: PairingHeaps::new(0),
            affinities: Affinities::new(cpus),
            processors: alloc::vec![idle; cpus],
            idle: CpuSet::all(cpus),
            sequence: 0,
        }
    }

    /// How many processors the queue serves.
    #[inline]
    pub fn cpus(&self) -> usize {
        self.processors.len()
    }

    /// One more than the greatest unit id given out.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.members.len()
    }

    /// Adds a unit that wants no processor yet and may run on `cpus` (see [`crate::affinity::allowed`]).
    pub fn add(&mut self, cpus: CpuSet, data: T) -> UnitId {
        let last = cpus.iter().next().map_or(0, |cpu| cpu.0);
        let member = Member {
            data,
            key: (K::default(), 0),
            class: self.join(cpus),
            ready: false,
            present: true,
            cpu: NONE,
            last,
        };
        let unit = self.members.insert(member);
        self.heaps.grow(self.members.len());
        unit
    }

    /// Removes a unit; the processor that it ran on must pick again.
    pub fn remove(&mut self, unit: UnitId, resched: &mut CpuSet) {
        self.heaps.remove(unit.index());
        let member = &mut self.members[unit.index()];
        member.ready = false;
        member.present = false;
        let (cpu, class) = (core::mem::replace(&mut member.cpu, NONE), member.class);
        if cpu != NONE {
            self.processors[cpu as usize].unit = NONE;
            self.set_busy(CpuId(cpu), false);
            resched.insert(CpuId(cpu));
        }
        self.affinities.leave(class);
        self.members.remove(unit);
    }

    /// Restricts a unit to `cpus` from now on.
    pub fn set_affinity(&mut self, unit: UnitId, cpus: CpuSet, resched: &mut CpuSet) {
        let old = self.members[unit.index()].class;
        if *self.affinities.cpus(old) == cpus {
            return;
        }
        let class = self.join(cpus);
        self.members[unit.index()].class = class;
        self.affinities.leave(old);
        let member = &self.members[unit.index()];
        if member.cpu != NONE {
            let cpu = CpuId(member.cpu);
            let forbidden = !self.may_run(unit, cpu);
            self.processors[cpu.index()].forbidden = forbidden;
            if forbidden {
                resched.insert(cpu);
            }
        } else if self.heaps.contains(unit.index()) {
            self.heaps.set(class as usize, unit.index(), member.key);
            self.tickle(unit, resched);
        }
    }

    /// May the unit run on `cpu`?
    #[inline]
    pub fn may_run(&self, unit: UnitId, cpu: CpuId) -> bool {
        let class = self.members[unit.index()].class;
        self.affinities.cpus(class).contains(cpu)
    }

    /// The unit that the last pick gave to `cpu`.
    #[inline]
    pub fn current(&self, cpu: CpuId) -> Option<UnitId> {
        match self.processors[cpu.index()].unit {
            NONE => None,
            unit => Some(UnitId(unit)),
        }
    }

    /// The processor that was last given the unit and has not picked since.
    #[inline]
    pub fn cpu_of(&self, unit: UnitId) -> Option<CpuId> {
        match self.members[unit.index()].cpu {
            NONE => None,
            cpu => Some(CpuId(cpu)),
        }
    }

    /// Does the unit want a processor? In a policy whose units are throttled by nothing: is it awake?
    #[inline]
    pub fn is_ready(&self, unit: UnitId) -> bool {
        self.members[unit.index()].ready
    }

    /// The unit wants a processor with urgency `key`, or its urgency changes to `key`; it goes behind equals.
    #[inline(always)]
    pub fn ready(&mut self, unit: UnitId, key: K, resched: &mut CpuSet) {
        self.sequence += 1;
        let member = &mut self.members[unit.index()];
        let more_urgent = !member.ready || key < member.key.0;
        member.ready = true;
        member.key = (key, self.sequence);
        if member.cpu != NONE {
            let cpu = CpuId(member.cpu);
            self.processors[cpu.index()].key = key;
            self.set_busy(cpu, true);
            if let Some((first, head)) = self.head(cpu)
                && head.0 < key
            {
                self.tickle(first, resched);
            }
            return;
        }
        let (class, key) = (member.class as usize, member.key);
        self.heaps.set(class, unit.index(), key);
        if more_urgent {
            self.tickle(unit, resched);
        }
    }

    /// The unit wants no processor any more; if it runs, its processor must pick again. Does nothing to a
    /// unit that wants none.
    #[inline(always)]
    pub fn unready(&mut self, unit: UnitId, resched: &mut CpuSet) {
        let member = &mut self.members[unit.index()];
        if !core::mem::replace(&mut member.ready, false) {
            return;
        }
        if member.cpu != NONE {
            let cpu = CpuId(member.cpu);
            self.set_busy(cpu, false);
            resched.insert(cpu);
        } else {
            self.heaps.remove(unit.index());
        }
    }

    /// The current unit of `cpu` wants no processor any more; called just before `cpu` picks.
    #[inline(always)]
    pub fn stop_current(&mut self, cpu: CpuId) {
        if let Some(unit) = self.current(cpu) {
            self.members[unit.index()].ready = false;
            self.set_busy(cpu, false);
        }
    }

    /// Changes the urgency of the running unit just before its processor picks: it goes behind equals, also
    /// with an unchanged urgency (the end of a time slice).
    pub fn demote(&mut self, unit: UnitId, key: K) {
        self.sequence += 1;
        let member = &mut self.members[unit.index()];
        member.key = (key, self.sequence);
        if member.cpu != NONE {
            let processor = &mut self.processors[member.cpu as usize];
            (processor.key, processor.yields) = (key, true);
        }
    }

    /// Gives `cpu` the most urgent unit that may run there: the current one unless it is not ready, may not
    /// run there any more, or a strictly more urgent one waits (an equal one, if the current unit was
    /// demoted).
    #[inline(always)]
    pub fn pick(&mut self, cpu: CpuId, resched: &mut CpuSet) -> Option<UnitId> {
        let head = self.head(cpu);
        let processor = &mut self.processors[cpu.index()];
        let before = processor.unit;
        let tickled_for = core::mem::replace(&mut processor.tickled_for, NONE);
        let yields = core::mem::replace(&mut processor.yields, false);
        let displaced =
            |(_, head): (UnitId, (K, u64))| head.0 < processor.key || (yields && head.0 == processor.key);
        if processor.busy && !processor.forbidden && !head.is_some_and(displaced) {
            self.ask_again(tickled_for, resched);
            return Some(UnitId(before));
        }
        processor.forbidden = false;
        processor.busy = head.is_some();
        if let Some((unit, key)) = head {
            (processor.unit, processor.key) = (unit.0, key.0);
            self.idle.remove(cpu);
            self.heaps.remove(unit.index());
            let member = &mut self.members[unit.index()];
            (member.cpu, member.last) = (cpu.0, cpu.0);
        } else {
            processor.unit = NONE;
            self.idle.insert(cpu);
        }
        if before != NONE {
            self.put_back(UnitId(before), resched);
        }
        self.ask_again(tickled_for, resched);
        head.map(|(unit, _)| unit)
    }

    /// The most urgent waiting unit that may run on `cpu`.
    #[inline(always)]
    fn head(&self, cpu: CpuId) -> Option<(UnitId, (K, u64))> {
        match *self.affinities.serving(cpu) {
            [class] => self.heaps.peek(class as usize).map(|(id, key)| (UnitId(id as u32), key)),
            ref classes => self.head_of(classes),
        }
    }

    /// The most urgent waiting unit of these affinities.
    #[cold]
    fn head_of(&self, classes: &[u32]) -> Option<(UnitId, (K, u64))> {
        let mut best: Option<(usize, (K, u64))> = None;
        for &class in classes {
            if let Some((id, key)) = self.heaps.peek(class as usize)
                && best.is_none_or(|(_, least)| key < least)
            {
                best = Some((id, key));
            }
        }
        best.map(|(id, key)| (UnitId(id as u32), key))
    }

    #[inline(always)]
    fn set_busy(&mut self, cpu: CpuId, busy: bool) {
        let processor = &mut self.processors[cpu.index()];
        processor.busy = busy;
        if busy {
            self.idle.remove(cpu);
        } else if processor.tickled_for == NONE {
            self.idle.insert(cpu);
        }
    }

    /// The unit has lost its processor; if it is still ready it queues at its old place and looks for
    /// another.
    #[inline(always)]
    fn put_back(&mut self, unit: UnitId, resched: &mut CpuSet) {
        let member = &mut self.members[unit.index()];
        member.cpu = NONE;
        if member.ready {
            let (class, key) = (member.class as usize, member.key);
            self.heaps.set(class, unit.index(), key);
            // With one processor there is no other.
            if self.processors.len() > 1 {
                self.tickle(unit, resched);
            }
        }
    }

    #[inline(always)]
    fn ask_again(&mut self, tickled_for: u32, resched: &mut CpuSet) {
        if tickled_for != NONE && self.heaps.contains(tickled_for as usize) {
            self.tickle(UnitId(tickled_for), resched);
        }
    }

    /// Finds a processor that should take the waiting `unit`, in the order given in the module's
    /// documentation.
    fn tickle(&mut self, unit: UnitId, resched: &mut CpuSet) {
        let member = &self.members[unit.index()];
        let allowed = self.affinities.cpus(member.class);
        let idle = allowed.first_common(&self.idle, CpuId(member.last));
        if let Some(cpu) = idle.or_else(|| self.least_urgent(allowed, member.key.0)) {
            self.processors[cpu.index()].tickled_for = unit.0;
            self.idle.remove(cpu);
            resched.insert(cpu);
        }
    }

    /// The processor that runs the least urgent of the units that are less urgent than `key`.
    #[inline]
    fn least_urgent(&self, allowed: &CpuSet, key: K) -> Option<CpuId> {
        let (mut least, mut worst) = (None, key);
        for cpu in allowed.iter() {
            let processor = &self.processors[cpu.index()];
            if processor.busy && processor.tickled_for == NONE && worst < processor.key {
                (least, worst) = (Some(cpu), processor.key);
            }
        }
        least
    }

    /// Fills `out` with the units that may run on `cpu` and are `eligible`, ready or not, in order of `key`.
    pub fn ranking(
        &self,
        cpu: CpuId,
        out: &mut Vec<UnitId>,
        key: impl Fn(&T) -> K,
        eligible: impl Fn(&T) -> bool,
    ) {
        out.clear();
        let units = (0..self.members.len() as u32).map(UnitId);
        out.extend(units.filter(|&unit| {
            let member = &self.members[unit.index()];
            member.present && self.may_run(unit, cpu) && eligible(&member.data)
        }));
        sort_by_key(out, |unit| {
            let member = &self.members[unit.index()];
            (key(&member.data), member.key.1, unit.0)
        });
    }

    fn join(&mut self, cpus: CpuSet) -> u32 {
        let class = self.affinities.join(cpus);
        self.heaps.grow_heaps(self.affinities.len());
        class
    }
}
