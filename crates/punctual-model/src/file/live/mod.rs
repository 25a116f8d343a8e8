//! What a domain is on a real host.

pub(super) mod keys;
pub(super) mod read;
pub(super) mod write;
