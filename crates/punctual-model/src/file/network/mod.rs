//! Networks, flows and chains.

mod draft;
mod flow;
pub(super) mod keys;
pub(super) mod read;
pub(super) mod resolve;
mod switch;
pub(super) mod write;
