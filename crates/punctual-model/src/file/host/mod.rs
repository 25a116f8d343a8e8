//! The machine, its pools, domains and tasks.

mod build;
mod domain;
mod draft;
mod generate;
pub(super) mod keys;
mod pool;
pub(super) mod read;
mod task;
mod unit;
pub(crate) mod write;
