//! What a policy is written with: the interface, the registry's vocabulary, the run queue, time.

pub(crate) use alloc::boxed::Box;
pub(crate) use alloc::vec::Vec;

pub(crate) use crate::affinity::allowed;
pub(crate) use crate::cpuset::{CpuId, CpuSet};
pub(crate) use crate::policy::{
    Account, ParamError, Policy, Run, Slice, Timer, UnitId, UnitParams, sort_by_key,
};
pub(crate) use crate::registry::{
    Budgets, LinuxClass, OnLinux, OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind,
    Placement, PolicyInfo, SchedulabilityTest, WorkConservation, XenScheduler,
};
pub(crate) use crate::run_queue::{RunQueue, require};
pub(crate) use crate::time::{Duration, Instant};
