//! SEDF: a slice in every period, earliest deadline first, Xen's simple EDF scheduler.
//!
//! Sources: `vmm-io` s.4.4, `rt-xen` s.3.1, and Xen 4.0's `xen/common/sched_sedf.c` where they are silent.
//!
//! # Rules
//! - **State.** Each unit has a slice and a period, and now: slice left and a deadline, the end of its
//!   current period. It lives on one processor: SEDF does not balance. Its home is the processor of its
//!   affinity with the least utilisation reserved when it is inserted.
//! - **Urgency.** Among the ready units of a processor with slice left, the earliest deadline runs.
//! - **Consumption.** Running consumes the slice exactly; sleeping and waiting keep it (as a deferrable
//!   server, `rt-xen` s.3.1). A unit without extratime that overruns its slice has that much less in the next
//!   period.
//! - **Return.** At its deadline an awake unit gets a full slice, not added to what it had, and a deadline
//!   one period later.
//! - **Wake-up.** Before its deadline a unit goes on with the slice and the deadline it has. After it, a new
//!   period starts with the wake-up: full slice, deadline one period from now. Xen's source compares several
//!   rules and takes this one for late wake-ups ("long unblocking", 2b): a shift to later never disturbs EDF.
//!   For early ones it makes the unit wait for its next period and ranks it first for spare time instead; the
//!   papers describe the slice as kept, and so it is here. The price, as for any deferrable server under EDF,
//!   is that full use of a processor is not always schedulable.
//! - **Extratime.** A unit with `extratime` and no slice left may run when no unit with slice left wants to,
//!   round robin with turns of 500 us (`EXTRA_QUANTUM`), which is what Xen's utilisation-weighted queue does
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

use crate::heap::IndexedHeap;
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
    options: &[],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: Budgets::Server { min: SLICE_MIN },
    // A unit that sleeps past its deadline gets a full slice when it wakes, as at the periods' ends.
    sleep_matters: false,
    has_timers: true,
    test: SchedulabilityTest::EdfServers,
    linux: OnLinux::servers(LinuxClass::Fair, Some(OnLinux::NO_DEADLINES)),
    xen: None,
    build: |cpus, _| Ok(Box::new(Sedf::new(cpus))),
};

/// Xen's `SLICE_MIN`, `PERIOD_MIN`, `PERIOD_MAX`, `EXTRA_QUANTUM`.
const SLICE_MIN: Duration = Duration::from_us(5);
const PERIOD_MIN: Duration = Duration::from_us(10);
const PERIOD_MAX: Duration = Duration::from_secs(10);
const EXTRA_QUANTUM: Duration = Duration::from_us(500);

/// Running on its slice, ordered by deadline, comes before running on spare time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum Urgency {
    Slice(Instant),
    #[default]
    Extra,
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
    /// What is left of its turn in the spare time.
    turn: Duration,
    deadline: Instant,
    /// Has it work? Set by `wake`, cleared by `sleep`, checked by both.
    awake: bool,
    exhaustions: u64,
    replenishments: u64,
}

impl SedfUnit {
    /// How it competes for its processor, if it may run at all.
    fn urgency(&self) -> Option<Urgency> {
        if !self.left.is_zero() {
            return Some(Urgency::Slice(self.deadline));
        }
        self.now.extratime.then_some(Urgency::Extra)
    }

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
pub struct Sedf {
    queue: RunQueue<Urgency, SedfUnit>,
    homes: Homes<Utilization>,
    /// Deadlines of the awake units.
    periods: IndexedHeap<Instant>,
}

impl Sedf {
    /// A pool of `cpus` processors without units.
    pub fn new(cpus: usize) -> Self {
        Sedf { queue: RunQueue::new(cpus), homes: Homes::new(cpus), periods: IndexedHeap::new(0) }
    }

    fn only(&self, cpu: CpuId) -> CpuSet {
        let mut set = CpuSet::new(self.queue.cpus());
        set.insert(cpu);
        set
    }
}

impl Policy for Sedf {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let reservation = Reservation::new(params)?;
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        let home = self.homes.settle(&cpus, reservation.load());
        let state = SedfUnit {
            now: reservation,
            next: reservation,
            home,
            left: reservation.slice,
            overrun: Duration::ZERO,
            turn: EXTRA_QUANTUM,
            deadline: now,
            awake: false,
            exhaustions: 0,
            replenishments: 0,
        };
        let unit = self.queue.add(self.only(home), state);
        self.periods.grow(self.queue.capacity());
        Ok(unit)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let state = &self.queue[unit];
        self.homes.leave(state.home, state.next.load());
        self.periods.remove(unit.index());
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
        let state = &mut self.queue[unit];
        let (home, old) = (state.home, state.next.load());
        state.next = reservation;
        state.home = self.homes.resettle(home, old, &cpus, reservation.load());
        let only = self.only(self.queue[unit].home);
        self.queue.set_affinity(unit, only, resched);
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
            state.overrun = Duration::ZERO;
            state.start_period(now + state.next.period);
        }
        self.periods.set(unit.index(), state.deadline);
        if let Some(urgency) = state.urgency() {
            self.queue.ready(unit, urgency, resched);
        }
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if core::mem::replace(&mut self.queue[unit].awake, false) {
            self.periods.remove(unit.index());
            self.queue.unready(unit, resched);
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, unit: UnitId, ran: Duration) {
        let state = &mut self.queue[unit];
        let demoted = match state.left.is_zero() {
            true => state.consume_turn(ran),
            false => {
                state.consume_slice(ran);
                state.left.is_zero()
            }
        };
        if demoted && state.now.extratime {
            self.queue.demote(unit, Urgency::Extra);
        }
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        if let Some(unit) = self.queue.current(cpu)
            && self.queue[unit].urgency().is_none()
        {
            self.queue.stop_current(cpu);
        }
        let Some(unit) = self.queue.pick(cpu, resched) else {
            return Slice { run: Run::Idle, until: Instant::NEVER };
        };
        let state = &self.queue[unit];
        let left = if state.left.is_zero() { state.turn } else { state.left };
        Slice { run: Run::Unit(unit), until: now + left }
    }

    #[inline(always)]
    fn next_timer(&self) -> Timer {
        match self.periods.peek() {
            Some((id, at)) => Timer { at, charge: self.queue.cpu_of(UnitId(id as u32)) },
            None => Timer::NEVER,
        }
    }

    #[inline(always)]
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let Some((id, at)) = self.periods.peek() else {
            return;
        };
        if at > now {
            return;
        }
        let unit = UnitId(id as u32);
        let state = &mut self.queue[unit];
        let period = state.next.period;
        state.start_period(at + period * (now.since(at).div_floor(period) + 1));
        self.periods.set(id, state.deadline);
        match state.urgency() {
            Some(urgency) => self.queue.ready(unit, urgency, resched),
            None => self.queue.unready(unit, resched),
        }
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        let eligible = |unit: &SedfUnit| unit.urgency().is_some();
        self.queue.ranking(cpu, out, |unit| unit.urgency().unwrap_or_default(), eligible);
    }

    fn account(&self, unit: UnitId) -> Account {
        let state = &self.queue[unit];
        Account {
            left: Some(state.left),
            max: Some(state.now.slice),
            may_overrun: state.now.extratime,
            deadline: Some(state.deadline),
            home: Some(state.home),
            exhaustions: state.exhaustions,
            replenishments: state.replenishments,
        }
    }
}
