//! Round robin: ready units take turns of one time slice each, all treated alike.
//!
//! # Rules
//! - **State.** A FIFO queue of ready units for the whole pool, and for each unit what is left of its slice.
//! - **Consumption.** A slice is used up by running. Linux's `SCHED_RR` (`kernel/sched/rt.c`,
//!   `task_tick_rt`; default 100 ms, `RR_TIMESLICE` in `include/linux/sched/rt.h`, set by the sysctl
//!   `sched_rr_timeslice_ms`) is the model.
//! - **Return.** A unit that has used up its slice gets a full one and goes to the end of the queue. A unit
//!   that sleeps keeps the rest of its slice and goes to the end of the queue when it wakes.
//! - **Preemption.** None: a wake-up takes an idle processor or waits (see [`crate::run_queue`]).
//! - **Ties.** All units are equal: first come, first served.
//! - **New affinities** take effect at once; there are no other parameters.

use crate::prelude::*;

/// Its name in host files and on the command line.
pub const NAME: &str = "round-robin";

/// The option `slice`.
pub const SLICE: ParamInfo = ParamInfo {
    name: "slice",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Value(OptionValue::Duration(Duration::from_ms(100)))),
    help: "how long a unit may run before it goes to the end of the queue",
};

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    options: &[SLICE],
    work_conservation: WorkConservation::Always,
    test: SchedulabilityTest::None(
        "no guarantee: round robin gives everyone turns, and how long a turn takes to come depends on who \
         else has work",
    ),
    linux: OnLinux::without_budgets(
        LinuxClass::RoundRobin,
        Some("the turn of SCHED_RR is the machine's, kernel.sched_rr_timeslice_ms"),
    ),
    ..PolicyInfo::new(
        NAME,
        "equal turns of one time slice, global over the pool, no preemption within a slice",
        "Linux SCHED_RR: kernel/sched/rt.c, sched_rr_timeslice_ms",
        |cpus, options| {
            let slice = options.duration(&SLICE);
            if slice.is_zero() {
                return Err(OptionError { option: SLICE.name, expected: "longer than zero".into() });
            }
            Ok(Box::new(RoundRobin::new(cpus, slice)))
        },
    )
};

#[derive(Debug)]
struct RoundRobinUnit {
    left: Duration,
}

/// The policy; see the module's rules.
#[derive(Debug)]
pub struct RoundRobin {
    queue: RunQueue<(), RoundRobinUnit>,
    slice: Duration,
}

impl RoundRobin {
    /// A pool of `cpus` processors without units; `slice` is longer than zero.
    pub fn new(cpus: usize, slice: Duration) -> Self {
        RoundRobin { queue: RunQueue::new(cpus), slice }
    }
}

impl Policy for RoundRobin {
    fn insert(&mut self, _now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        Ok(self.queue.add(cpus, RoundRobinUnit { left: self.slice }))
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.queue.remove(unit, resched);
    }

    fn adjust(
        &mut self,
        _now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        self.queue.set_affinity(unit, cpus, resched);
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if !self.queue.is_ready(unit) {
            self.queue.ready(unit, (), resched);
        }
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.queue.unready(unit, resched);
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, unit: UnitId, ran: Duration) {
        let state = &mut self.queue[unit];
        state.left = state.left.saturating_sub(ran);
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        if let Some(unit) = self.queue.current(cpu)
            && self.queue[unit].left.is_zero()
        {
            self.queue[unit].left = self.slice;
            self.queue.demote(unit, ());
        }
        match self.queue.pick(cpu, resched) {
            Some(unit) => Slice { run: Run::Unit(unit), until: now + self.queue[unit].left },
            None => Slice { run: Run::Idle, until: Instant::NEVER },
        }
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.queue.ranking(cpu, out, |_| (), |_| true);
    }
}
