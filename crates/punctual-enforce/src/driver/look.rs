//! What goes into a look and what comes out of it.

use punctual_model::histogram::Histogram;
use punctual_sched::Duration;

/// What a unit may do until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It does not run, even where the processor is idle otherwise.
    Parked,
    /// It runs when it has work; 0 is the most urgent of its processor (or pool, with one run queue for all).
    Ranked(u16),
}

/// What was read of a unit at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Processor time since the unit was last observed.
    pub ran: Duration,
    /// Budget that idled away since then, where the kernel charges it; `None`: the driver finds out.
    pub idled: Option<Duration>,
    /// Has it work? `None` when that was not read: then it has if it ran.
    pub has_work: Option<bool>,
}

/// What enforcement itself did, as distributions in ns.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// How much longer than its budget a unit had run when that was noticed, one value per exhaustion.
    pub overrun: Histogram,
    /// How long after its time a replenishment took effect.
    pub replenishment_lateness: Histogram,
    /// How much later than they were due looks came.
    pub look_lateness: Histogram,
    /// Time that the machine below took, the kernel charged to units, and was subtracted.
    pub stolen: Duration,
    /// How often a parked unit could run on to release a lock of its VMM.
    pub graces: u64,
    /// Looks.
    pub looks: u64,
}

/// What a driver counted of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// Everything that it was charged for, idling away included.
    pub charged: Duration,
    /// Budget idled away.
    pub idled_away: Duration,
    /// How often it was observed to get work; adding it counts as well.
    pub wakes: u64,
    /// How often it was observed to run out of work.
    pub sleeps: u64,
}
