//! The limits file of an acceptance test.

pub(crate) mod keys;
pub(crate) mod read;
