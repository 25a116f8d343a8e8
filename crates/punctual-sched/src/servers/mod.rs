//! Fixed-priority servers: what deferrable, periodic, polling and sporadic server have in common.
//!
//! # Rules
//! Xi, Wilson, Lu, Gill, *RT-Xen*, EMSOFT 2011, sections 4.1 and 4.2; the dual resolution of Xi, Li, Lu,
//! Gill, *Limitations and Solutions for Real-Time Local Inter-Domain Communication in Xen*, WUCSE-2012-81,
//! section III.
//!
//! - **State.** A unit has a budget, a period (0 < budget <= period) and an arbitrary priority: a smaller
//!   number is more urgent, ties in the order of insertion; a unit without a priority ranks below all that
//!   have one. It is *eligible* while it has budget left. Among eligible units, scheduling is preemptive by
//!   priority.
//! - **Partitioned.** A unit lives on one home processor. Where its affinity leaves a choice, that is the
//!   allowed processor with the least total utilization (sum of budget / period) at insertion, ties to the
//!   lowest number. It moves only when new parameters forbid its home.
//! - **Three queues per processor.** RunQ: units with work; RdyQ: units without; RepQ: the replenishments to
//!   come. Here RunQ and RdyQ hold the units *with budget left*, as bit sets over the rank, and units without
//!   budget are in neither; the RepQs of all processors are one heap ordered by time.
//! - **When budget is consumed.** While the unit runs; more than what is left is never taken (the overrun of
//!   a late driver costs nothing). *Exact* accounting takes what ran, to the nanosecond. *Quantum* accounting
//!   takes, at every decision, what ran since the previous decision, rounded to the nearest quantum (half
//!   rounds up), as RT-Xen was first published: a unit that always runs for less than half a quantum is never
//!   charged. A run at least as long as the budget left takes all of it, whatever its length in quanta.
//! - **When budget comes back.** The rule of each server: [`deferrable`], [`periodic`], [`polling`],
//!   [`sporadic`]. Replenishment times are computed from the times at which they were due, so a late driver
//!   delays a replenishment but shifts none of the following.
//! - **Decisions.** A slice ends after a quantum or when the budget left is used up, whichever is first;
//!   `quantum = "exact"` leaves only the second. A wake-up, a sleep, a replenishment or new parameters ask
//!   for a decision if they change what the processor should do. An idle processor decides when one does;
//!   with `idle = "quantum"` after a quantum as well, as RT-Xen's tick has it (section 4.2).
//! - **New parameters.** The priority counts at once. Budget and period count from the next replenishment on
//!   (but see [`sporadic`]): the period that is under way keeps its end and its budget.
//! - **Counters.** Exhaustions count how often consumption brought the budget to zero, replenishments how
//!   often a replenishment took place.
//!
//! # Timelines
//! Each server's file draws what the server does with the same work. The unit has 3 ms in every 10 ms and its
//! processor for itself. 5 ms of work arrive at 8 and 1 ms at 26 (`v`). The unit runs at `#`; its budget
//! idles away at `~`. `left` is its budget at the beginning of each millisecond. `tests/drawings.rs` draws
//! them too.

pub mod deferrable;
mod every_period;
pub mod periodic;
pub mod polling;
pub mod sporadic;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bitmap::RankSet;
use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, Timer, UnitId};
use crate::fixed_priority::PRIORITY;
use crate::heap::IndexedHeap;
use crate::homes::Homes;
use crate::info::{Budgets, OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Ahead, Asleep, Policy, Urgency};
use crate::slots::Slots;
use crate::time::{Duration, Instant};
use crate::utilization::Utilization;
use crate::vec_growth;

pub use every_period::EveryPeriod;
pub use sporadic::Sporadic;

/// The parameters of a unit that every server reads.
const UNIT_PARAMS: &[ParamInfo] = &[
    ParamInfo {
        name: UnitParams::BUDGET,
        kind: ParamKind::Duration,
        default: None,
        help: "processor time per period",
    },
    ParamInfo {
        name: UnitParams::PERIOD,
        kind: ParamKind::Duration,
        default: None,
        help: "replenishment period; at least the budget",
    },
    PRIORITY,
];

/// What all servers do with budgets: any is accepted that is longer than zero.
const BUDGETS: Budgets = Budgets::Server { min: Duration::from_ns(1) };

/// The option `quantum`; see [`quantum`]. The default is RT-Xen's choice (rt-xen s.5.2).
pub const QUANTUM: ParamInfo = ParamInfo {
    name: "quantum",
    kind: ParamKind::DurationOr(&[EXACT]),
    default: Some(ParamDefault::Value(OptionValue::Duration(Duration::from_ms(1)))),
    help: "longest time between two decisions while a unit runs; \"exact\": only when something changes",
};

/// The option `accounting`: [`EXACT`] or [`IN_QUANTA`].
pub const ACCOUNTING: ParamInfo = ParamInfo {
    name: "accounting",
    kind: ParamKind::Choice(&[EXACT, IN_QUANTA]),
    default: Some(ParamDefault::Value(OptionValue::Word(EXACT))),
    help: "what a run is charged: what it took, or that rounded to the nearest quantum (breaks isolation)",
};

/// The option `idle`: [`UNTIL_WORK`] or [`IN_QUANTA`].
pub const IDLE: ParamInfo = ParamInfo {
    name: "idle",
    kind: ParamKind::Choice(&[UNTIL_WORK, IN_QUANTA]),
    default: Some(ParamDefault::Value(OptionValue::Word(UNTIL_WORK))),
    help: "when an idle processor decides: if something changes, or after a quantum as well, as in RT-Xen",
};

/// The word of [`IDLE`] for "if something changes".
pub const UNTIL_WORK: &str = "until-work";

/// The word of [`QUANTUM`] and [`ACCOUNTING`] for "no quantum".
pub const EXACT: &str = "exact";

/// The word of [`ACCOUNTING`] and [`IDLE`] for "in quanta".
pub const IN_QUANTA: &str = "quantum";

/// The longest slice that the options allow; `None`: slices end only when something changes.
pub fn quantum(options: &Options) -> Option<Duration> {
    match options.value(&QUANTUM) {
        OptionValue::Duration(quantum) => Some(quantum),
        _ => None,
    }
}

/// What a unit is charged for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accounting {
    /// What it took.
    Exact,
    /// At each decision, what it took since the last one, in quanta of this length.
    Quantum(Duration),
}

/// The options that all servers share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The longest slice; [`Duration::MAX`] for `quantum = "exact"`.
    slice_max: Duration,
    /// The longest time between two decisions of an idle processor; [`Duration::MAX`] for no end.
    idle_max: Duration,
    accounting: Accounting,
}

impl Settings {
    /// Reads `quantum`, `accounting` and `idle`.
    ///
    /// # Errors
    /// A quantum of zero, and quantum accounting or idle quanta without a quantum.
    pub fn from_options(options: &Options) -> Result<Settings, OptionError> {
        let slice_max = quantum(options).unwrap_or(Duration::MAX);
        if slice_max.is_zero() {
            return Err(OptionError {
                option: QUANTUM.name,
                expected: "longer than zero, or \"exact\"".into(),
            });
        }
        let accounting = match options.word(&ACCOUNTING) {
            IN_QUANTA if slice_max == Duration::MAX => {
                return Err(OptionError {
                    option: ACCOUNTING.name,
                    expected: "\"exact\" when the quantum is \"exact\"".into(),
                });
            }
            IN_QUANTA => Accounting::Quantum(slice_max),
            _ => Accounting::Exact,
        };
        let idle_max = match options.word(&IDLE) {
            IN_QUANTA if slice_max == Duration::MAX => {
                return Err(OptionError {
                    option: IDLE.name,
                    expected: "\"until-work\" when the quantum is \"exact\"".into(),
                });
            }
            IN_QUANTA => slice_max,
            _ => Duration::MAX,
        };
        Ok(Settings { slice_max, idle_max, accounting })
    }
}

/// A unit's budget, as a replenishment rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// What is left.
    pub left: Duration,
    /// The most that can be left: the budget of the last replenishment.
    pub max: Duration,
    /// The budget to replenish.
    pub budget: Duration,
    /// The replenishment period.
    pub period: Duration,
}

/// What happens to the budget of a unit without work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithoutWork {
    /// It stays.
    Keep,
    /// It idles away while the unit is the most urgent eligible one.
    IdleAway,
    /// It is dropped at the next decision.
    Discard,
}

/// How budget comes back: what makes one server differ from another.
///
/// `unit` is the index of a unit; the rule keeps what it needs for each. Only [`Rule::inserted`] and
/// [`Rule::adjusted`] may allocate.
pub trait Rule: Send {
    /// What happens to the budget of a unit without work.
    fn without_work(&self) -> WithoutWork;

    /// A unit was inserted at `now`: sets `budget.left` and returns when the first replenishment is due, if
    /// any.
    fn inserted(&mut self, now: Instant, unit: usize, budget: &mut Budget) -> Option<Instant>;

    /// The unit got new parameters, `budget.budget` and `budget.period`, in place of `old_budget` and an old
    /// period; a replenishment was due at `next`. Returns when one is due now.
    fn adjusted(
        &mut self,
        now: Instant,
        unit: usize,
        old_budget: Duration,
        budget: &mut Budget,
        next: Option<Instant>,
    ) -> Option<Instant>;

    /// Does each replenishment give the whole budget, a period after the one before, whatever the unit ran?
    fn is_periodic(&self) -> bool {
        false
    }

    /// The unit ran for `ran` up to `now`.
    fn ran(&mut self, now: Instant, unit: usize, ran: Duration) {
        let _ = (now, unit, ran);
    }

    /// `consumed` was taken from what the unit had left.
    fn consumed(&mut self, unit: usize, consumed: Duration) {
        let _ = (unit, consumed);
    }

    /// A contiguous stretch of execution is over: the unit used up its budget, went to sleep, or another unit
    /// was chosen. Returns when its next replenishment is due, unless the stretch changed nothing.
    fn stretch_ended(&mut self, unit: usize, period: Duration) -> Option<Instant> {
        let _ = (unit, period);
        None
    }

    /// The replenishment due at `at` takes place. Returns when the next one is due, if any is.
    fn replenish(&mut self, at: Instant, unit: usize, budget: &mut Budget) -> Option<Instant>;
}

#[derive(Clone, Debug)]
struct ServerUnit {
    budget: Budget,
    priority: u32,
    /// Insertion number: decides between equal priorities.
    order: u64,
    home: CpuId,
    /// Position on the home processor by urgency.
    rank: usize,
    exhaustions: u64,
    replenishments: u64,
    /// Has the unit work? Set by wake, cleared by sleep, checked by both, by `place` and at a replenishment.
    awake: bool,
    /// Must the unit move, though it runs at home just now? Set by adjust, cleared and carried out by the
    /// home's next pick.
    moves_to: Option<CpuId>,
}

impl ServerUnit {
    /// Smaller is more urgent; no two units have the same.
    fn urgency(&self) -> (u32, u64) {
        (self.priority, self.order)
    }
}

#[derive(Clone, Debug)]
struct Processor {
    /// All units that live here, most urgent first.
    by_rank: Vec<u32>,
    /// RunQ: ranks of the units with budget and work.
    run_queue: RankSet,
    /// RdyQ: ranks of the units with budget and no work.
    ready_queue: RankSet,
    /// The last decision.
    current: Run,
    /// Quantum accounting: what `current` ran since the last decision, not charged yet.
    unsettled: Duration,
    /// Are ranks and queues out of date? Set when a unit moves in or out, checked and cleared by `refresh`
    /// before the next decision, checked by `place`: many units can come at once, each at the cost of one.
    stale: bool,
}

/// Fixed-priority servers with the replenishment rule `R`; see the module's rules.
#[derive(Clone, Debug)]
pub struct Servers<R> {
    rule: R,
    settings: Settings,
    units: Slots<ServerUnit>,
    processors: Vec<Processor>,
    homes: Homes<Utilization>,
    /// RepQ of all processors: each unit's next replenishment.
    replenishments: IndexedHeap<Instant>,
    insertions: u64,
}

impl<R: Rule> Servers<R> {
    /// Servers with `rule` for a pool of `cpus` processors.
    pub fn new(cpus: usize, settings: Settings, rule: R) -> Self {
        let processor = Processor {
            by_rank: Vec::new(),
            run_queue: RankSet::new(0),
            ready_queue: RankSet::new(0),
            current: Run::Idle,
            unsettled: Duration::ZERO,
            stale: false,
        };
        Servers {
            rule,
            settings,
            units: Slots::new(),
            processors: alloc::vec![processor; cpus],
            homes: Homes::new(cpus),
            replenishments: IndexedHeap::new(0),
            insertions: 0,
        }
    }

    /// The replenishment rule and its state.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// What the processor should do: the decision without its consequences.
    #[inline]
    fn decide(&self, cpu: CpuId) -> Run {
        let processor = &self.processors[cpu.index()];
        let by_rank = |rank: usize| UnitId(processor.by_rank[rank]);
        let run = processor.run_queue.first();
        if self.rule.without_work() == WithoutWork::IdleAway
            && let Some(ready) = processor.ready_queue.first()
            && run.is_none_or(|run| ready < run)
        {
            return Run::IdleFor(by_rank(ready));
        }
        run.map_or(Run::Idle, |rank| Run::Unit(by_rank(rank)))
    }

    /// Asks for a decision if it would change what the processor does.
    #[inline]
    fn tickle(&mut self, cpu: CpuId, resched: &mut CpuSet) {
        self.refresh(cpu);
        if self.decide(cpu) != self.processors[cpu.index()].current {
            resched.insert(cpu);
        }
    }

    /// Puts the unit into RunQ, RdyQ or, without budget, neither.
    #[inline]
    fn place(&mut self, unit: UnitId) {
        let unit = &self.units[unit.index()];
        let processor = &mut self.processors[unit.home.index()];
        if processor.stale {
            return;
        }
        let eligible = !unit.budget.left.is_zero();
        processor.run_queue.assign(unit.rank, eligible && unit.awake);
        processor.ready_queue.assign(unit.rank, eligible && !unit.awake);
    }

    /// Takes `consumed` from the unit's budget.
    #[inline]
    fn consume(&mut self, unit: UnitId, consumed: Duration) {
        let budget = &mut self.units[unit.index()].budget;
        let consumed = consumed.min(budget.left);
        if consumed.is_zero() {
            return;
        }
        budget.left -= consumed;
        let exhausted = budget.left.is_zero();
        self.rule.consumed(unit.index(), consumed);
        if exhausted {
            self.units[unit.index()].exhaustions += 1;
            self.place(unit);
            self.end_stretch(unit);
        }
    }

    /// Quantum accounting: charges what ran on `cpu` since the last decision.
    #[inline]
    fn settle(&mut self, cpu: CpuId) {
        let Accounting::Quantum(quantum) = self.settings.accounting else {
            return;
        };
        let processor = &mut self.processors[cpu.index()];
        let ran = core::mem::take(&mut processor.unsettled);
        let Some(unit) = processor.current.charged() else {
            return;
        };
        let left = self.units[unit.index()].budget.left;
        let consumed = if ran >= left {
            left
        } else {
            let half = Duration::from_ns(quantum.as_ns().div_ceil(2));
            quantum * (ran + half).div_floor(quantum)
        };
        self.consume(unit, consumed);
    }

    #[inline]
    fn end_stretch(&mut self, unit: UnitId) {
        let period = self.units[unit.index()].budget.period;
        if let Some(at) = self.rule.stretch_ended(unit.index(), period) {
            self.replenishments.set(unit.index(), at);
        }
    }

    #[inline]
    fn set_timer(&mut self, unit: UnitId, at: Option<Instant>) {
        match at {
            Some(at) => self.replenishments.set(unit.index(), at),
            None => self.replenishments.remove(unit.index()),
        }
    }

    /// Every unit without work loses its budget.
    #[inline]
    fn discard(&mut self, cpu: CpuId) {
        let processor = &mut self.processors[cpu.index()];
        while let Some(rank) = processor.ready_queue.first() {
            let unit = processor.by_rank[rank] as usize;
            self.units[unit].budget.left = Duration::ZERO;
            processor.ready_queue.remove(rank);
        }
    }

    /// The allowed processor with the least utilization.
    fn least_utilized(&self, affinity: Option<&CpuSet>) -> CpuId {
        let allowed = (0..self.processors.len())
            .map(|cpu| CpuId(cpu as u32))
            .filter(|&cpu| affinity.is_none_or(|set| set.contains(cpu)));
        self.homes.least_loaded(allowed)
    }

    /// Lets `cpu` take in one unit more, and all that are about to move, without allocation.
    fn make_room(&mut self, cpu: CpuId) {
        let moving = self.processors.iter().filter_map(|p| p.current.charged());
        let moving = moving.filter(|unit| self.units[unit.index()].moves_to.is_some()).count();
        let processor = &mut self.processors[cpu.index()];
        let units = processor.by_rank.len() + 1 + moving;
        vec_growth::reserve(&mut processor.by_rank, units);
        processor.run_queue.reserve(units);
        processor.ready_queue.reserve(units);
    }

    /// Adds the unit to its home processor.
    fn move_in(&mut self, id: UnitId) {
        let unit = &self.units[id.index()];
        let (cpu, urgency) = (unit.home, unit.urgency());
        self.homes.settle_on(cpu, utilization(&unit.budget));
        let units = &self.units;
        let home = &mut self.processors[cpu.index()];
        let rank = home.by_rank.partition_point(|&other| units[other as usize].urgency() < urgency);
        home.by_rank.insert(rank, id.0);
        home.stale = true;
    }

    /// Takes the unit off its home processor.
    fn move_out(&mut self, id: UnitId) {
        let unit = &self.units[id.index()];
        let cpu = unit.home;
        let home = &mut self.processors[cpu.index()];
        home.by_rank.retain(|&other| other != id.0);
        self.homes.leave(cpu, utilization(&unit.budget));
        home.stale = true;
    }

    fn move_to(&mut self, id: UnitId, home: CpuId, resched: &mut CpuSet) {
        self.move_out(id);
        let unit = &mut self.units[id.index()];
        unit.home = home;
        unit.moves_to = None;
        self.move_in(id);
        self.tickle(home, resched);
    }

    /// Numbers the ranks of `cpu` again and refills its queues if units came or went.
    #[inline]
    fn refresh(&mut self, cpu: CpuId) {
        if self.processors[cpu.index()].stale {
            self.renumber(cpu);
        }
    }

    #[cold]
    fn renumber(&mut self, cpu: CpuId) {
        let processor = &mut self.processors[cpu.index()];
        processor.stale = false;
        let by_rank = core::mem::take(&mut processor.by_rank);
        processor.run_queue.reset(by_rank.len());
        processor.ready_queue.reset(by_rank.len());
        for (rank, &id) in by_rank.iter().enumerate() {
            self.units[id as usize].rank = rank;
            self.place(UnitId(id));
        }
        self.processors[cpu.index()].by_rank = by_rank;
    }

    #[inline]
    fn is_current(&self, unit: UnitId) -> bool {
        let home = self.units[unit.index()].home;
        self.processors[home.index()].current.charged() == Some(unit)
    }
}

impl<R: Rule> Policy for Servers<R> {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let (budget, period) = budget_and_period(params)?;
        params.check_affinity(self.processors.len())?;
        let home = self.least_utilized(params.affinity.as_ref());
        let unit = ServerUnit {
            budget: Budget { left: Duration::ZERO, max: budget, budget, period },
            priority: params.priority.unwrap_or(u32::MAX),
            order: self.insertions,
            home,
            rank: 0,
            exhaustions: 0,
            replenishments: 0,
            awake: false,
            moves_to: None,
        };
        self.insertions += 1;
        let id = self.units.insert(unit);
        self.replenishments.grow(self.units.len());
        self.make_room(home);
        let budget = &mut self.units[id.index()].budget;
        let first = self.rule.inserted(now, id.index(), budget);
        self.set_timer(id, first);
        self.move_in(id);
        Ok(id)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let home = self.units[unit.index()].home;
        if self.is_current(unit) {
            let processor = &mut self.processors[home.index()];
            processor.current = Run::Idle;
            processor.unsettled = Duration::ZERO;
            resched.insert(home);
        }
        self.replenishments.remove(unit.index());
        self.move_out(unit);
        self.units.remove(unit);
    }

    fn adjust(
        &mut self,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let (budget, period) = budget_and_period(params)?;
        params.check_affinity(self.processors.len())?;
        self.move_out(unit);
        let next = self.replenishments.key(unit.index());
        let slot = &mut self.units[unit.index()];
        let home = slot.home;
        let old_budget = core::mem::replace(&mut slot.budget.budget, budget);
        slot.budget.period = period;
        slot.priority = params.priority.unwrap_or(u32::MAX);
        slot.moves_to = None;
        let next = self.rule.adjusted(now, unit.index(), old_budget, &mut slot.budget, next);
        self.set_timer(unit, next);
        self.move_in(unit);
        let allowed = params.affinity.as_ref();
        if !allowed.is_none_or(|set| set.contains(home)) {
            let new_home = self.least_utilized(allowed);
            self.make_room(new_home);
            if self.is_current(unit) {
                self.units[unit.index()].moves_to = Some(new_home);
                resched.insert(home);
            } else {
                self.move_to(unit, new_home, resched);
            }
        }
        self.tickle(home, resched);
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let slot = &mut self.units[unit.index()];
        if slot.awake {
            return;
        }
        slot.awake = true;
        let home = slot.home;
        self.place(unit);
        self.tickle(home, resched);
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if !self.units[unit.index()].awake {
            return;
        }
        if self.is_current(unit) {
            let home = self.units[unit.index()].home;
            self.settle(home);
            self.end_stretch(unit);
            resched.insert(home);
        }
        self.units[unit.index()].awake = false;
        self.place(unit);
    }

    #[inline(always)]
    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        self.rule.ran(now, unit.index(), ran);
        match self.settings.accounting {
            Accounting::Exact => self.consume(unit, ran),
            Accounting::Quantum(_) => self.processors[cpu.index()].unsettled += ran,
        }
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        self.settle(cpu);
        let before = self.processors[cpu.index()].current;
        if let Some(unit) = before.charged()
            && let Some(new_home) = self.units[unit.index()].moves_to
        {
            self.processors[cpu.index()].current = Run::Idle;
            self.move_to(unit, new_home, resched);
        }
        self.refresh(cpu);
        if self.rule.without_work() == WithoutWork::Discard {
            self.discard(cpu);
        }
        let run = self.decide(cpu);
        if run != before
            && let Run::Unit(unit) = before
        {
            self.end_stretch(unit);
        }
        self.processors[cpu.index()].current = run;
        let longest = run.charged().map_or(self.settings.idle_max, |unit| {
            let left = self.units[unit.index()].budget.left;
            left.min(self.settings.slice_max)
        });
        Slice { run, until: now + longest }
    }

    fn yield_to(&mut self, now: Instant, cpu: CpuId, unit: UnitId, _resched: &mut CpuSet) -> Option<Slice> {
        let Run::Unit(before) = self.processors[cpu.index()].current else { return None };
        let slot = &self.units[unit.index()];
        let left = slot.budget.left;
        if slot.home != cpu || !slot.awake || left.is_zero() {
            return None;
        }
        self.end_stretch(before);
        self.processors[cpu.index()].current = Run::Unit(unit);
        Some(Slice { run: Run::Unit(unit), until: now + left.min(self.settings.slice_max) })
    }

    #[inline(always)]
    fn next_timer(&self) -> Timer {
        let Some((id, at)) = self.replenishments.peek() else {
            return Timer::NEVER;
        };
        let runs = self.is_current(UnitId(id as u32));
        Timer { at, charge: runs.then_some(self.units[id].home) }
    }

    #[inline(always)]
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let Some((id, at)) = self.replenishments.peek() else {
            return;
        };
        if at > now {
            return;
        }
        let unit = &mut self.units[id];
        let next = self.rule.replenish(at, id, &mut unit.budget);
        unit.replenishments += 1;
        let (home, awake) = (unit.home, unit.awake);
        self.set_timer(UnitId(id as u32), next);
        self.place(UnitId(id as u32));
        if !awake && self.rule.without_work() == WithoutWork::Discard {
            resched.insert(home);
        }
        self.tickle(home, resched);
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        out.clear();
        let units = self.processors[cpu.index()].by_rank.iter();
        let eligible = |id: &UnitId| !self.units[id.index()].budget.left.is_zero();
        out.extend(units.map(|&id| UnitId(id)).filter(eligible));
    }

    fn account(&self, unit: UnitId) -> Account {
        let unit = &self.units[unit.index()];
        Account {
            left: Some(unit.budget.left),
            max: Some(unit.budget.max),
            home: Some(unit.home),
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
            ..Account::default()
        }
    }

    fn ahead(&self, unit: UnitId) -> Option<Ahead> {
        if !self.rule.is_periodic() || self.settings.accounting != Accounting::Exact {
            return None;
        }
        let slot = &self.units[unit.index()];
        let asleep = match self.rule.without_work() {
            WithoutWork::Keep | WithoutWork::IdleAway => Asleep::Replenished,
            WithoutWork::Discard => Asleep::Discarded,
        };
        Some(Ahead {
            at: self.replenishments.key(unit.index())?,
            period: slot.budget.period,
            budget: slot.budget.budget,
            // Insertions are counted from zero, and nobody makes so many.
            urgency: Urgency::Fixed(u64::from(slot.priority) << 32 | slot.order.min(u64::from(u32::MAX))),
            asleep,
        })
    }
}

fn utilization(budget: &Budget) -> Utilization {
    Utilization::share(budget.budget, budget.period)
}

/// Budget and period, checked: 0 < budget <= period.
fn budget_and_period(params: &UnitParams) -> Result<(Duration, Duration), ParamError> {
    let missing = |field| ParamError::Missing { field };
    let out_of_range = |field, expected: Box<str>| ParamError::OutOfRange { field, expected };
    let budget = params.budget.ok_or(missing(UnitParams::BUDGET))?;
    let period = params.period.ok_or(missing(UnitParams::PERIOD))?;
    if period.is_zero() {
        return Err(out_of_range(UnitParams::PERIOD, "longer than zero".into()));
    }
    if budget.is_zero() || budget > period {
        let expected = alloc::format!("longer than zero and at most the period ({period})");
        return Err(out_of_range(UnitParams::BUDGET, expected.into()));
    }
    Ok((budget, period))
}
