//! Networks, flows and chains.

mod draft;
pub(super) mod keys;
pub(super) mod read;
mod resolve;
pub(super) mod write;
