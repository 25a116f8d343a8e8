//! RTDS: global EDF of deferrable servers, Xen's real-time scheduler since 4.5.
//!
//! Source: `nautilus` (RTDS in Xen 4.5 on the Nautilus platform) and `xen/common/sched/rt.c` where it is
//! silent.
//!
//! # Rules
//! - **State.** Each unit has a budget and a period, and now: budget left, a current deadline, which is the
//!   end of its current period, and a priority level, normally 0.
//! - **Urgency** = (level, deadline), smaller first. The most urgent ready units with budget run on the
//!   pool's processors, within their affinities.
//! - **Consumption.** Running consumes budget exactly, in nanoseconds; sleeping and waiting keep it. Overrun
//!   (a late preemption) costs nothing: the budget stops at 0.
//! - **Exhaustion.** A unit without `extratime` waits for its next period. With `extratime` (Xen's default;
//!   Xen 4.5, that of the paper, had none) it gets a full budget at once, one level further down, as often as
//!   need be.
//! - **Replenishment.** At its deadline an awake unit gets level 0, a full budget and the next deadline; what
//!   it had left is lost. A sleeping unit is left alone, and if its deadline has passed when it wakes, it
//!   gets the same then. Deadlines advance by whole periods from the old one to the first after now, so a
//!   unit's periods stay aligned to its insertion (`rt_update_deadline`). The queue of replenishments is
//!   ordered by time only; Xen's is ordered by level first, which refills a demoted unit late.
//! - **Ties** are first come, first served: a unit goes behind its equals when it gets ready or its urgency
//!   changes, also by exhaustion. Otherwise a running unit keeps its processor against equals, and a
//!   displaced one its place. (In Xen a running unit loses to an equal one whenever its processor happens to
//!   schedule.)
//! - **Preemption.** A unit that gets ready tickles its previous processor if idle, any idle one, or the one
//!   that runs the least urgent unit if strictly less urgent; processors already tickled are skipped. The
//!   same goes for a displaced unit, and for the head of the queue when a running unit becomes less urgent by
//!   a replenishment. See `crate::run_queue`.
//! - **New parameters** take effect at the next replenishment, a new affinity at once.
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
//! runs          #####             #
//! left  33333333323210000000000000322222222222
//! due             d         d         d
//! ```
//!
//! Without extratime. The unit sleeps over its deadline at 20 and gets a new one when it wakes at 26, aligned
//! to its insertion. With extratime a full budget follows the exhausted one at 13, one level further down:
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs          #####             #
//! left  33333333323213333333333333322222222222
//! due             d         d         d
//! ```

use core::cmp::Ordering;

use crate::prelude::*;

/// Its name in host files and on the command line.
pub const NAME: &str = "rtds";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "global EDF of deferrable servers over the pool, Xen's RTDS",
    source: "RTDS in Xen 4.5 on the Nautilus platform; Xen xen/common/sched/rt.c",
    unit_params: &[
        ParamInfo {
            name: UnitParams::BUDGET,
            kind: ParamKind::Duration,
            default: Some(ParamDefault::Value(OptionValue::Duration(BUDGET_DEFAULT))),
            help: "processor time per period, at least 10us, at most the period",
        },
        ParamInfo {
            name: UnitParams::PERIOD,
            kind: ParamKind::Duration,
            default: Some(ParamDefault::Value(OptionValue::Duration(PERIOD_DEFAULT))),
            help: "replenishment period and relative deadline, at least 10us",
        },
        ParamInfo {
            name: UnitParams::EXTRATIME,
            kind: ParamKind::Flag,
            default: Some(ParamDefault::Value(OptionValue::Flag(EXTRATIME_DEFAULT))),
            help: "run on below all others when the budget is used up (Xen 4.5 had none: false)",
        },
    ],
    options: &[],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: true,
    placement: Placement::Global,
    budgets: Budgets::Server { min: SHORTEST },
    // A unit that sleeps past its deadline gets, when it wakes, the deadline and the budget that it would
    // have got at the periods' ends.
    sleep_matters: |_| false,
    has_timers: true,
    test: SchedulabilityTest::EdfServers,
    linux: OnLinux::servers(LinuxClass::Fair, Some(OnLinux::NO_DEADLINES)),
    xen: Some(XenScheduler::Rtds),
    construct: |cpus, _| Ok(Box::new(QueuePolicy::new(cpus, Rtds))),
};

/// Xen's `RTDS_DEFAULT_BUDGET` and `RTDS_DEFAULT_PERIOD`; a new unit has extratime.
const BUDGET_DEFAULT: Duration = Duration::from_ms(4);
const PERIOD_DEFAULT: Duration = Duration::from_ms(10);
const EXTRATIME_DEFAULT: bool = true;
/// Xen's `RTDS_MIN_BUDGET` and `RTDS_MIN_PERIOD`.
const SHORTEST: Duration = Duration::from_us(10);

/// Level, then deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Urgency {
    level: u32,
    deadline: Instant,
}

impl Urgency {
    /// Both in one number, which is compared in two instructions.
    #[inline]
    fn rank(self) -> u128 {
        u128::from(self.level) << 64 | u128::from(self.deadline.as_ns())
    }
}

impl Ord for Urgency {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Urgency {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    budget: Duration,
    period: Duration,
    /// May it run on below the others when its budget is used up? Checked when it is.
    extratime: bool,
}

impl Reservation {
    fn new(params: &UnitParams) -> Result<Self, ParamError> {
        let budget = params.budget.unwrap_or(BUDGET_DEFAULT);
        let period = params.period.unwrap_or(PERIOD_DEFAULT);
        require(period >= SHORTEST, UnitParams::PERIOD, || alloc::format!("at least {SHORTEST}").into())?;
        require(budget >= SHORTEST && budget <= period, UnitParams::BUDGET, || {
            alloc::format!("at least {SHORTEST} and at most the period ({period})").into()
        })?;
        Ok(Reservation { budget, period, extratime: params.extratime.unwrap_or(EXTRATIME_DEFAULT) })
    }
}

#[derive(Debug)]
struct RtdsUnit {
    /// What it has in the current period.
    now: Reservation,
    /// What it has from the next replenishment on.
    next: Reservation,
    left: Duration,
    level: u32,
    deadline: Instant,
    exhaustions: u64,
    replenishments: u64,
}

impl RtdsUnit {
    fn replenish(&mut self, now: Instant) {
        self.now = self.next;
        let (late, period) = (now.since(self.deadline), self.now.period);
        // Mostly one period; a division takes as long as the rest.
        let periods = if late < period { 1 } else { late.div_floor(period) + 1 };
        self.deadline += period * periods;
        self.left = self.now.budget;
        self.level = 0;
        self.replenishments += 1;
    }
}

/// The policy; see the module's rules.
#[derive(Debug)]
struct Rtds;

impl QueueRules for Rtds {
    type Key = Urgency;
    type Params = Reservation;
    type Unit = RtdsUnit;
    const TIMERS: Timers = Timers::Awake;
    const SLICES_END: bool = true;

    fn check(params: &UnitParams) -> Result<Reservation, ParamError> {
        Reservation::new(params)
    }

    fn insert(&mut self, now: Instant, server: Reservation, _cpus: &mut CpuSet) -> RtdsUnit {
        RtdsUnit {
            now: server,
            next: server,
            left: server.budget,
            level: 0,
            deadline: now + server.period,
            exhaustions: 0,
            replenishments: 0,
        }
    }

    fn adjust(&mut self, unit: &mut RtdsUnit, server: Reservation, _cpus: &mut CpuSet) {
        unit.next = server;
    }

    #[inline(always)]
    fn urgency(unit: &RtdsUnit) -> Option<Urgency> {
        (!unit.left.is_zero()).then_some(Urgency { level: unit.level, deadline: unit.deadline })
    }

    #[inline(always)]
    fn timer(unit: &RtdsUnit) -> Option<Instant> {
        Some(unit.deadline)
    }

    #[inline(always)]
    fn slice(unit: &RtdsUnit) -> Duration {
        unit.left
    }

    #[inline(always)]
    fn wake(&mut self, unit: &mut RtdsUnit, now: Instant) {
        if now >= unit.deadline {
            unit.replenish(now);
        }
    }

    #[inline(always)]
    fn charge(&mut self, unit: &mut RtdsUnit, ran: Duration) -> Charged {
        let had = unit.left;
        unit.left = had.saturating_sub(ran);
        if had.is_zero() || !unit.left.is_zero() {
            return Charged::GoesOn;
        }
        unit.exhaustions += 1;
        if !unit.now.extratime {
            return Charged::Throttled;
        }
        unit.level = unit.level.saturating_add(1);
        unit.left = unit.now.budget;
        Charged::Demoted
    }

    /// Extra time stays below all budgets.
    fn may_stand_in(unit: &RtdsUnit, before: &RtdsUnit) -> bool {
        unit.level <= before.level
    }

    #[inline(always)]
    fn on_timer(&mut self, unit: &mut RtdsUnit, _at: Instant, now: Instant) {
        unit.replenish(now);
    }

    /// Without extratime: with it the next level of priority depends on what the unit ran.
    fn ahead(&self, unit: &RtdsUnit) -> Option<Ahead> {
        (!unit.now.extratime && !unit.next.extratime && unit.now.period == unit.next.period).then_some(
            Ahead {
                at: unit.deadline,
                period: unit.next.period,
                budget: unit.next.budget,
                urgency: crate::policy::Urgency::Deadline,
                asleep: Asleep::Waits,
            },
        )
    }

    fn account(unit: &RtdsUnit) -> Account {
        Account {
            left: Some(unit.left),
            max: Some(unit.now.budget),
            may_overrun: unit.now.extratime,
            deadline: Some(unit.deadline),
            home: None,
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
        }
    }
}
