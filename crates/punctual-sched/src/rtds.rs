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
//!   (a late preemption) is forgiven: the budget stops at 0.
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
//!   a replenishment. See [`crate::run_queue`].
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

use crate::heap::IndexedHeap;
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
    sleep_matters: false,
    has_timers: true,
    test: SchedulabilityTest::EdfServers,
    linux: OnLinux::servers(LinuxClass::Fair, Some(OnLinux::NO_DEADLINES)),
    xen: Some(XenScheduler::Rtds),
    build: |cpus, _| Ok(Box::new(Rtds::new(cpus))),
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
    /// Has it work? Set by `wake`, cleared by `sleep`, checked by both.
    awake: bool,
    exhaustions: u64,
    replenishments: u64,
}

impl RtdsUnit {
    fn urgency(&self) -> Urgency {
        Urgency { level: self.level, deadline: self.deadline }
    }

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
pub struct Rtds {
    queue: RunQueue<Urgency, RtdsUnit>,
    /// Deadlines of the awake units.
    replenishments: IndexedHeap<Instant>,
}

impl Rtds {
    /// A pool of `cpus` processors without units.
    pub fn new(cpus: usize) -> Self {
        Rtds { queue: RunQueue::new(cpus), replenishments: IndexedHeap::new(0) }
    }
}

impl Policy for Rtds {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let reservation = Reservation::new(params)?;
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        let state = RtdsUnit {
            now: reservation,
            next: reservation,
            left: reservation.budget,
            level: 0,
            deadline: now + reservation.period,
            awake: false,
            exhaustions: 0,
            replenishments: 0,
        };
        let unit = self.queue.add(cpus, state);
        self.replenishments.grow(self.queue.capacity());
        Ok(unit)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.replenishments.remove(unit.index());
        self.queue.remove(unit, resched);
    }

    fn adjust(
        &mut self,
        _now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let reservation = Reservation::new(params)?;
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        self.queue[unit].next = reservation;
        self.queue.set_affinity(unit, cpus, resched);
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let state = &mut self.queue[unit];
        if state.awake {
            return;
        }
        state.awake = true;
        if now >= state.deadline {
            state.replenish(now);
        }
        self.replenishments.set(unit.index(), state.deadline);
        if !state.left.is_zero() {
            let urgency = state.urgency();
            self.queue.ready(unit, urgency, resched);
        }
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if core::mem::replace(&mut self.queue[unit].awake, false) {
            self.replenishments.remove(unit.index());
            self.queue.unready(unit, resched);
        }
    }

    #[inline(always)]
    fn sleep_before_pick(&mut self, _now: Instant, unit: UnitId, cpu: CpuId, _resched: &mut CpuSet) {
        if core::mem::replace(&mut self.queue[unit].awake, false) {
            self.replenishments.remove(unit.index());
            self.queue.stop_current(cpu);
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, unit: UnitId, ran: Duration) {
        let state = &mut self.queue[unit];
        let had = state.left;
        state.left = had.saturating_sub(ran);
        if had.is_zero() || !state.left.is_zero() {
            return;
        }
        state.exhaustions += 1;
        if state.now.extratime {
            state.level = state.level.saturating_add(1);
            state.left = state.now.budget;
            let urgency = state.urgency();
            self.queue.demote(unit, urgency);
        }
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        if let Some(unit) = self.queue.current(cpu)
            && self.queue[unit].left.is_zero()
        {
            self.queue.stop_current(cpu);
        }
        match self.queue.pick(cpu, resched) {
            Some(unit) => Slice { run: Run::Unit(unit), until: now + self.queue[unit].left },
            None => Slice { run: Run::Idle, until: Instant::NEVER },
        }
    }

    #[inline(always)]
    fn next_timer(&self) -> Timer {
        match self.replenishments.peek() {
            Some((id, at)) => Timer { at, charge: self.queue.cpu_of(UnitId(id as u32)) },
            None => Timer::NEVER,
        }
    }

    #[inline(always)]
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let Some((id, at)) = self.replenishments.peek() else {
            return;
        };
        if at > now {
            return;
        }
        let unit = UnitId(id as u32);
        let state = &mut self.queue[unit];
        state.replenish(now);
        let urgency = state.urgency();
        self.replenishments.set_first(urgency.deadline);
        self.queue.ready(unit, urgency, resched);
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.queue.ranking(cpu, out, RtdsUnit::urgency, |unit| !unit.left.is_zero());
    }

    fn account(&self, unit: UnitId) -> Account {
        let state = &self.queue[unit];
        Account {
            left: Some(state.left),
            max: Some(state.now.budget),
            may_overrun: state.now.extratime,
            deadline: Some(state.deadline),
            home: None,
            exhaustions: state.exhaustions,
            replenishments: state.replenishments,
        }
    }
}
