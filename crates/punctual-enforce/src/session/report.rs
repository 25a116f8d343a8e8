//! What a session did, for results and for the user.

use punctual_sched::Duration;

use super::isolation::Isolated;
use crate::backend::Chosen;
use crate::blame::PoolObservations;
use crate::driver::Evidence;
use crate::journal::Restored;

/// What one unit got.
#[derive(Clone, Debug)]
pub struct UnitReport {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: usize,
    /// Processor time while it was under enforcement.
    pub cpu_time: Duration,
    /// Budget idled away.
    pub idled_away: Duration,
    /// Wake-ups that were observed; 0 under policies that need not know of them.
    pub wakes: u64,
    /// Sleeps, as `wakes`.
    pub sleeps: u64,
    /// Budget exhaustions.
    pub exhaustions: u64,
    /// Replenishments.
    pub replenishments: u64,
}

/// What one pool's enforcement did.
#[derive(Debug)]
pub struct PoolReport {
    /// Name of the policy, or of the scheduler of plain Linux.
    pub policy: &'static str,
    /// Its processors.
    pub processors: Vec<usize>,
    /// Distributions of overrun and lateness; empty for plain Linux.
    pub evidence: Evidence,
    /// Decisions of the policy.
    pub decisions: u64,
    /// Processor time of the enforcers; empty for plain Linux.
    pub cost: Vec<Duration>,
    /// What enforcers saw, and what happened beside them; none under plain Linux.
    pub observations: Option<PoolObservations>,
    /// How often an enforcer was stuck and units lost their priorities meanwhile.
    pub demotions: u64,
    /// What enforced the policy, and why that was nothing better; `None` under plain Linux.
    pub enforced_by: Option<Chosen>,
    /// Its partition, if it is one.
    pub isolated: Option<Isolated>,
    /// What is not as the host file says, in sentences without a full stop: plain Linux cannot do everything.
    pub differences: Vec<String>,
}

/// What a session did.
#[derive(Debug)]
pub struct Report {
    /// From the start of the session until it ended.
    pub elapsed: Duration,
    /// By pool.
    pub pools: Vec<PoolReport>,
    /// By unit, in the order in which they were added, without those that were removed.
    pub units: Vec<UnitReport>,
    /// What was put back.
    pub restored: Restored,
}
