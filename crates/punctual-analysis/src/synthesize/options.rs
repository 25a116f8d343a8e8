//! What the search may choose.

use punctual_sched::Duration;

/// Which periods the search may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Periods {
    /// Those of the file.
    Given,
    /// The best of these for each vCPU; if there are none, of the file's, of whole ms in steps of 1, 2, 5,
    /// and of those that divide the periods of the vCPU's tasks.
    Free(Vec<Duration>),
}

/// How vCPUs without an affinity get their processors under partitioned policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// [`Placement::Exact`] up to eight of them, otherwise the cheapest of the three orders of fit.
    Auto,
    /// The first processor on which they fit, greatest demand first.
    FirstFit,
    /// The fullest processor on which they fit, greatest demand first.
    BestFit,
    /// The emptiest processor on which they fit, greatest demand first.
    WorstFit,
    Exact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Budgets are multiples of this; above zero.
    pub granularity: Duration,
    /// All deadlines still hold if every cost grows by this many millionths.
    pub margin_ppm: u64,
    pub periods: Periods,
    /// May the priorities in the file be changed? Where there are none they are always chosen.
    pub free_priorities: bool,
    pub placement: Placement,
    /// Analyses at most for each set of vCPUs before the search settles for the best it has.
    pub effort: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            granularity: Duration::from_us(100),
            margin_ppm: 0,
            periods: Periods::Given,
            free_priorities: false,
            placement: Placement::Auto,
            effort: 100_000,
        }
    }
}
