//! What a policy is written with: units and decisions, parameters, the facts of the registry, time.

pub(crate) use alloc::boxed::Box;
pub(crate) use alloc::vec::Vec;

pub(crate) use crate::affinity::allowed;
pub(crate) use crate::cpuset::{CpuId, CpuSet};
pub(crate) use crate::decision::{Run, Slice, Timer, UnitId};
pub(crate) use crate::info::{
    Budgets, LinuxClass, OnLinux, OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind,
    Placement, PolicyInfo, SchedulabilityTest, WorkConservation, XenScheduler,
};
pub(crate) use crate::params::{ParamError, UnitParams, require};
pub(crate) use crate::policy::{Account, Ahead, Asleep, Policy};
pub(crate) use crate::queue_policy::{Charged, QueuePolicy, QueueRules, Timers};
pub(crate) use crate::time::{Duration, Instant};
