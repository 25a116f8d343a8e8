//! Plain preemptive fixed priority, global over the pool: the guest scheduler of the papers.
//!
//! # Rules
//! Linux SCHED_FIFO with its push and pull between processors (`kernel/sched/rt.c`), and the guest
//! scheduler of Xi et al., *RT-Xen*, EMSOFT 2011, section 3.2.
//!
//! - **State.** Each unit has a priority (a smaller number is more urgent; without one it ranks last) and
//!   may be bound to some processors. There is no budget and no time slice.
//! - **Order.** The most urgent runnable units run, as far as their affinity permits. Equal priorities are
//!   served in the order in which they woke up. A preempted unit keeps its place, ahead of its equals that
//!   woke later, and is never preempted by an equal.
//! - **A unit wakes**: it goes to its last processor if that is idle, else to the lowest idle one, else it
//!   preempts the least urgent running unit (the lowest such processor) if that is strictly less urgent.
//! - **A unit is preempted**: it is pushed to another processor by the same rule.
//! - **A unit sleeps**: its processor pulls the most urgent waiting unit that may run there.
//! - **A slice** never ends by itself.
//! - **New parameters** take effect at once; a changed priority puts the unit behind its new equals.

use crate::heap::IndexedHeap;
use crate::prelude::*;
use crate::ranking::rank;
use crate::slots::Slots;

/// The parameter `priority`, as all fixed-priority policies read it.
pub const PRIORITY: ParamInfo = ParamInfo {
    name: UnitParams::PRIORITY,
    kind: ParamKind::Count { min: 0, max: u32::MAX as u64 },
    default: Some(ParamDefault::Value(OptionValue::Count(u32::MAX as u64))),
    help: "a smaller number is more urgent; the default ranks last",
};

/// Its name in host files and on the command line.
pub const NAME: &str = "fixed-priority";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    unit_params: &[PRIORITY],
    work_conservation: WorkConservation::Always,
    sleep_matters: |_| false,
    has_timers: false,
    test: SchedulabilityTest::FixedPriority,
    linux: OnLinux::without_budgets(LinuxClass::Fifo, None),
    ..PolicyInfo::new(
        NAME,
        "preemptive fixed priority without budgets, FIFO among equals",
        "Linux kernel/sched/rt.c (SCHED_FIFO); rt-xen s.3.2",
        |cpus, _| Ok(Box::new(FixedPriority::new(cpus))),
    )
};

/// Less urgent than every unit: an idle processor.
const IDLE: u64 = u64::MAX;

/// Priority, then order of waking.
type Urgency = (u32, u64);

#[derive(Clone, Debug)]
struct PriorityUnit {
    priority: u32,
    affinity: Option<CpuSet>,
    /// Where the unit ran last: tried first when it wakes.
    last: Option<CpuId>,
    /// Position among equals: set at wake-up and when the priority changes.
    order: u64,
    /// Is this slot in use? Set by insert, cleared by remove, checked by insert and ranking.
    inserted: bool,
    /// Has the unit work? Set by wake, cleared by sleep, checked by both, by pick and by `target`.
    awake: bool,
    /// Did it sleep and wake again before its processor picked, and so lose its place among equals? Set by
    /// wake, cleared and checked by pick.
    requeued: bool,
}

impl PriorityUnit {
    fn may_run_on(&self, cpu: CpuId) -> bool {
        self.affinity.as_ref().is_none_or(|set| set.contains(cpu))
    }

    fn urgency(&self) -> Urgency {
        (self.priority, self.order)
    }
}

/// The policy; see the module's rules.
#[derive(Clone, Debug)]
pub struct FixedPriority {
    units: Slots<PriorityUnit>,
    /// Units with work that do not run.
    waiting: IndexedHeap<Urgency>,
    running: Vec<Option<UnitId>>,
    /// The priority of a unit that yielded to the one that runs; [`IDLE`] without one. Set by `yield_to`,
    /// cleared by pick, checked by `running_priority`.
    lent: Vec<u64>,
    /// Is the processor about to pick? Set by `tickle`, cleared by pick, checked by `target` so that two
    /// units that wake at once do not both count on the same processor.
    tickled: CpuSet,
    wakeups: u64,
}

impl FixedPriority {
    /// For a pool of `cpus` processors.
    pub fn new(cpus: usize) -> Self {
        FixedPriority {
            units: Slots::new(),
            waiting: IndexedHeap::new(0),
            running: alloc::vec![None; cpus],
            lent: alloc::vec![IDLE; cpus],
            tickled: CpuSet::new(cpus),
            wakeups: 0,
        }
    }

    /// Priority of what the processor runs; [`IDLE`] also if that has just gone to sleep.
    #[inline]
    fn running_priority(&self, cpu: CpuId) -> u64 {
        match self.running[cpu.index()].map(|unit| &self.units[unit.index()]) {
            Some(unit) if unit.awake => u64::from(unit.priority).min(self.lent[cpu.index()]),
            _ => IDLE,
        }
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.running.len() as u32).map(CpuId)
    }

    /// The processor that `unit` should run on now, if it may preempt what runs there.
    fn target(&self, unit: &PriorityUnit) -> Option<CpuId> {
        let own = u64::from(unit.priority);
        let usable = |cpu: CpuId| unit.may_run_on(cpu) && !self.tickled.contains(cpu);
        if let Some(last) = unit.last
            && self.running_priority(last) == IDLE
            && usable(last)
        {
            return Some(last);
        }
        let mut best = None;
        let mut least_urgent = own;
        for cpu in self.cpus() {
            let runs = self.running_priority(cpu);
            if runs > least_urgent && usable(cpu) {
                best = Some(cpu);
                least_urgent = runs;
            }
        }
        best
    }

    #[inline]
    fn tickle(&mut self, unit: UnitId, resched: &mut CpuSet) {
        if let Some(cpu) = self.target(&self.units[unit.index()]) {
            self.tickled.insert(cpu);
            resched.insert(cpu);
        }
    }

    /// Tickles for the most urgent waiting unit that may preempt somewhere.
    fn push(&mut self, resched: &mut CpuSet) {
        let least_urgent = self.cpus().map(|cpu| self.running_priority(cpu)).max().unwrap_or(0);
        let candidate = self.waiting.peek_where(|id| {
            let unit = &self.units[id];
            u64::from(unit.priority) >= least_urgent || self.target(unit).is_some()
        });
        if let Some((id, _)) = candidate {
            self.tickle(UnitId(id as u32), resched);
        }
    }

    /// The processor that the unit was last given to, if that has not picked anything else since.
    #[inline]
    fn cpu_of(&self, unit: UnitId) -> Option<CpuId> {
        let last = self.units[unit.index()].last;
        last.filter(|cpu| self.running[cpu.index()] == Some(unit))
    }

    /// May a waiting unit of this urgency take the place of `running`? Of an equal only if that has slept
    /// meanwhile.
    #[inline]
    fn preempts(&self, (priority, order): Urgency, running: UnitId) -> bool {
        let running = &self.units[running.index()];
        priority < running.priority || running.requeued && (priority, order) < running.urgency()
    }

    fn next_order(&mut self) -> u64 {
        self.wakeups += 1;
        self.wakeups
    }
}

impl Policy for FixedPriority {
    fn insert(&mut self, _now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        params.check_affinity(self.running.len())?;
        let unit = PriorityUnit {
            priority: params.priority.unwrap_or(u32::MAX),
            affinity: params.affinity.clone(),
            last: None,
            order: 0,
            inserted: true,
            awake: false,
            requeued: false,
        };
        let id = self.units.insert(unit);
        self.waiting.grow(self.units.len());
        Ok(id)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        match self.cpu_of(unit) {
            Some(cpu) => {
                self.running[cpu.index()] = None;
                resched.insert(cpu);
            }
            None => self.waiting.remove(unit.index()),
        }
        self.units[unit.index()].inserted = false;
        self.units.remove(unit);
    }

    fn adjust(
        &mut self,
        _now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        params.check_affinity(self.running.len())?;
        let order = self.next_order();
        let slot = &mut self.units[unit.index()];
        let priority = params.priority.unwrap_or(u32::MAX);
        if priority != slot.priority {
            slot.priority = priority;
            slot.order = order;
        }
        slot.affinity.clone_from(&params.affinity);
        if self.waiting.contains(unit.index()) {
            self.waiting.set(unit.index(), self.units[unit.index()].urgency());
            self.tickle(unit, resched);
        } else if let Some(cpu) = self.cpu_of(unit) {
            resched.insert(cpu);
        }
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if self.units[unit.index()].awake {
            return;
        }
        let order = self.next_order();
        let slot = &mut self.units[unit.index()];
        slot.awake = true;
        slot.order = order;
        if let Some(cpu) = self.cpu_of(unit) {
            self.units[unit.index()].requeued = true;
            resched.insert(cpu);
            return;
        }
        self.waiting.set(unit.index(), self.units[unit.index()].urgency());
        self.tickle(unit, resched);
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if !self.units[unit.index()].awake {
            return;
        }
        self.units[unit.index()].awake = false;
        match self.cpu_of(unit) {
            Some(cpu) => resched.insert(cpu),
            None => self.waiting.remove(unit.index()),
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, _unit: UnitId, _ran: Duration) {}

    #[inline(always)]
    fn pick(&mut self, _now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.tickled.remove(cpu);
        self.lent[cpu.index()] = IDLE;
        let current = self.running[cpu.index()];
        let awake = current.filter(|unit| self.units[unit.index()].awake);
        let stays = awake.filter(|unit| self.units[unit.index()].may_run_on(cpu));
        let best = self.waiting.peek_where(|id| self.units[id].may_run_on(cpu));
        let best = best.filter(|&(_, urgency)| stays.is_none_or(|unit| self.preempts(urgency, unit)));
        let chosen = best.map(|(id, _)| UnitId(id as u32)).or(stays);
        if chosen != current {
            if let Some(unit) = awake {
                self.waiting.set(unit.index(), self.units[unit.index()].urgency());
            }
            if let Some(unit) = chosen {
                self.waiting.remove(unit.index());
                self.units[unit.index()].last = Some(cpu);
            }
            self.running[cpu.index()] = chosen;
        }
        if let Some(unit) = current {
            self.units[unit.index()].requeued = false;
        }
        if self.running.len() > 1 && !self.waiting.is_empty() {
            self.push(resched);
        }
        Slice { run: chosen.map_or(Run::Idle, Run::Unit), until: Instant::NEVER }
    }

    fn yield_to(&mut self, _now: Instant, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> Option<Slice> {
        let before = self.running[cpu.index()]?;
        if !self.waiting.contains(unit.index()) || !self.units[unit.index()].may_run_on(cpu) {
            return None;
        }
        self.waiting.remove(unit.index());
        self.waiting.set(before.index(), self.units[before.index()].urgency());
        self.units[unit.index()].last = Some(cpu);
        self.running[cpu.index()] = Some(unit);
        self.lent[cpu.index()] = u64::from(self.units[before.index()].priority);
        if self.running.len() > 1 {
            self.tickle(before, resched);
        }
        Some(Slice { run: Run::Unit(unit), until: Instant::NEVER })
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        let unit = |id: UnitId| &self.units[id.index()];
        let eligible = |id| unit(id).inserted && unit(id).may_run_on(cpu);
        rank(out, self.units.len(), eligible, |id| unit(id).urgency());
    }
}
