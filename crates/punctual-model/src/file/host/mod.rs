//! The machine, its pools, domains and tasks.

pub(super) mod build;
pub(super) mod domain;
pub(super) mod draft;
mod event;
mod generate;
pub(super) mod keys;
pub(super) mod locks;
pub(super) mod place;
pub(super) mod pool;
pub(super) mod read;
pub(super) mod scheduler;
mod smp;
pub(super) mod task;
pub(super) mod unit;
pub(crate) mod write;
