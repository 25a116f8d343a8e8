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
//! - **Short unblocking.** With `unblock = "xen"` (`unblock_short_extra_support`) a unit that wakes before
//!   its deadline loses what is left of its slice and waits for its next period. What it lost is its *loss*,
//!   and until it has run that long, it has spare time before all units with `extratime`, with or without
//!   `extratime` itself: in turns of 500 us, the greatest loss in proportion to the period first. A wake-up
//!   after the deadline takes it out of that order until it wakes before a period again.
//! - **Extratime.** A unit with `extratime` and no slice left may run when no unit with slice left wants to,
//!   round robin with turns of 500 us (`EXTRA_QUANTUM`), which is what Xen's utilization-weighted queue does
//!   for equal weights. Spare time is not charged to the slice. A slice of 0 with extratime is a best-effort
//!   unit, the default of Xen 4.0. Xen leaves gaps shorter than 500 us before the next period unused; here
//!   they are used.
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
    ],
    options: &[UNBLOCK],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: Budgets::Server { min: SLICE_MIN },
    // A unit that sleeps past its deadline gets a full slice when it wakes, as at the periods' ends; one that
    // wakes before it loses its slice with unblock = "xen".
    sleep_matters: |options| options.word(&UNBLOCK) == XEN,
    has_timers: true,
    test: SchedulabilityTest::EdfServers,
    linux: OnLinux::servers(LinuxClass::Fair, Some(OnLinux::NO_DEADLINES)),
    xen: None,
    construct: |cpus, options| {
        let loses_slices = options.word(&UNBLOCK) == XEN;
        Ok(Box::new(QueuePolicy::new(cpus, Sedf { homes: Homes::new(cpus), loses_slices })))
    },
};

/// The word of [`UNBLOCK`] for a slice that is kept until the deadline.
pub const RESUME: &str = "resume";

/// The word of [`UNBLOCK`] for a slice that is lost, and spare time instead.
pub const XEN: &str = "xen";

/// The option `unblock`.
pub const UNBLOCK: ParamInfo = ParamInfo {
    name: "unblock",
    kind: ParamKind::Choice(&[RESUME, XEN]),
    default: Some(ParamDefault::Value(OptionValue::Word(RESUME))),
    help: "a unit that wakes before its deadline goes on with its slice, or loses it and comes first for \
           spare time (Xen 4.0)",
};

/// Xen's `SLICE_MIN`, `PERIOD_MIN`, `PERIOD_MAX`, `EXTRA_QUANTUM`.
const SLICE_MIN: Duration = Duration::from_us(5);
const PERIOD_MIN: Duration = Duration::from_us(10);
const PERIOD_MAX: Duration = Duration::from_secs(10);
const EXTRA_QUANTUM: Duration = Duration::from_us(500);

/// How urgent a unit is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Urgency {
    /// It has slice left, until its deadline.
    Slice(Instant),
    /// It runs on spare time for a slice that it lost; Xen's score, less for who lost more of its period.
    Loss(u64),
    /// It runs on spare time.
    Extra,
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
        Ok(Reservation { slice, period, extratime })
    }

    fn load(&self) -> Utilization {
        Utilization::share(self.slice, self.period)
    }
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
    /// What it lost by waking early and has not made up for.
    loss: Duration,
    /// Is it in the order of those with a loss? Set by an early wake-up, cleared by a late one.
    makes_up: bool,
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

    /// It wakes before its deadline and loses its slice (`unblock_short_extra_support`).
    fn lose_slice(&mut self) {
        if !self.left.is_zero() {
            self.loss = core::mem::take(&mut self.left);
            self.turn = EXTRA_QUANTUM;
        }
        self.makes_up = true;
    }

    fn has_loss(&self) -> bool {
        self.makes_up && !self.loss.is_zero()
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
            loss: Duration::ZERO,
            makes_up: false,
            turn: EXTRA_QUANTUM,
            deadline: now,
            exhaustions: 0,
            replenishments: 0,
        }
    }

    fn adjust(&mut self, unit: &mut SedfUnit, reservation: Reservation, cpus: &mut CpuSet) {
        unit.home = self.homes.resettle(unit.home, unit.next.load(), cpus, reservation.load());
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
        if unit.has_loss() {
            return Some(Urgency::Loss((unit.now.period.as_ns() << 10) / unit.loss.as_ns()));
        }
        unit.now.extratime.then_some(Urgency::Extra)
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
        if now >= unit.deadline {
            unit.overrun = Duration::ZERO;
            unit.makes_up = false;
            unit.start_period(now + unit.next.period);
        } else if self.loses_slices {
            unit.lose_slice();
        }
    }

    #[inline(always)]
    fn charge(&mut self, unit: &mut SedfUnit, ran: Duration) -> Charged {
        let is_over = if !unit.left.is_zero() {
            unit.consume_slice(ran);
            unit.left.is_zero()
        } else if unit.has_loss() {
            unit.loss = unit.loss.saturating_sub(ran);
            unit.consume_turn(ran) || unit.loss.is_zero()
        } else {
            unit.consume_turn(ran)
        };
        match is_over {
            true if unit.now.extratime || unit.has_loss() => Charged::Demoted,
            true => Charged::Throttled,
            false => Charged::GoesOn,
        }
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
            may_overrun: unit.now.extratime || unit.has_loss(),
            deadline: Some(unit.deadline),
            home: Some(unit.home),
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
        }
    }
}
