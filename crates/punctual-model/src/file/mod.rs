//! The host file: TOML in, a validated [`Host`](crate::Host) or all errors out.
//!
//! The format is described in `docs/host-file.md`, which is generated from the same tables of keys that the
//! parser reads.

pub(crate) mod acceptance;
mod copies;
pub mod edit;
pub(crate) mod entry;
pub(crate) mod error;
mod fleet;
pub(crate) mod host;
mod host_stack;
mod key;
mod limits;
mod live;
mod load;
mod nearest;
mod network;
mod options;
mod overrides;
pub(crate) mod quantity;
mod reference;
mod schema;
mod section;
mod service;
pub(crate) mod source;
mod tree;
pub(crate) mod writer;

pub use acceptance::read::parse_limits;
pub use error::{ErrorRecord, Errors};
pub use fleet::read::parse_fleet;
pub use host::write::to_toml;
pub(crate) use limits::{NESTING_MAX, PROCESSORS_MAX};
pub use limits::{PERIOD_MIN, UNITS_MAX};
pub use load::{load, parse, parse_bytes, parse_host_stack, says_duration};
pub use nearest::nearest;
pub use overrides::{OtherOverheads, Overrides};
pub use quantity::YEAR as DURATION_MAX;
pub use reference::{
    update_fleet_reference, update_limits_reference, update_reference, update_service_reference,
};
pub use schema::{fleet_schema, schema};
pub use service::read::{ConfigFile, parse_service};

/// `"1.5ms"` as a duration, as everywhere in the host file.
///
/// # Errors
/// What was expected, as a phrase.
pub fn parse_duration(text: &str) -> Result<punctual_sched::Duration, String> {
    quantity::duration(text)
}

/// `"12.5%"` in parts per 10^9, as everywhere in the host file.
///
/// # Errors
/// What was expected, as a phrase.
pub fn parse_percent(text: &str) -> Result<u64, String> {
    quantity::percent(text)
}
