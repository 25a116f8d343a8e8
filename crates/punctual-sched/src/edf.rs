//! Global preemptive earliest deadline first, without budgets: a guest's scheduler for jobs with deadlines.
//!
//! # Rules
//! - **State.** Each unit has an absolute deadline, that of its current job. The `m` ready units with the
//!   earliest deadlines run on the pool's `m` processors, within their affinities (Liu and Layland, JACM
//!   1973, for one processor; Dhall and Liu, Operations Research 1978, for several).
//! - **Deadlines** come from the driver ([`Policy::set_deadline`]), before a wake-up and whenever queued work
//!   becomes current. A unit that wakes without having been told one is due at wake-up + `deadline`, else
//!   + `period`; a unit with neither has no deadline and runs when no unit with a deadline is ready.
//! - **Budget.** None: nothing is consumed, nothing comes back, and a late job keeps running.
//! - **Ties.** A running unit keeps its processor. Otherwise first come, first served by the instant at which
//!   the deadline became current; a displaced unit keeps its place.
//! - **Preemption** and the choice of the processor: see [`crate::run_queue`].
//! - **New parameters** take effect at the next wake-up, a new affinity at once.

use crate::prelude::*;

/// Its name in host files and on the command line.
pub const NAME: &str = "edf";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    unit_params: &[
        ParamInfo {
            name: UnitParams::DEADLINE,
            kind: ParamKind::Duration,
            default: None,
            help: "relative deadline of jobs that bring none of their own; without it, the period",
        },
        ParamInfo {
            name: UnitParams::PERIOD,
            kind: ParamKind::Duration,
            default: None,
            help: "stands in for a missing deadline; with neither, the unit runs behind all deadlines",
        },
    ],
    work_conservation: WorkConservation::Always,
    has_timers: false,
    test: SchedulabilityTest::Edf,
    linux: OnLinux::without_budgets(
        LinuxClass::Fair,
        Some("Linux has deadlines only together with budgets; Linux's fair class decides"),
    ),
    ..PolicyInfo::new(
        NAME,
        "preemptive earliest deadline first, global over the pool, no budgets",
        "Liu & Layland, JACM 20(1), 1973; Dhall & Liu, Operations Research 26(1), 1978",
        |cpus, _| Ok(Box::new(Edf::new(cpus))),
    )
};

#[derive(Debug)]
struct EdfUnit {
    relative: Option<Duration>,
    deadline: Instant,
    /// Has the driver said when the current job is due? Set by `set_deadline`, cleared by `sleep`, checked by
    /// `wake`.
    told: bool,
}

/// The policy; see the module's rules.
#[derive(Debug)]
pub struct Edf {
    queue: RunQueue<Instant, EdfUnit>,
}

impl Edf {
    /// A pool of `cpus` processors without units.
    pub fn new(cpus: usize) -> Self {
        Edf { queue: RunQueue::new(cpus) }
    }
}

fn relative_deadline(params: &UnitParams) -> Result<Option<Duration>, ParamError> {
    for (field, value) in [(UnitParams::DEADLINE, params.deadline), (UnitParams::PERIOD, params.period)] {
        require(value != Some(Duration::ZERO), field, || "longer than zero".into())?;
    }
    Ok(params.deadline.or(params.period))
}

impl Policy for Edf {
    fn insert(&mut self, _now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let relative = relative_deadline(params)?;
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        Ok(self.queue.add(cpus, EdfUnit { relative, deadline: Instant::NEVER, told: false }))
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
        let relative = relative_deadline(params)?;
        let cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        self.queue[unit].relative = relative;
        self.queue.set_affinity(unit, cpus, resched);
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if self.queue.is_ready(unit) {
            return;
        }
        let state = &mut self.queue[unit];
        if !state.told {
            state.deadline = state.relative.map_or(Instant::NEVER, |relative| now + relative);
        }
        let deadline = state.deadline;
        self.queue.ready(unit, deadline, resched);
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if self.queue.is_ready(unit) {
            self.queue[unit].told = false;
            self.queue.unready(unit, resched);
        }
    }

    fn set_deadline(&mut self, _now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        let state = &mut self.queue[unit];
        (state.deadline, state.told) = (deadline, true);
        if self.queue.is_ready(unit) {
            self.queue.ready(unit, deadline, resched);
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, _unit: UnitId, _ran: Duration) {}

    #[inline(always)]
    fn pick(&mut self, _now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let run = self.queue.pick(cpu, resched).map_or(Run::Idle, Run::Unit);
        Slice { run, until: Instant::NEVER }
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.queue.ranking(cpu, out, |unit| unit.deadline, |_| true);
    }

    fn account(&self, unit: UnitId) -> Account {
        Account { deadline: Some(self.queue[unit].deadline), ..Account::default() }
    }
}
