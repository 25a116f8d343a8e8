//! The sporadic server: budget comes back one period after it was used, piece by piece.
//!
//! # Rules
//! RT-Xen, section 4.2, after Stanovich, Baker, Wang, Gonzalez Harbour, *Defects of the POSIX Sporadic Server
//! and How to Correct Them*, RTAS 2010. All of [`super`], and:
//!
//! - **State.** The budget left, the refills to come (time, amount) in order of time, and the stretch under
//!   way (since when, how much it consumed). Left + refills + consumption of the stretch = budget, always.
//! - **Consumed** while the unit runs.
//! - **Comes back** as refills. A *stretch* is a contiguous run: it ends when another unit is chosen, when
//!   the unit goes to sleep and when its budget is used up; a decision that chooses the same unit again
//!   continues it. A stretch that began at `t` and consumed `c` makes a refill of `c` at `t` + period. That
//!   is never in the past: `c` <= budget <= period. If the processor itself was paused meanwhile, `t` counts
//!   as the latest instant from which the unit can have run without a pause.
//! - **Bounded.** A unit holds at most `refills_max` refills. With quantum accounting every stretch that is
//!   charged costs a quantum, so budget / quantum + 1 refills always suffice. Exact accounting sets no bound
//!   by itself (a unit may block after every nanosecond): when the table is full, a new refill and the latest
//!   one are merged at the later of their times. Nothing is merged otherwise, so nothing ever comes early.
//! - **Ties.** A refill that falls due at the instant of exhaustion comes after it and begins a new stretch.
//! - **New parameters.** Left + refills + stretch equals the new budget at once. More budget arrives as a
//!   refill one new period from now; less budget is taken from what is left, then from the latest refills,
//!   then from the stretch. A new period holds for stretches that end from now on.
//!
//! # Timeline
//! See [`super`] for how to read it.
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs          ###       ##      #
//! left  33333333321000000032111111102222222233
//! ```
//!
//! The 3 ms that were consumed from 8 on come back at 18, the 2 ms from 18 on at 28, the 1 ms from 26 on at
//! 36.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{ACCOUNTING, BUDGETS, Budget, IDLE, QUANTUM, Rule, Servers, Settings, UNIT_PARAMS, WithoutWork};
use crate::decision::UnitId;
use crate::info::{
    LinuxClass, OnLinux, OptionValue, ParamDefault, ParamInfo, ParamKind, Placement, PolicyInfo,
    SchedulabilityTest, ServerKind, WorkConservation,
};
use crate::time::{Duration, Instant};

/// The option `refills_max`. The default takes 512 bytes per unit.
pub const REFILLS_MAX: ParamInfo = ParamInfo {
    name: "refills_max",
    kind: ParamKind::Count { min: 1, max: 1024 },
    default: Some(ParamDefault::Value(OptionValue::Count(32))),
    help: "refills that a unit can wait for; a further one delays the latest (POSIX: sched_ss_max_repl)",
};

/// Its name in host files and on the command line.
pub const NAME: &str = "sporadic";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "fixed-priority server whose budget comes back one period after it was used",
    source: "rt-xen s.4; Stanovich et al. RTAS 2010",
    unit_params: UNIT_PARAMS,
    options: &[QUANTUM, ACCOUNTING, IDLE, REFILLS_MAX],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: BUDGETS,
    sleep_matters: |_| true,
    has_timers: true,
    test: SchedulabilityTest::FixedPriorityServers(ServerKind::Sporadic),
    linux: OnLinux::servers(
        LinuxClass::Fifo,
        Some("a quota comes back every period, not a period after its use"),
    ),
    xen: None,
    construct: |cpus, options| {
        let settings = Settings::from_options(options)?;
        let refills_max = options.count(&REFILLS_MAX);
        let rule = Sporadic::new(refills_max as usize);
        Ok(Box::new(Servers::new(cpus, settings, rule)))
    },
};

#[derive(Clone, Copy, Debug)]
struct Refill {
    at: Instant,
    amount: Duration,
}

/// A contiguous run under way.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    start: Instant,
    ran: Duration,
    consumed: Duration,
}

impl Stretch {
    /// It has run for `ran` without a break up to `now`.
    #[inline]
    fn set_ran(&mut self, now: Instant, ran: Duration) {
        self.ran = ran;
        self.start = Instant::from_ns(now.as_ns().saturating_sub(ran.as_ns()));
    }
}

#[derive(Clone, Debug, Default)]
struct UnitRefills {
    refills: VecDeque<Refill>,
    stretch: Stretch,
}

impl UnitRefills {
    fn next(&self) -> Option<Instant> {
        self.refills.front().map(|refill| refill.at)
    }

    /// Adds a refill; a full table delays it and the latest one to the later of their times.
    fn add(&mut self, at: Instant, amount: Duration, refills_max: usize) {
        if self.refills.len() >= refills_max
            && let Some(last) = self.refills.back_mut()
        {
            last.at = last.at.max(at);
            last.amount += amount;
            return;
        }
        let place = self.refills.partition_point(|other| other.at <= at);
        self.refills.insert(place, Refill { at, amount });
    }

    /// Takes `amount` from the latest refills, then from the stretch.
    fn withdraw(&mut self, mut amount: Duration) {
        while let Some(last) = self.refills.back_mut() {
            let taken = last.amount.min(amount);
            last.amount -= taken;
            amount -= taken;
            if !last.amount.is_zero() {
                return;
            }
            self.refills.pop_back();
        }
        self.stretch.consumed -= amount;
    }
}

/// A refill for every stretch of execution; see the module's rules.
#[derive(Clone, Debug)]
pub struct Sporadic {
    refills_max: usize,
    units: Vec<UnitRefills>,
}

impl Sporadic {
    /// The rule with room for `refills_max` (at least 1) refills per unit.
    pub fn new(refills_max: usize) -> Self {
        Sporadic { refills_max, units: Vec::new() }
    }

    /// What the unit has consumed and not got back yet.
    pub fn pending(&self, unit: UnitId) -> Duration {
        let consumed = self.units[unit.index()].stretch.consumed;
        let refills = self.refills(unit);
        refills.fold(consumed, |sum, (_, amount)| sum + amount)
    }

    /// The refills to come, earliest first: when and how much.
    pub fn refills(&self, unit: UnitId) -> impl Iterator<Item = (Instant, Duration)> + '_ {
        let refills = self.units[unit.index()].refills.iter();
        refills.map(|refill| (refill.at, refill.amount))
    }
}

impl Rule for Sporadic {
    #[inline]
    fn without_work(&self) -> WithoutWork {
        WithoutWork::Keep
    }

    fn inserted(&mut self, _now: Instant, unit: usize, budget: &mut Budget) -> Option<Instant> {
        budget.left = budget.budget;
        if unit >= self.units.len() {
            self.units.resize(unit + 1, UnitRefills::default());
        }
        let unit = &mut self.units[unit];
        unit.refills.clear();
        unit.refills.reserve(self.refills_max);
        unit.stretch = Stretch::default();
        None
    }

    fn adjusted(
        &mut self,
        now: Instant,
        unit: usize,
        old_budget: Duration,
        budget: &mut Budget,
        _next: Option<Instant>,
    ) -> Option<Instant> {
        let unit = &mut self.units[unit];
        budget.max = budget.budget;
        if budget.budget > old_budget {
            let more = budget.budget - old_budget;
            unit.add(now + budget.period, more, self.refills_max);
        } else {
            let less = old_budget - budget.budget;
            let from_left = less.min(budget.left);
            budget.left -= from_left;
            unit.withdraw(less - from_left);
        }
        // What is taken from the stretch is its oldest part, so the rest began later.
        let ran = unit.stretch.ran.min(unit.stretch.consumed);
        unit.stretch.set_ran(now, ran);
        unit.next()
    }

    #[inline]
    fn ran(&mut self, now: Instant, unit: usize, ran: Duration) {
        let stretch = &mut self.units[unit].stretch;
        stretch.set_ran(now, stretch.ran + ran);
    }

    #[inline]
    fn consumed(&mut self, unit: usize, consumed: Duration) {
        self.units[unit].stretch.consumed += consumed;
    }

    #[inline]
    fn stretch_ended(&mut self, unit: usize, period: Duration) -> Option<Instant> {
        let unit = &mut self.units[unit];
        let stretch = core::mem::take(&mut unit.stretch);
        if stretch.consumed.is_zero() {
            return None;
        }
        unit.add(stretch.start + period, stretch.consumed, self.refills_max);
        unit.next()
    }

    fn replenish(&mut self, _at: Instant, unit: usize, budget: &mut Budget) -> Option<Instant> {
        let unit = &mut self.units[unit];
        if let Some(refill) = unit.refills.pop_front() {
            budget.left += refill.amount;
        }
        unit.next()
    }
}
