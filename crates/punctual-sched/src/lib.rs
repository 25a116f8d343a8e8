#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! - [`time`]: instants and durations.
//! - [`policy`]: the interface, [`Policy`], and its contract.
//! - [`driver`]: a policy and its processors, driven as the contract asks.
//! - [`contract`]: the contract, checked at every call in debug builds.
//! - [`registry`]: the policies by name.
//! - [`servers`]: deferrable, periodic, polling and sporadic server.
//! - [`fixed_priority`]: fixed priority without budgets.
//! - [`background`]: units without a reservation, below those of any policy.
//! - [`turns`]: the vCPUs of a VM that want the same processor alternate, under any policy.
//! - [`utilization`]: sums of shares of a processor, exact.
//! - [`wrap`]: policies around policies, to record, shift or break them.

#![no_std]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

extern crate alloc;

mod affinity;
pub mod background;
mod bitmap;
pub mod contract;
mod cpuset;
mod decision;
pub mod driver;
mod driver_state;
pub mod heap;
mod homes;
mod info;
mod pairing;
mod params;
pub mod policy;
mod prelude;
mod queue_policy;
mod ranking;
pub mod registry;
mod run_queue;
pub mod servers;
mod slots;
pub mod time;
pub mod turns;
pub mod utilization;
mod vec_growth;
pub mod vm_server;
pub mod wrap;

pub use cpuset::{CpuId, CpuSet};
pub use decision::{Decision, Run, Slice, Timer, UnitId};
pub use driver::Driver;
pub use driver_state::{DriverState, Running};
pub use params::{ParamError, UnitParams};
pub use policy::{Account, Ahead, Asleep, Policy, Urgency};
pub use time::{Duration, Instant};

/// Declares the module of each policy and [`POLICIES`], the table of what the policies say about themselves.
/// The servers share a folder, so `servers/mod.rs` declares theirs.
macro_rules! policies {
    (servers { $($server:ident)* } $($policy:ident)*) => {
        $(pub mod $policy;)*

        /// The registry's table: the `INFO` of every policy.
        static POLICIES: &[info::PolicyInfo] = &[$(servers::$server::INFO,)* $($policy::INFO,)*];
    };
}

// All policies, in the order in which users see them.
policies! {
    servers { deferrable periodic polling sporadic }
    rtds
    sedf
    credit
    cbs
    fixed_priority
    edf
    round_robin
}
