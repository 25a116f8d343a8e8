//! What a policy reserves for a unit.

use punctual_sched::registry::PolicyInfo;
use punctual_sched::{Duration, UnitParams};

use crate::demand::NANOSECOND;

/// A budget in every period.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    /// At most the period.
    pub(super) budget: Duration,
    /// Above zero.
    pub(super) period: Duration,
}

impl Reserved {
    /// What the policy reserves for a unit with these parameters.
    pub(super) fn of(info: &PolicyInfo, params: &UnitParams) -> Self {
        let period = info.period(params).unwrap_or_default().max(NANOSECOND);
        Reserved { budget: info.budget(params).unwrap_or_default().min(period), period }
    }
}
