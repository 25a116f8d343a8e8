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
//! - **Preemption** and the choice of the processor: see `crate::run_queue`.
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
        |cpus, _| Ok(Box::new(QueuePolicy::new(cpus, Edf))),
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

fn relative_deadline(params: &UnitParams) -> Result<Option<Duration>, ParamError> {
    for (field, value) in [(UnitParams::DEADLINE, params.deadline), (UnitParams::PERIOD, params.period)] {
        require(value != Some(Duration::ZERO), field, || "longer than zero".into())?;
    }
    Ok(params.deadline.or(params.period))
}

/// The policy; see the module's rules.
#[derive(Debug)]
struct Edf;

impl QueueRules for Edf {
    type Key = Instant;
    type Params = Option<Duration>;
    type Unit = EdfUnit;
    const TIMERS: Timers = Timers::Never;
    const SLICES_END: bool = false;

    fn check(params: &UnitParams) -> Result<Option<Duration>, ParamError> {
        relative_deadline(params)
    }

    fn insert(&mut self, _now: Instant, relative: Option<Duration>, _cpus: &mut CpuSet) -> EdfUnit {
        EdfUnit { relative, deadline: Instant::NEVER, told: false }
    }

    fn adjust(&mut self, unit: &mut EdfUnit, relative: Option<Duration>, _cpus: &mut CpuSet) {
        unit.relative = relative;
    }

    #[inline(always)]
    fn urgency(unit: &EdfUnit) -> Option<Instant> {
        Some(unit.deadline)
    }

    #[inline(always)]
    fn wake(&mut self, unit: &mut EdfUnit, now: Instant) {
        if !unit.told {
            unit.deadline = unit.relative.map_or(Instant::NEVER, |relative| now + relative);
        }
    }

    #[inline(always)]
    fn sleep(&mut self, unit: &mut EdfUnit) {
        unit.told = false;
    }

    #[inline(always)]
    fn set_deadline(&mut self, unit: &mut EdfUnit, deadline: Instant) -> bool {
        (unit.deadline, unit.told) = (deadline, true);
        true
    }

    fn account(unit: &EdfUnit) -> Account {
        Account { deadline: Some(unit.deadline), ..Account::default() }
    }
}
