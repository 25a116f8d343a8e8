//! The protocol between host and guest: JSON values, one a line.
//!
//! The guest begins with [`Reply::Ready`]. Then the host sends one [`Request`] at a time and waits for the
//! [`Reply`] that ends it. Times are whole nanoseconds. Neither side trusts the other: lines have a maximum
//! length, numbers are checked ([`Run::check`], [`JobTimes::check`]), and a message that does not fit is an
//! error, never a panic.
//!
//! ```text
//! guest  {"ready":{"protocol":3,"mode":"vcpu","processors":1,"cyclictest":false}}
//! host   {"calibrate":{"duration_ns":200000000}}
//! guest  {"calibrated":{"iterations_per_ms":471034,"samples":1893,"spread_ppm":2120}}
//! host   {"run":{"start_at_ns":81000000000,"duration_ns":20000000,"iterations_per_ms":471034,"tasks":[...]}}
//! guest  {"progress":{"tasks":[[1,0]]}}
//! guest  {"jobs":{"task":0,"jobs":[[0,5210,1012380],[10000000,10005330,11020480]]}}
//! guest  {"result":{"overrun_ns":20110,"tasks":[{"jobs":2,"executed_ns":2000000}]}}
//! ```

mod bounds;
mod line;
mod message;
mod network;
mod validate;

pub use bounds::*;
pub use line::*;
pub use message::*;
pub use network::*;

/// The version of the protocol; both sides must have the same.
pub const VERSION: u32 = 3;
