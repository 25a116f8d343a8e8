//! What a check is.

use super::finding::Outcome;
use super::machine::Machine;
use super::root::ReadError;

/// A check: what it is about, the same on every machine, and how it examines a machine.
pub struct Check {
    /// Its name: `punctual doctor --explain ID`.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Why that matters for latency.
    pub why: &'static str,
    /// Where that is said: paper and section, file of Linux, manual page.
    pub source: &'static str,
    /// What is read and how it is judged.
    pub judged: &'static str,
    pub(super) examine: fn(&Machine) -> Result<Outcome, ReadError>,
}
