//! SEDF: a slice in every period, earliest deadline first, Xen's simple EDF scheduler.
//!
//! Sources: `vmm-io` s.4.4, `rt-xen` s.3.1, and Xen 4.0's `xen/common/sched_sedf.c` where they are silent.
//!
//! # Rules
//! - **State.** Each unit has a slice and a period, and now: slice left and a deadline, the end of its
//!   current period. It lives on one processor: SEDF does not balance. Its home is the processor of its
//!   affinity with the least utilization reserved when it is inserted.
//! - **Urgency.** Among the ready units of a processor with slice left, the earliest deadline runs.
//! - **Consumption.** Running consumes the slice exactly; sleeping and waiting keep it (as a deferrable
//!   server, `rt-xen` s.3.1). A unit without extratime that overruns its slice has that much less in the next
//!   period.
//! - **Return.** At its deadline an awake unit gets a full slice, not added to what it had, and a deadline
//!   one period later.
//! - **Wake-up.** Before its deadline a unit goes on with the slice and the deadline it has. After it, a new
//!   period starts with the wake-up: full slice, deadline one period from now. Xen's source compares several
//!   rules and takes this one for late wake-ups ("long unblocking", 2b): a shift to later never disturbs EDF.
//!   The papers describe the slice as kept before the deadline. The price, as for any deferrable server under
//!   EDF, is that full use of a processor is not always schedulable.
//! - **Short unblocking.** With `unblock = "xen"` (`sedf_wake`, `unblock_short_extra_support`) a unit that
//!   wakes within a period that began while it had slice for it, or slept, loses what is left of that slice
//!   and waits for its next period; only one that slept through a whole period starts a new one with the
//!   wake-up. What it lost is its *loss*: for one turn it has spare time before all units with `extratime`
//!   (`EXTRA_PEN_Q`), with or without `extratime` itself, the greatest loss in proportion to the period
//!   first. The loss is forgotten when that turn ends, however short it was (`desched_extra_dom`; Xen until
//!   June 2006 gave turns until the loss was made up for). One that blocked before its turn, and wakes before
//!   its next period, still has it.
//! - **Extratime.** A unit with `extratime` and no slice left may run when no unit with slice left wants to,
//!   in turns of 500 us (`EXTRA_QUANTUM`). Spare time is not charged to the slice. A slice of 0 with
//!   extratime is a best-effort unit, the default of Xen for all domains but domain 0. Xen leaves gaps
//!   shorter than 500 us before the next period unused; here they are used.
//! - **Order of spare time.** With `extra = "turns"` it goes round robin, and a displaced unit goes on with
//!   its turn. With `extra = "score"` the least score runs first (`EXTRA_UTIL_Q`, `extraq_add_sort_update`):
//!   when a turn ends, for whatever reason, its score is taken off the scores of all that wait, and the unit
//!   gets a new one: 2^17 by its `weight`, or without weight the period by the slice, times 1024. A unit that
//!   sleeps keeps its score, so one that slept through the others' turns has no advantage of it. Equal scores
//!   are first come, first served. A wake-up ends a turn of spare time only for a slice or a loss
//!   (`should_switch`).
//! - **Ties** are first come, first served. A running unit keeps its processor against equals, a displaced
//!   one its place.
//! - **New parameters** take effect with the next period, a new affinity at once.
//!
//! # Timeline
//! The unit has 3 ms in every 10 ms and its processor for itself. 5 ms of work arrive at 8 and 1 ms at 26
//! (`v`). It runs at `#`. `left` is its budget at the beginning of each millisecond, `due` marks its
//! deadlines.
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs          ###       ##      #
//! left  33333333321000000032111111100000000000
//! due   d                 d         d
//! ```
//!
//! At 8 the deadline of the insertion has passed and a new period starts with the wake-up. At 26 the unit
//! goes on with what it has left until 28.

use alloc::vec::Vec;

use crate::homes::Homes;
use crate::prelude::*;
use crate::utilization::Utilization;

/// Its name in host files and on the command line.
pub const NAME: &str = "sedf";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "a slice per period by earliest deadline, partitioned, optional use of spare time; Xen's SEDF",
    source: "Ongaro et al. VEE 2008 s.4.4; RT-Xen EMSOFT 2011 s.3.1; Xen 4.0 xen/common/sched_sedf.c",
    unit_params: &[
        ParamInfo {
            name: UnitParams::BUDGET,
            kind: ParamKind::Duration,
            default: None,
            help: "slice: processor time per period, at least 5us, or 0 with extratime",
        },
        ParamInfo {
            name: UnitParams::PERIOD,
            kind: ParamKind::Duration,
            default: None,
            help: "period and relative deadline, 10us to 10s",
        },
        ParamInfo {
            name: UnitParams::EXTRATIME,
            kind: ParamKind::Flag,
            default: Some(ParamDefault::Value(OptionValue::Flag(false))),
            help: "run on time that nobody's slice claims",
        },
        ParamInfo {
            name: UnitParams::WEIGHT,
            kind: ParamKind::Count { min: 1, max: WEIGHT_MAX as u64 },
            default: Some(ParamDefault::Words("by the slice; 1 for a slice of 0")),
            help: "share of spare time in proportion to the others', with extra = \"score\"",
        },
    ],
    options: &[UNBLOCK, EXTRA],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: Budgets::Server { min: SLICE_MIN },
    // A unit that sleeps past its deadline gets a full slice when it wakes, as at the periods' ends; one that
    // wakes before it loses its slice with unblock = "xen", and with extra = "score" its turn ends.
    sleep_matters: |options| options.word(&UNBLOCK) == XEN || options.word(&EXTRA) == BY_SCORE,
    has_timers: true,
    test: SchedulabilityTest::EdfServers,
    linux: OnLinux::servers(LinuxClass::Fair, Some(OnLinux::NO_DEADLINES)),
    xen: None,
    construct: |cpus, options| {
        let sedf = Sedf {
            homes: Homes::new(cpus),
            loses_slices: options.word(&UNBLOCK) == XEN,
            by_score: options.word(&EXTRA) == BY_SCORE,
            taken_off: alloc::vec![0; cpus],
            arrivals: 0,
        };
        Ok(Box::new(QueuePolicy::new(cpus, sedf)))
    },
};

/// The word of [`UNBLOCK`] for a slice that is kept until the deadline.
pub const RESUME: &str = "resume";

/// The word of [`UNBLOCK`] for a slice that is lost, and spare time instead.
pub const XEN: &str = "xen";

/// The word of [`EXTRA`] for round robin.
pub const IN_TURNS: &str = "turns";

/// The word of [`EXTRA`] for Xen's scores.
pub const BY_SCORE: &str = "score";

/// The option `unblock`.
pub const UNBLOCK: ParamInfo = ParamInfo {
    name: "unblock",
    kind: ParamKind::Choice(&[RESUME, XEN]),
    default: Some(ParamDefault::Value(OptionValue::Word(RESUME))),
    help: "a unit that wakes before its deadline goes on with its slice, or loses it and comes first for \
           spare time (Xen 4.0)",
};

/// The option `extra`.
pub const EXTRA: ParamInfo = ParamInfo {
    name: "extra",
    kind: ParamKind::Choice(&[IN_TURNS, BY_SCORE]),
    default: Some(ParamDefault::Value(OptionValue::Word(IN_TURNS))),
    help: "spare time goes round robin, or to the least score, by weight or slice (Xen)",
};

/// Xen's `SLICE_MIN`, `PERIOD_MIN`, `PERIOD_MAX`, `EXTRA_QUANTUM`.
const SLICE_MIN: Duration = Duration::from_us(5);
const PERIOD_MIN: Duration = Duration::from_us(10);
const PERIOD_MAX: Duration = Duration::from_secs(10);
const EXTRA_QUANTUM: Duration = Duration::from_us(500);

/// A score that Xen gives to a weight of 1; all of a processor corresponds to a weight of 128.
const SCORE_OF_WEIGHT_1: u32 = 1 << 17;
/// As for Credit, whose weights a host may have beside slices. Xen keeps SEDF's in a `short`.
const WEIGHT_MAX: u32 = u16::MAX as u32;

/// How urgent a unit is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Urgency {
    /// It has slice left, until its deadline.
    Slice(Instant),
    /// It waits for spare time, or runs on it, for a slice that it lost: Xen's score, less for who lost more
    /// of its period, and its place among equals.
    Loss(u64, u64),
    /// It runs on spare time in the order of scores.
    Running,
    /// It waits for spare time: its score, more by what has been taken off all scores so far, and its place
    /// among equals. In turns, all are equal.
    Extra(i64, u64),
}

impl Default for Urgency {
    fn default() -> Self {
        Urgency::Slice(Instant::ZERO)
    }
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    slice: Duration,
    period: Duration,
    /// May it use spare time? Checked when the slice is used up and at wake-up.
    extratime: bool,
    /// Its share of spare time, if not by its slice.
    weight: Option<u32>,
}

impl Reservation {
    fn new(params: &UnitParams) -> Result<Self, ParamError> {
        let slice = params.budget.ok_or(ParamError::Missing { field: UnitParams::BUDGET })?;
        let period = params.period.ok_or(ParamError::Missing { field: UnitParams::PERIOD })?;
        let extratime = params.extratime.unwrap_or(false);
        require((PERIOD_MIN..=PERIOD_MAX).contains(&period), UnitParams::PERIOD, || {
            alloc::format!("between {PERIOD_MIN} and {PERIOD_MAX}").into()
        })?;
        let best_effort = slice.is_zero() && extratime;
        require(best_effort || (SLICE_MIN..=period).contains(&slice), UnitParams::BUDGET, || {
            alloc::format!("at least {SLICE_MIN} (or 0 with extratime) and at most the period ({period})")
                .into()
        })?;
        require(params.weight.is_none_or(|w| (1..=WEIGHT_MAX).contains(&w)), UnitParams::WEIGHT, || {
            alloc::format!("between 1 and {WEIGHT_MAX}").into()
        })?;
        Ok(Reservation { slice, period, extratime, weight: params.weight })
    }

    /// The score after a turn of spare time: at most 2^31, with the longest period and the shortest slice.
    fn score(&self) -> i64 {
        match self.weight {
            Some(weight) => i64::from(SCORE_OF_WEIGHT_1 / weight),
            None if self.slice.is_zero() => i64::from(SCORE_OF_WEIGHT_1),
            None => ((self.period.as_ns() << 10) / self.slice.as_ns()) as i64,
        }
    }

    fn load(&self) -> Utilization {
        Utilization::share(self.slice, self.period)
    }
}

/// Whose turn of spare time it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Loss,
    Score,
}

#[derive(Debug)]
struct SedfUnit {
    now: Reservation,
    /// What it has from the next period on.
    next: Reservation,
    home: CpuId,
    left: Duration,
    /// How much it overran; taken off the next slice.
    overrun: Duration,
    /// Will it get a turn for a slice that it lost? Set by a wake-up that loses one, cleared by the end of
    /// the turn, checked by wake-ups before the next period.
    wants_loss: bool,
    /// Is it in the order of those? Cleared by a sleep as well.
    has_loss: bool,
    /// Its score and place there.
    loss: (u64, u64),
    /// Is it in the order of spare time, as far as it has `extratime`? Set by a wake-up, cleared by a sleep.
    waits: bool,
    /// Its score there, more by what has been taken off all scores so far, and its place; while it sleeps the
    /// score alone.
    score: i64,
    place: u64,
    /// What it runs on, if that is spare time whose turn ends with the next decision. Set by `picked`.
    turn_of: Option<Turn>,
    /// Has its period just begun in such a turn? Then its processor picks, for the slice ends earlier.
    leaves_turn: bool,
    /// What is left of its turn in the spare time.
    turn: Duration,
    deadline: Instant,
    exhaustions: u64,
    replenishments: u64,
}

impl SedfUnit {
    fn start_period(&mut self, deadline: Instant) {
        self.now = self.next;
        self.deadline = deadline;
        self.left = self.now.slice.saturating_sub(self.overrun);
        self.overrun = self.overrun.saturating_sub(self.now.slice);
        self.replenishments += 1;
    }

    fn consume_slice(&mut self, ran: Duration) {
        if ran < self.left {
            self.left -= ran;
            return;
        }
        if !self.now.extratime {
            self.overrun = ran - self.left;
        }
        self.left = Duration::ZERO;
        self.turn = EXTRA_QUANTUM;
        self.exhaustions += 1;
    }

    /// Consumes the turn; true at its end, when a new one waits behind the others.
    fn consume_turn(&mut self, ran: Duration) -> bool {
        self.turn = self.turn.saturating_sub(ran);
        let over = self.turn.is_zero();
        if over {
            self.turn = EXTRA_QUANTUM;
        }
        over
    }
}

/// The policy; see the module's rules.
#[derive(Debug)]
struct Sedf {
    homes: Homes<Utilization>,
    /// Does a unit that wakes early lose its slice?
    loses_slices: bool,
    /// Is spare time for the least score?
    by_score: bool,
    /// By processor: what has been taken off the scores of its units so far. Xen takes it off each.
    taken_off: Vec<i64>,
    /// How often a unit came into an order of spare time.
    arrivals: u64,
}

impl Sedf {
    /// What a wake-up at `now` does to the slice of a unit, as Xen has it.
    fn unblock(&mut self, unit: &mut SedfUnit, now: Instant) {
        // Who has no slice left is before its next period, or slept through the beginning of it.
        let (begins, ends) = if unit.left.is_zero() {
            (unit.deadline, unit.deadline + unit.next.period)
        } else {
            (Instant::ZERO, unit.deadline)
        };
        if now < begins {
            unit.has_loss = unit.wants_loss;
            unit.loss.1 = self.arrival();
        } else if now < ends {
            if unit.left.is_zero() {
                unit.now = unit.next;
                unit.left = unit.now.slice.saturating_sub(unit.overrun);
            }
            unit.overrun = Duration::ZERO;
            unit.deadline = ends;
            let lost = core::mem::take(&mut unit.left);
            if !lost.is_zero() {
                unit.loss = ((unit.now.period.as_ns() << 10) / lost.as_ns(), self.arrival());
                (unit.wants_loss, unit.has_loss) = (true, true);
            }
        } else {
            unit.overrun = Duration::ZERO;
            unit.start_period(now + unit.next.period);
        }
    }

    fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// The unit joins the order of spare time with the score that it has kept.
    fn join(&mut self, unit: &mut SedfUnit) {
        unit.turn = EXTRA_QUANTUM;
        if self.by_score {
            unit.waits = true;
            unit.score = unit.score.saturating_add(self.taken_off[unit.home.index()]);
            unit.place = self.arrival();
        }
    }

    /// The unit leaves the order of spare time and keeps its score.
    fn leave(&mut self, unit: &mut SedfUnit) {
        if core::mem::take(&mut unit.waits) {
            unit.score = unit.score.saturating_sub(self.taken_off[unit.home.index()]);
        }
    }

    /// The turn of spare time that the unit runs in is over, if there is one that ends with every decision.
    fn end_turn(&mut self, unit: &mut SedfUnit) -> bool {
        let Some(turn) = unit.turn_of.take() else {
            return false;
        };
        unit.turn = EXTRA_QUANTUM;
        match turn {
            Turn::Loss => (unit.wants_loss, unit.has_loss) = (false, false),
            Turn::Score => {
                let taken_off = &mut self.taken_off[unit.home.index()];
                *taken_off = unit.score;
                unit.score = unit.score.saturating_add(unit.now.score());
                unit.place = self.arrival();
            }
        }
        true
    }
}

impl QueueRules for Sedf {
    type Key = Urgency;
    type Params = Reservation;
    type Unit = SedfUnit;
    const TIMERS: Timers = Timers::Awake;
    const SLICES_END: bool = true;

    fn check(params: &UnitParams) -> Result<Reservation, ParamError> {
        Reservation::new(params)
    }

    fn insert(&mut self, now: Instant, reservation: Reservation, cpus: &mut CpuSet) -> SedfUnit {
        let home = self.homes.settle(cpus, reservation.load());
        cpus.keep_only(home);
        SedfUnit {
            now: reservation,
            next: reservation,
            home,
            left: reservation.slice,
            overrun: Duration::ZERO,
            wants_loss: false,
            has_loss: false,
            loss: (0, 0),
            waits: false,
            score: 0,
            place: 0,
            turn_of: None,
            leaves_turn: false,
            turn: EXTRA_QUANTUM,
            deadline: now,
            exhaustions: 0,
            replenishments: 0,
        }
    }

    fn adjust(&mut self, unit: &mut SedfUnit, reservation: Reservation, cpus: &mut CpuSet) {
        let waits = unit.waits;
        self.leave(unit);
        unit.home = self.homes.resettle(unit.home, unit.next.load(), cpus, reservation.load());
        if waits {
            self.join(unit);
        }
        unit.next = reservation;
        cpus.keep_only(unit.home);
    }

    fn remove(&mut self, unit: &SedfUnit) {
        self.homes.leave(unit.home, unit.next.load());
    }

    #[inline(always)]
    fn urgency(unit: &SedfUnit) -> Option<Urgency> {
        if !unit.left.is_zero() {
            return Some(Urgency::Slice(unit.deadline));
        }
        if unit.has_loss {
            return Some(Urgency::Loss(unit.loss.0, unit.loss.1));
        }
        let extra = match unit.turn_of {
            Some(Turn::Score) => Urgency::Running,
            _ if unit.waits => Urgency::Extra(unit.score, unit.place),
            _ => Urgency::Extra(0, 0),
        };
        unit.now.extratime.then_some(extra)
    }

    #[inline(always)]
    fn timer(unit: &SedfUnit) -> Option<Instant> {
        Some(unit.deadline)
    }

    #[inline(always)]
    fn slice(unit: &SedfUnit) -> Duration {
        if unit.left.is_zero() { unit.turn } else { unit.left }
    }

    #[inline(always)]
    fn wake(&mut self, unit: &mut SedfUnit, now: Instant) {
        if self.loses_slices {
            self.unblock(unit, now);
            self.join(unit);
        } else {
            if now >= unit.deadline {
                unit.overrun = Duration::ZERO;
                unit.start_period(now + unit.next.period);
            }
            if self.by_score {
                self.join(unit);
            }
        }
    }

    #[inline(always)]
    fn sleep(&mut self, unit: &mut SedfUnit) {
        // A turn that ends in sleep leaves the others' scores alone.
        let taken_off = self.taken_off[unit.home.index()];
        if unit.turn_of == Some(Turn::Score) {
            unit.score = taken_off;
        }
        self.end_turn(unit);
        self.leave(unit);
        unit.has_loss = false;
    }

    #[inline(always)]
    fn charge(&mut self, unit: &mut SedfUnit, ran: Duration) -> Charged {
        let is_over = if !unit.left.is_zero() {
            unit.consume_slice(ran);
            unit.left.is_zero()
        } else if unit.turn_of.is_some() {
            unit.turn = unit.turn.saturating_sub(ran);
            false
        } else {
            unit.consume_turn(ran)
        };
        match is_over {
            true if unit.now.extratime || unit.has_loss => Charged::Demoted,
            true => Charged::Throttled,
            false => Charged::GoesOn,
        }
    }

    #[inline(always)]
    fn picked(&mut self, unit: &mut SedfUnit) -> bool {
        unit.turn_of = match Self::urgency(unit) {
            Some(Urgency::Loss(..)) => Some(Turn::Loss),
            Some(Urgency::Extra(..)) if unit.waits => Some(Turn::Score),
            _ => None,
        };
        unit.turn_of == Some(Turn::Score)
    }

    #[inline(always)]
    fn ends_turn(&mut self, unit: &mut SedfUnit) -> bool {
        self.end_turn(unit)
    }

    fn gave_way(&mut self, unit: &mut SedfUnit) {
        unit.turn_of = None;
    }

    /// Spare time stays below all slices.
    fn may_stand_in(unit: &SedfUnit, before: &SedfUnit) -> bool {
        let of = |unit: &SedfUnit| matches!(Self::urgency(unit), Some(Urgency::Slice(_)));
        of(unit) || !of(before)
    }

    #[inline(always)]
    fn on_timer(&mut self, unit: &mut SedfUnit, at: Instant, now: Instant) {
        let period = unit.next.period;
        unit.start_period(at + period * (now.since(at).div_floor(period) + 1));
        unit.leaves_turn = !unit.left.is_zero() && self.end_turn(unit);
    }

    #[inline(always)]
    fn picks_after_timer(&mut self, unit: &mut SedfUnit) -> bool {
        core::mem::take(&mut unit.leaves_turn)
    }

    /// Without extratime and losses: with them a unit continues without a slice.
    fn ahead(&self, unit: &SedfUnit) -> Option<Ahead> {
        let has_slices_alone = !unit.now.extratime && !unit.next.extratime && !self.loses_slices;
        (has_slices_alone && unit.overrun.is_zero()).then_some(Ahead {
            at: unit.deadline,
            period: unit.next.period,
            budget: unit.next.slice,
            urgency: crate::policy::Urgency::Deadline,
            asleep: Asleep::Restarts,
        })
    }

    fn account(unit: &SedfUnit) -> Account {
        Account {
            left: Some(unit.left),
            max: Some(unit.now.slice),
            may_overrun: unit.now.extratime || unit.has_loss,
            deadline: Some(unit.deadline),
            home: Some(unit.home),
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
        }
    }
}
