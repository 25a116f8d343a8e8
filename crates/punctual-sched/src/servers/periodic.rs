//! The periodic server: without work the budget idles away, as if an idle task ran inside the unit.
//!
//! # Rules
//! RT-Xen, sections 4.1 and 4.2 (the RdyQ exists for this server). All of [`super`], and:
//!
//! - **State.** The budget left and the next replenishment.
//! - **Consumed** while the unit runs, and also while it has no work and is the most urgent eligible unit of
//!   its processor: then the processor idles and the unit is charged
//!   ([`Run::IdleFor`](crate::decision::Run::IdleFor)). Less urgent units wait meanwhile, so this server is
//!   not work conserving.
//! - **Comes back** to full at `k` x period after insertion (k = 0, 1, ...); what was left is lost.
//! - **Ties.** A unit that wakes while its budget idles away runs at once.
//!
//! # Timeline
//! See [`super`] for how to read it.
//!
//! ```text
//! ms    0         10        20        30
//!       |         |         |         |
//! work          v                 v
//! runs  ~~~       ###       ##~       #~~
//! left  32100000003210000000321000000032100000
//! ```
//!
//! The work of 8 finds that the budget has idled away and waits for the next period, as does the work of 26.

use alloc::boxed::Box;

use super::{ACCOUNTING, BUDGETS, EveryPeriod, IDLE, QUANTUM, Servers, Settings, UNIT_PARAMS, WithoutWork};
use crate::info::{
    LinuxClass, OnLinux, Placement, PolicyInfo, SchedulabilityTest, ServerKind, WorkConservation,
};

/// Its name in host files and on the command line.
pub const NAME: &str = "periodic";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "fixed-priority server whose budget idles away while it has no work",
    source: "rt-xen s.4",
    unit_params: UNIT_PARAMS,
    options: &[QUANTUM, ACCOUNTING, IDLE],
    work_conservation: WorkConservation::Never,
    shared_queue: false,
    placement: Placement::Partitioned,
    budgets: BUDGETS,
    sleep_matters: |_| false,
    has_timers: true,
    test: SchedulabilityTest::FixedPriorityServers(ServerKind::Periodic),
    linux: OnLinux::servers(LinuxClass::Fifo, Some(OnLinux::KEPT_WHILE_IDLE)),
    xen: None,
    construct: |cpus, options| {
        let settings = Settings::from_options(options)?;
        let rule = EveryPeriod::new(WithoutWork::IdleAway);
        Ok(Box::new(Servers::new(cpus, settings, rule)))
    },
};
