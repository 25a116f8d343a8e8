//! The deferrable server: budget is kept while the unit has no work.
//!
//! # Rules
//! RT-Xen, section 4.1; Strosnider, Lehoczky, Sha, IEEE Trans. Computers 1995. All of [`super`], and:
//!
//! - **State.** The budget left and the next replenishment.
//! - **Consumed** while the unit runs, and only then.
//! - **Comes back** to full at `k` x period after insertion (k = 0, 1, ...). What was not used until then is
//!   lost, never added up.
//! - **Ties.** A replenishment at the instant of exhaustion comes after it: the unit goes on with a full
//!   budget.
//! - **Back to back.** A unit that saves its budget to the end of a period and spends the next one at once
//!   gets twice its budget without a break, and less urgent units wait that long.
//!
//! # Timeline
//! See [`super`] for how to read it.
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs          #####             #
//! left  33333333323210000000333333322233333333
//! ```
//!
//! The budget waits for the work. From 8 to 13 the unit gets its budget twice without a break.

use alloc::boxed::Box;

use super::{ACCOUNTING, BUDGETS, EveryPeriod, IDLE, QUANTUM, Servers, Settings, UNIT_PARAMS, WithoutWork};
use crate::info::{
    LinuxClass, OnLinux, Placement, PolicyInfo, SchedulabilityTest, ServerKind, WorkConservation,
};

/// Its name in host files and on the command line.
pub const NAME: &str = "deferrable";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "fixed-priority server that keeps unused budget until its period ends",
    source: "rt-xen s.4",
    unit_params: UNIT_PARAMS,
    options: &[QUANTUM, ACCOUNTING, IDLE],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: BUDGETS,
    sleep_matters: |_| false,
    has_timers: true,
    test: SchedulabilityTest::FixedPriorityServers(ServerKind::Deferrable),
    linux: OnLinux::servers(LinuxClass::Fifo, None),
    xen: None,
    construct: |cpus, options| {
        let settings = Settings::from_options(options)?;
        let rule = EveryPeriod::new(WithoutWork::Keep);
        Ok(Box::new(Servers::new(cpus, settings, rule)))
    },
};
