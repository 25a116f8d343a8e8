//! Schedulability of a host without running it.
//!
//! [`analyse`] takes a validated [`Host`](punctual_model::Host) and says for every task whether all its
//! deadlines are guaranteed, with how much slack, and what the greatest part of its response time is. The
//! modules below it are the tests themselves, on plain demands and supplies. `docs/analysis.md` explains each
//! with its source and its limits.
//!
//! A guarantee holds for every release pattern that the arrivals permit: tasks start at any offset, are
//! released at their period or separation or less often, and each job takes up to its greatest cost. (Only a
//! periodic task whose releases all coincide with its server's replenishments is taken at its offset.) All
//! arithmetic is on whole nanoseconds and exact fractions. A test that is only sufficient never refutes: it
//! says "unknown" and why.

#![forbid(unsafe_code)]

pub mod demand;
pub mod edf;
pub mod fixed_priority;
pub mod global_edf;
pub mod global_fixed_priority;
mod guest;
mod host;
mod network;
pub mod overhead;
pub mod packet_path;
mod pool;
pub mod report;
pub mod sensitivity;
pub mod supply;
pub mod synthesize;
mod warnings;

pub use host::analyse;
pub use report::{ChainReport, CounterExample, FlowReport, Latency, Report, TaskReport, VcpuReport, Verdict};
pub use warnings::of_enforcement;
