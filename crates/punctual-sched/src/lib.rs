//! Real-time scheduling policies for virtual CPUs, as pure code.
//!
//! A policy is a state machine: events with the time they happened go in, decisions come out. It reads no
//! clock, starts no thread, makes no system call, allocates nothing per decision and computes in integers
//! only. The same object therefore runs in a simulator, in a live enforcer on Linux, or in a kernel.
//!
//! - [`time`]: instants and durations.
//! - [`policy`]: the interface, [`Policy`], and its contract.
//! - [`registry`]: the policies by name.
//! - [`servers`]: deferrable, periodic, polling and sporadic server.
//! - [`fixed_priority`]: fixed priority without budgets.
//! - [`run_queue`]: what the dynamic-priority policies share.
//! - [`wrap`]: policies around policies, to record, shift or break them.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod affinity;
pub mod bitmap;
pub mod cbs;
pub mod cpuset;
pub mod credit;
pub mod edf;
pub mod fixed_priority;
pub mod heap;
pub mod homes;
pub mod pairing;
pub mod policy;
pub mod registry;
pub mod round_robin;
pub mod rtds;
pub mod run_queue;
pub mod sedf;
pub mod servers;
mod slots;
pub mod time;
mod vec_growth;
pub mod wrap;

pub use cpuset::CpuSet;
pub use policy::{Account, CpuId, ParamError, Policy, Run, Slice, Timer, UnitId, UnitParams};
pub use time::{Duration, Instant};
