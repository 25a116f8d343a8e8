//! CBS: constant bandwidth servers, hard reservations scheduled by earliest deadline.
//!
//! Sources: Abeni and Buttazzo, *Integrating Multimedia Applications in Hard Real-Time Systems*, RTSS 1998;
//! the hard form and the wake-up rule as in Linux's `SCHED_DEADLINE`
//! (`Documentation/scheduler/sched-deadline.rst`). This is also the policy that `docs/write-a-policy.md`
//! builds.
//!
//! # Rules
//! - **State.** Each unit has a budget Q and a period T, and now: budget left q and a deadline d.
//! - **Urgency.** The ready units with the earliest deadlines run on the pool's processors, within their
//!   affinities.
//! - **Consumption.** Running consumes budget exactly. Overrun costs nothing: the budget stops at 0.
//! - **Wake-up.** A unit may go on with (q, d) only if that is no more than its bandwidth until d:
//!   q / (d - now) <= Q / T. Otherwise, or when d has passed, it restarts: q = Q, d = now + T.
//! - **Exhaustion.** The unit is throttled: it does not run before d. (The server of 1998 is soft: it gets
//!   its budget at once with a later deadline.)
//! - **Replenishment.** At d a throttled unit gets q = Q and d + T. If d + T has passed as well, the unit
//!   restarts.
//! - **Ties** are first come, first served; a running unit keeps its processor against equals.
//! - **New parameters** take effect at the next replenishment or restart, a new affinity at once.
//!
//! On one processor a unit therefore disturbs the others no more than a periodic task of Q every T, whatever
//! its own work does. If all Q/T add up to at most 1, every unit gets its Q before every d.
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
//! left  33333333321000000032111111322222222222
//! due   d                 d         d       d
//! ```
//!
//! At 8 the deadline of the insertion has passed and the unit restarts. From 11 on it is throttled until its
//! deadline. At 26 it has 1 ms left until 28, more than its bandwidth, and restarts again.

use crate::prelude::*;

/// Its name in host files and on the command line.
pub const NAME: &str = "cbs";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    unit_params: &[
        ParamInfo {
            name: UnitParams::BUDGET,
            kind: ParamKind::Duration,
            default: None,
            help: "processor time per period, longer than zero, at most the period",
        },
        ParamInfo {
            name: UnitParams::PERIOD,
            kind: ParamKind::Duration,
            default: None,
            help: "replenishment period and relative deadline",
        },
    ],
    work_conservation: WorkConservation::WithinBudget,
    budgets: Budgets::Bandwidth { min: Duration::from_ns(1) },
    test: SchedulabilityTest::BandwidthServers,
    linux: OnLinux {
        class: LinuxClass::Fair,
        class_loss: None,
        quota_loss: Some(OnLinux::NO_DEADLINES),
        deadline_loss: None,
    },
    ..PolicyInfo::new(
        NAME,
        "hard constant bandwidth servers by earliest deadline, global over the pool",
        "Abeni & Buttazzo, RTSS 1998; Linux Documentation/scheduler/sched-deadline.rst",
        |cpus, _| Ok(Box::new(QueuePolicy::new(cpus, Cbs))),
    )
};

#[derive(Clone, Copy, Debug)]
struct Reservation {
    budget: Duration,
    period: Duration,
}

impl Reservation {
    fn new(params: &UnitParams) -> Result<Self, ParamError> {
        let budget = params.budget.ok_or(ParamError::Missing { field: UnitParams::BUDGET })?;
        let period = params.period.ok_or(ParamError::Missing { field: UnitParams::PERIOD })?;
        require(!budget.is_zero() && budget <= period, UnitParams::BUDGET, || {
            alloc::format!("longer than zero and at most the period ({period})").into()
        })?;
        Ok(Reservation { budget, period })
    }
}

#[derive(Debug)]
struct CbsUnit {
    now: Reservation,
    /// Parameters from the next replenishment or restart on.
    next: Reservation,
    left: Duration,
    deadline: Instant,
    exhaustions: u64,
    replenishments: u64,
}

impl CbsUnit {
    fn refill(&mut self, deadline: Instant) {
        self.now = self.next;
        self.left = self.now.budget;
        self.deadline = deadline;
        self.replenishments += 1;
    }

    /// May the unit go on with what it has? Products instead of quotients, so nothing is rounded.
    fn fits_its_bandwidth(&self, now: Instant) -> bool {
        let remaining = u128::from(self.deadline.since(now).as_ns());
        u128::from(self.left.as_ns()) * u128::from(self.now.period.as_ns())
            <= remaining * u128::from(self.now.budget.as_ns())
    }
}

/// The policy; see the module's rules.
#[derive(Debug)]
struct Cbs;

impl QueueRules for Cbs {
    type Key = Instant;
    type Params = Reservation;
    type Unit = CbsUnit;
    const TIMERS: Timers = Timers::Throttled;
    const SLICES_END: bool = true;

    fn check(params: &UnitParams) -> Result<Reservation, ParamError> {
        Reservation::new(params)
    }

    fn insert(&mut self, now: Instant, server: Reservation, _cpus: &mut CpuSet) -> CbsUnit {
        CbsUnit {
            now: server,
            next: server,
            left: server.budget,
            deadline: now,
            exhaustions: 0,
            replenishments: 0,
        }
    }

    fn adjust(&mut self, unit: &mut CbsUnit, server: Reservation, _cpus: &mut CpuSet) {
        unit.next = server;
    }

    #[inline(always)]
    fn urgency(unit: &CbsUnit) -> Option<Instant> {
        (!unit.left.is_zero()).then_some(unit.deadline)
    }

    #[inline(always)]
    fn timer(unit: &CbsUnit) -> Option<Instant> {
        unit.left.is_zero().then_some(unit.deadline)
    }

    #[inline(always)]
    fn slice(unit: &CbsUnit) -> Duration {
        unit.left
    }

    #[inline(always)]
    fn wake(&mut self, unit: &mut CbsUnit, now: Instant) {
        if now >= unit.deadline || !unit.fits_its_bandwidth(now) {
            unit.refill(now + unit.next.period);
        }
    }

    #[inline(always)]
    fn charge(&mut self, unit: &mut CbsUnit, ran: Duration) -> Charged {
        let had = unit.left;
        unit.left = had.saturating_sub(ran);
        if had.is_zero() || !unit.left.is_zero() {
            return Charged::GoesOn;
        }
        unit.exhaustions += 1;
        Charged::Throttled
    }

    #[inline(always)]
    fn on_timer(&mut self, unit: &mut CbsUnit, at: Instant, now: Instant) {
        let next = at + unit.next.period;
        unit.refill(if next > now { next } else { now + unit.next.period });
    }

    fn account(unit: &CbsUnit) -> Account {
        Account {
            left: Some(unit.left),
            max: Some(unit.now.budget),
            may_overrun: false,
            deadline: Some(unit.deadline),
            home: None,
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
        }
    }
}
