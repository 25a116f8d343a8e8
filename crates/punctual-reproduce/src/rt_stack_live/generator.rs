//! Programs of others that load a server.

use super::lab::Server;
use crate::error::Error;

/// How many requests or calls a load generator has under way at once.
pub(super) const CONCURRENCY: u32 = 4;

/// What a load generator counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Generated {
    /// Requests or calls in a second.
    pub(super) per_second: f64,
    /// Its other figures, in the order of [`Generator::told`].
    pub(super) cells: Vec<String>,
}

/// A load generator.
pub(super) struct Generator<'a> {
    /// Its name, and what it asks for.
    pub(super) title: &'static str,
    /// What it counts.
    pub(super) unit: &'static str,
    /// The names of its other figures.
    pub(super) told: [&'static str; 2],
    /// Lets it ask a server for so many seconds.
    pub(super) generate: &'a dyn Fn(&Server, u64) -> Result<Generated, Error>,
}
