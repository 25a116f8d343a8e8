//! Round robin: ready units take turns of one time slice each, all treated alike.
//!
//! # Rules
//! - **State.** A FIFO queue of ready units for the whole pool, and for each unit what is left of its slice.
//! - **Consumption.** A slice is used up by running. Linux's `SCHED_RR` (`kernel/sched/rt.c`,
//!   `task_tick_rt`; default 100 ms, `RR_TIMESLICE` in `include/linux/sched/rt.h`, set by the sysctl
//!   `sched_rr_timeslice_ms`) is the model.
//! - **Return.** A unit that has used up its slice gets a full one and goes to the end of the queue. A unit
//!   that sleeps keeps the rest of its slice and goes to the end of the queue when it wakes.
//! - **Preemption.** None: a wake-up takes an idle processor or waits (see `crate::run_queue`).
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
            Ok(Box::new(QueuePolicy::new(cpus, RoundRobin { slice })))
        },
    )
};

#[derive(Debug)]
struct RoundRobinUnit {
    left: Duration,
}

/// The policy; see the module's rules.
#[derive(Debug)]
struct RoundRobin {
    slice: Duration,
}

impl QueueRules for RoundRobin {
    type Key = ();
    type Params = ();
    type Unit = RoundRobinUnit;
    const TIMERS: Timers = Timers::Never;
    const SLICES_END: bool = true;

    fn check(_params: &UnitParams) -> Result<(), ParamError> {
        Ok(())
    }

    fn insert(&mut self, _now: Instant, (): (), _cpus: &mut CpuSet) -> RoundRobinUnit {
        RoundRobinUnit { left: self.slice }
    }

    fn adjust(&mut self, _unit: &mut RoundRobinUnit, (): (), _cpus: &mut CpuSet) {}

    #[inline(always)]
    fn urgency(_unit: &RoundRobinUnit) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    fn slice(unit: &RoundRobinUnit) -> Duration {
        unit.left
    }

    #[inline(always)]
    fn charge(&mut self, unit: &mut RoundRobinUnit, ran: Duration) -> Charged {
        unit.left = unit.left.saturating_sub(ran);
        Charged::GoesOn
    }

    #[inline(always)]
    fn ends_turn(&mut self, unit: &mut RoundRobinUnit) -> bool {
        let is_over = unit.left.is_zero();
        if is_over {
            unit.left = self.slice;
        }
        is_over
    }
}
