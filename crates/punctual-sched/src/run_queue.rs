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

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::affinity::Affinities;
use crate::cpuset::{CpuId, CpuSet};
use crate::decision::UnitId;
use crate::pairing::{Head, PairingHeaps};
use crate::ranking::rank;
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
    /// Has it work? Set and cleared by `set_awake`, checked by `is_awake`.
    awake: bool,
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
    /// Urgency of that unit, or a greater one that it has until the next pick.
    key: K,
    /// Does that unit give way to equals at the next pick? Set by `demote`, cleared by `pick`.
    yields: bool,
    /// Is `key` that greater one? Set by `yield_to` and `lend`, cleared by `pick`.
    lent: bool,
    /// The unit that it was tickled for, or `NONE`; set by `tickle`, cleared by `pick`.
    tickled_for: u32,
    /// The only affinity in use that contains it; `NONE`: there are several, or none.
    class: u32,
}

/// A run queue over `cpus` processors for units with policy state `T`, ordered by `K`.
#[derive(Debug)]
pub(crate) struct RunQueue<K, T> {
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

impl<K: Ord + Copy + Default, T> RunQueue<K, T> {
    /// An empty queue over `cpus` idle processors.
    pub(crate) fn new(cpus: usize) -> Self {
        let idle = Processor {
            unit: NONE,
            busy: false,
            forbidden: false,
            key: K::default(),
            yields: false,
            lent: false,
            tickled_for: NONE,
            class: NONE,
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
    pub(crate) fn cpus(&self) -> usize {
        self.processors.len()
    }

    /// One more than the greatest unit id given out.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.members.len()
    }

    /// Adds a unit that wants no processor yet and may run on `cpus` (see [`crate::affinity::allowed`]).
    pub(crate) fn add(&mut self, cpus: CpuSet, data: T) -> UnitId {
        let last = cpus.iter().next().map_or(0, |cpu| cpu.0);
        let member = Member {
            data,
            key: (K::default(), 0),
            class: self.join(cpus),
            ready: false,
            present: true,
            awake: false,
            cpu: NONE,
            last,
        };
        let unit = self.members.insert(member);
        self.heaps.grow(self.members.len());
        unit
    }

    /// Removes a unit; the processor that it ran on must pick again.
    pub(crate) fn remove(&mut self, unit: UnitId, resched: &mut CpuSet) {
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
        self.leave(class);
        self.members.remove(unit);
    }

    /// Restricts a unit to `cpus` from now on.
    pub(crate) fn set_affinity(&mut self, unit: UnitId, cpus: CpuSet, resched: &mut CpuSet) {
        let old = self.members[unit.index()].class;
        if *self.affinities.cpus(old) == cpus {
            return;
        }
        let class = self.join(cpus);
        self.members[unit.index()].class = class;
        self.leave(old);
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
    pub(crate) fn may_run(&self, unit: UnitId, cpu: CpuId) -> bool {
        let class = self.members[unit.index()].class;
        self.affinities.cpus(class).contains(cpu)
    }

    /// The unit that the last pick gave to `cpu`.
    #[inline]
    pub(crate) fn current(&self, cpu: CpuId) -> Option<UnitId> {
        match self.processors[cpu.index()].unit {
            NONE => None,
            unit => Some(UnitId(unit)),
        }
    }

    /// The processor that was last given the unit and has not picked since.
    #[inline]
    pub(crate) fn cpu_of(&self, unit: UnitId) -> Option<CpuId> {
        let member = self.members.get(unit.index())?;
        (member.cpu != NONE).then_some(CpuId(member.cpu))
    }

    /// Has the unit work?
    #[inline]
    pub(crate) fn is_awake(&self, unit: UnitId) -> bool {
        self.members[unit.index()].awake
    }

    /// Notes whether the unit has work. The unit's state, if that is a change.
    #[inline(always)]
    pub(crate) fn set_awake(&mut self, unit: UnitId, awake: bool) -> Option<&mut T> {
        let member = &mut self.members[unit.index()];
        let is_change = core::mem::replace(&mut member.awake, awake) != awake;
        is_change.then_some(&mut member.data)
    }

    /// Does the unit want a processor?
    #[inline]
    pub(crate) fn is_ready(&self, unit: UnitId) -> bool {
        self.members[unit.index()].ready
    }

    /// The unit wants a processor with urgency `key`, or its urgency changes to `key`; it goes behind equals.
    #[inline(always)]
    pub(crate) fn ready(&mut self, unit: UnitId, key: K, resched: &mut CpuSet) {
        self.sequence += 1;
        let place = (key, self.sequence);
        let member = &mut self.members[unit.index()];
        let was_ready = core::mem::replace(&mut member.ready, true);
        let before = core::mem::replace(&mut member.key, place).0;
        let (cpu, class, last) = (member.cpu, member.class, CpuId(member.last));
        if cpu != NONE {
            return self.ready_on(CpuId(cpu), key, resched);
        }
        if was_ready {
            self.heaps.remove(unit.index());
        }
        self.heaps.insert(class as usize, unit.index(), place);
        if !was_ready || key < before {
            self.tickle_for(unit, class, last, key, resched);
        }
    }

    /// The unit that was last given to `cpu` is ready with urgency `key`.
    #[inline(never)]
    fn ready_on(&mut self, cpu: CpuId, key: K, resched: &mut CpuSet) {
        self.processors[cpu.index()].key = key;
        self.set_busy(cpu, true);
        if let Some((first, head)) = self.head(cpu)
            && head < key
        {
            self.tickle(first, resched);
        }
    }

    /// The unit wants no processor any more; if it runs, its processor must pick again. Does nothing to a
    /// unit that wants none.
    #[inline(always)]
    pub(crate) fn unready(&mut self, unit: UnitId, resched: &mut CpuSet) {
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
    pub(crate) fn stop_current(&mut self, cpu: CpuId) {
        let processor = &mut self.processors[cpu.index()];
        if processor.unit == NONE {
            return;
        }
        processor.busy = false;
        self.members[processor.unit as usize].ready = false;
        if processor.tickled_for == NONE {
            self.idle.insert(cpu);
        }
    }

    /// Changes the urgency of the running unit just before its processor picks: it goes behind equals, also
    /// with an unchanged urgency (the end of a time slice).
    pub(crate) fn demote(&mut self, unit: UnitId, key: K) {
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
    pub(crate) fn pick(&mut self, cpu: CpuId, resched: &mut CpuSet) -> Option<UnitId> {
        let class = self.most_urgent_class(cpu);
        let head = self.heaps.head(class as usize);
        let processor = &mut self.processors[cpu.index()];
        let before = processor.unit;
        if core::mem::replace(&mut processor.lent, false) && before != NONE {
            processor.key = self.members[before as usize].key.0;
        }
        let tickled_for = core::mem::replace(&mut processor.tickled_for, NONE);
        let yields = core::mem::replace(&mut processor.yields, false);
        if processor.busy && !processor.forbidden {
            let displaced = |head: &Head<'_, (K, u64)>| {
                let key = head.key().0;
                key < processor.key || (yields && key == processor.key)
            };
            if !head.as_ref().is_some_and(displaced) {
                self.ask_again(tickled_for, before, resched);
                return Some(UnitId(before));
            }
        }
        processor.forbidden = false;
        processor.busy = head.is_some();
        let picked = if let Some(head) = head {
            let unit = UnitId(head.id as u32);
            (processor.unit, processor.key) = (unit.0, head.key().0);
            head.take();
            // One that was tickled is not among them.
            if tickled_for == NONE {
                self.idle.remove(cpu);
            }
            let member = &mut self.members[unit.index()];
            (member.cpu, member.last) = (cpu.0, cpu.0);
            Some(unit)
        } else {
            processor.unit = NONE;
            self.idle.insert(cpu);
            None
        };
        if before != NONE {
            self.put_back(UnitId(before), resched);
        }
        self.ask_again(tickled_for, picked.map_or(NONE, |unit| unit.0), resched);
        picked
    }

    /// The unit that `cpu` has just picked yields to the waiting `unit`, and waits at its place. Does `unit`
    /// wait, and may it run there?
    pub(crate) fn yield_to(&mut self, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> bool {
        let before = self.processors[cpu.index()].unit;
        if before == NONE || !self.heaps.contains(unit.index()) || !self.may_run(unit, cpu) {
            return false;
        }
        self.heaps.remove(unit.index());
        let member = &mut self.members[unit.index()];
        (member.cpu, member.last) = (cpu.0, cpu.0);
        let processor = &mut self.processors[cpu.index()];
        (processor.unit, processor.lent) = (unit.0, true);
        processor.key = processor.key.min(member.key.0);
        self.put_back(UnitId(before), resched);
        true
    }

    /// The unit that `cpu` has just picked is at least as urgent as `key` until `cpu` picks again.
    pub(crate) fn lend(&mut self, cpu: CpuId, key: K) {
        let processor = &mut self.processors[cpu.index()];
        (processor.key, processor.lent) = (processor.key.min(key), true);
    }

    /// The most urgent waiting unit that may run on `cpu`, and its urgency.
    #[inline(always)]
    fn head(&self, cpu: CpuId) -> Option<(UnitId, K)> {
        let head = self.heaps.peek(self.most_urgent_class(cpu) as usize);
        head.map(|(id, &(key, _))| (UnitId(id as u32), key))
    }

    /// Of the affinities that contain `cpu` the one with the most urgent waiting unit, or any of them or
    /// `NONE` if no unit waits.
    #[inline(always)]
    fn most_urgent_class(&self, cpu: CpuId) -> u32 {
        match self.processors[cpu.index()].class {
            NONE => self.most_urgent_of(self.affinities.serving(cpu)),
            class => class,
        }
    }

    #[inline(never)]
    fn most_urgent_of(&self, classes: &[u32]) -> u32 {
        let mut best = (NONE, None);
        for &class in classes {
            if let Some((_, key)) = self.heaps.peek(class as usize)
                && best.1.is_none_or(|least| key < least)
            {
                best = (class, Some(key));
            }
        }
        best.0
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
            self.heaps.insert(class, unit.index(), key);
            // A pool of one processor has no other.
            if self.processors.len() > 1 {
                self.tickle(unit, resched);
            }
        }
    }

    /// The unit that a processor was tickled for asks again, unless that processor took it: `picked`.
    #[inline(always)]
    fn ask_again(&mut self, tickled_for: u32, picked: u32, resched: &mut CpuSet) {
        if tickled_for != NONE && tickled_for != picked && self.heaps.contains(tickled_for as usize) {
            self.tickle(UnitId(tickled_for), resched);
        }
    }

    /// Finds a processor that should take the waiting `unit`, in the order given in the module's
    /// documentation.
    #[inline(never)]
    fn tickle(&mut self, unit: UnitId, resched: &mut CpuSet) {
        let member = &self.members[unit.index()];
        let (class, last, key) = (member.class, CpuId(member.last), member.key.0);
        self.tickle_for(unit, class, last, key, resched);
    }

    /// [`RunQueue::tickle`] of a unit of this affinity, previous processor and urgency.
    #[inline(always)]
    fn tickle_for(&mut self, unit: UnitId, class: u32, last: CpuId, key: K, resched: &mut CpuSet) {
        let allowed = self.affinities.cpus(class);
        let idle = allowed.first_common(&self.idle, last);
        if let Some(cpu) = idle.or_else(|| self.least_urgent(allowed, key)) {
            self.processors[cpu.index()].tickled_for = unit.0;
            self.idle.remove(cpu);
            resched.insert(cpu);
        }
    }

    /// The processor that runs the least urgent of the units that are less urgent than `key`.
    #[inline(never)]
    fn least_urgent(&self, allowed: &CpuSet, key: K) -> Option<CpuId> {
        let processors = &self.processors[..];
        let (mut least, mut worst) = (None, key);
        for cpu in allowed.iter() {
            let processor = &processors[cpu.index()];
            if processor.busy && processor.tickled_for == NONE && worst < processor.key {
                (least, worst) = (Some(cpu), processor.key);
            }
        }
        least
    }

    /// Fills `out` with the units that may run on `cpu` and have an `urgency`, ready or not, most urgent
    /// first.
    pub(crate) fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>, urgency: impl Fn(&T) -> Option<K>) {
        let member = |unit: UnitId| &self.members[unit.index()];
        let eligible =
            |unit| member(unit).present && self.may_run(unit, cpu) && urgency(&member(unit).data).is_some();
        let key = |unit| (urgency(&member(unit).data), member(unit).key.1);
        rank(out, self.members.len(), eligible, key);
    }

    fn join(&mut self, cpus: CpuSet) -> u32 {
        let class = self.affinities.join(cpus);
        self.heaps.grow_heaps(self.affinities.len());
        self.set_classes();
        class
    }

    fn leave(&mut self, class: u32) {
        self.affinities.leave(class);
        self.set_classes();
    }

    fn set_classes(&mut self) {
        for (cpu, processor) in (0..).map(CpuId).zip(&mut self.processors) {
            processor.class = match *self.affinities.serving(cpu) {
                [class] => class,
                _ => NONE,
            };
        }
    }
}
