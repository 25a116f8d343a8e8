//! What tests, examples and fuzz targets of several crates share.
//!
//! - [`driver`] drives one policy through scripted demands and checks each of its decisions; [`events`] plays
//!   any sequence of events under it.
//! - [`hosts`] builds hosts in code, [`random`] random ones, and [`sample`] has traces written by hand.
//!
//! A development dependency and nothing else. It depends on `punctual-sched` and, with the feature `hosts`,
//! on `punctual-model`: unit tests inside these two crates would see a second copy of their own types, so
//! there it serves integration tests only.

#![forbid(unsafe_code)]

pub mod driver;
pub mod events;
#[cfg(feature = "hosts")]
pub mod hosts;
#[cfg(feature = "hosts")]
pub mod random;
#[cfg(feature = "hosts")]
pub mod sample;
