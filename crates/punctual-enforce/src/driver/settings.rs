//! What a driver is set to.

use punctual_sched::Duration;

/// How often and how exactly enforcers look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The shortest time between two looks that serve nothing but an exhaustion.
    pub granularity: Duration,
    /// The longest that an exhaustion of a unit that slept may go unnoticed.
    pub lateness_max: Duration,
    /// Who pays for an overrun because of a late look.
    pub late_overrun: LateOverrun,
    /// Is the number of a unit that was removed used again?
    pub reuses_numbers: bool,
    /// Does the kernel itself end budgets, know which units have work, parked ones too, and give budgets
    /// back where the policy says when ahead of time ([`punctual_sched::Policy::ahead`])? Then it reports
    /// all that, and no look comes for it alone.
    pub kernel_tells: bool,
}

/// What happens to the part of an overrun that arose because a look came later than it was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateOverrun {
    /// The unit owes it: its share over a long time is its budget.
    #[default]
    Owed,
    /// It is forgiven: a unit is never short of budget because its enforcer was late, and can get more than
    /// its budget over a long time.
    Forgiven,
}

impl Default for Settings {
    /// 20 us (a look costs a few of them) and 500 us; overruns are owed, and each unit has its own number.
    fn default() -> Self {
        Settings {
            granularity: Duration::from_us(20),
            lateness_max: Duration::from_us(500),
            late_overrun: LateOverrun::Owed,
            reuses_numbers: false,
            kernel_tells: false,
        }
    }
}
