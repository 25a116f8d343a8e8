//! The polling server (discarding periodic server): without work the budget is lost at once.
//!
//! # Rules
//! RT-Xen, sections 4.1 and 4.2. All of [`super`], and:
//!
//! - **State.** The budget left and the next replenishment.
//! - **Consumed** while the unit runs. At every decision on its processor a unit without work loses all it
//!   has left until the next replenishment; a replenishment of a unit without work asks for a decision.
//! - **Comes back** to full at `k` x period after insertion (k = 0, 1, ...). The replenishment k = 0 is a
//!   timer event at the instant of insertion.
//! - **Ties.** Work that arrives at the instant of a replenishment, or at the instant the unit went to sleep,
//!   is in time if the driver reports it before the decision of that instant.
//!
//! # Timeline
//! See [`super`] for how to read it.
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs            ###       ##        #
//! left  00000000003210000000320000000030000000
//! ```
//!
//! Without work at 0, the unit loses its budget at once; so it does at 22, when it has done its work.

use alloc::boxed::Box;

use super::{ACCOUNTING, BUDGETS, EveryPeriod, IDLE, QUANTUM, Servers, Settings, UNIT_PARAMS, WithoutWork};
use crate::info::{
    LinuxClass, OnLinux, Placement, PolicyInfo, SchedulabilityTest, ServerKind, WorkConservation,
};

/// Its name in host files and on the command line.
pub const NAME: &str = "polling";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "fixed-priority server that loses its budget when it has no work",
    source: "rt-xen s.4",
    unit_params: UNIT_PARAMS,
    options: &[QUANTUM, ACCOUNTING, IDLE],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: BUDGETS,
    sleep_matters: |_| true,
    has_timers: true,
    test: SchedulabilityTest::FixedPriorityServers(ServerKind::Polling),
    linux: OnLinux::servers(LinuxClass::Fifo, Some(OnLinux::KEPT_WHILE_IDLE)),
    xen: None,
    construct: |cpus, options| {
        let settings = Settings::from_options(options)?;
        let rule = EveryPeriod::new(WithoutWork::Discard);
        Ok(Box::new(Servers::new(cpus, settings, rule)))
    },
};
