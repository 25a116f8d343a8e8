//! Networks, flows and chains.

mod draft;
mod flow;
pub(super) mod keys;
mod names;
pub(super) mod read;
pub(super) mod resolve;
mod switch;
pub(super) mod write;
