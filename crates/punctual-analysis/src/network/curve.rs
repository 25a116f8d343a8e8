//! Packets in time.

use punctual_sched::Duration;

use crate::demand::{Demand, NANOSECOND};

/// An arrival curve: `burst` packets at once every `period` or less often, up to `jitter` late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ArrivalCurve {
    pub(super) burst: u64,
    pub(super) period: Duration,
    pub(super) jitter: Duration,
}

impl ArrivalCurve {
    pub(super) fn every(period: Duration) -> Self {
        ArrivalCurve { burst: 1, period: period.max(NANOSECOND), jitter: Duration::ZERO }
    }

    pub(super) fn later(self, by: Duration) -> Self {
        ArrivalCurve { jitter: self.jitter + by, ..self }
    }

    /// The most packets in a closed interval of this length.
    pub(super) fn packets(&self, window: Duration) -> u64 {
        (window + self.jitter).div_floor(self.period).saturating_add(1).saturating_mul(self.burst)
    }

    pub(super) fn demand(&self, cost: Duration) -> Demand {
        Demand::implicit(cost * self.burst, self.period).late_by(self.jitter)
    }
}
