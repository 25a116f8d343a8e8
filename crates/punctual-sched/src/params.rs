//! The parameters of a unit, and why they are refused.

use alloc::boxed::Box;
use core::fmt;

use crate::cpuset::{CpuId, CpuSet};
use crate::time::Duration;

/// What a user may set for a unit. Each policy reads what it documents and ignores the rest, so one host
/// file runs under every policy. `None` means the policy's default, or an error where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitParams {
    /// Processor time per period (a server's budget, SEDF's slice).
    pub budget: Option<Duration>,
    /// Replenishment period.
    pub period: Option<Duration>,
    /// Fixed priority; a smaller number is more urgent.
    pub priority: Option<u32>,
    /// Relative deadline, for deadline-driven policies whose driver does not set absolute deadlines.
    pub deadline: Option<Duration>,
    /// Proportional share.
    pub weight: Option<u32>,
    /// Upper limit in percent of one processor; 0 means none.
    pub cap_percent: Option<u32>,
    /// May the unit run on time that no other unit wants after its budget is used up?
    pub extratime: Option<bool>,
    /// Processors of the pool that the unit may run on; `None` means all.
    pub affinity: Option<CpuSet>,
    /// Is it a best-effort unit, below all others whatever the policy? Then of the parameters only the
    /// affinity counts. See [`crate::background`].
    pub best_effort: bool,
    /// The VM that the unit is a vCPU of, by a number of its own; `None` for a task, and for the only vCPU of
    /// a VM. Units of one VM take turns, see [`crate::turns`].
    pub vm: Option<u32>,
    /// Do all units of `vm` draw from one budget? See [`crate::vm_server`].
    pub shares_budget: bool,
}

impl UnitParams {
    /// The name of `budget` in host files and errors.
    pub const BUDGET: &str = "budget";
    /// The name of `period`.
    pub const PERIOD: &str = "period";
    /// The name of `priority`.
    pub const PRIORITY: &str = "priority";
    /// The name of `deadline`.
    pub const DEADLINE: &str = "deadline";
    /// The name of `weight`.
    pub const WEIGHT: &str = "weight";
    /// The name of `cap_percent`.
    pub const CAP_PERCENT: &str = "cap_percent";
    /// The name of `extratime`.
    pub const EXTRATIME: &str = "extratime";
    /// The name of `affinity`.
    pub const AFFINITY: &str = "affinity";
    /// The name of `best_effort`.
    pub const BEST_EFFORT: &str = "best_effort";

    /// The name of the key behind `shares_budget`.
    pub const BUDGET_OF: &str = "budget_of";

    /// The affinity must leave at least one of the pool's `cpus` processors.
    ///
    /// # Errors
    /// [`ParamError::OutOfRange`] for `affinity`.
    pub fn check_affinity(&self, cpus: usize) -> Result<(), ParamError> {
        match &self.affinity {
            Some(set) if !(0..cpus).any(|cpu| set.contains(CpuId(cpu as u32))) => {
                Err(ParamError::OutOfRange {
                    field: UnitParams::AFFINITY,
                    expected: alloc::format!("at least one of the pool's {cpus} processors").into(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Why parameters of a unit were refused. `field` is the parameter's name as in [`UnitParams`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// The policy needs this parameter and has no default for it.
    Missing {
        /// The parameter's name.
        field: &'static str,
    },
    /// The value is outside what the policy accepts.
    OutOfRange {
        /// The parameter's name.
        field: &'static str,
        /// What was expected, as a phrase: "at most the period (10ms)".
        expected: Box<str>,
    },
}

impl ParamError {
    /// The parameter that the error is about.
    pub fn field(&self) -> &'static str {
        match self {
            ParamError::Missing { field } | ParamError::OutOfRange { field, .. } => field,
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::Missing { field } => write!(f, "`{field}` is missing and has no default"),
            ParamError::OutOfRange { field, expected } => write!(f, "`{field}` must be {expected}"),
        }
    }
}

impl core::error::Error for ParamError {}

/// `Err` about `field` unless `holds`.
pub(crate) fn require(
    holds: bool,
    field: &'static str,
    expected: impl FnOnce() -> Box<str>,
) -> Result<(), ParamError> {
    if holds {
        return Ok(());
    }
    Err(ParamError::OutOfRange { field, expected: expected() })
}
