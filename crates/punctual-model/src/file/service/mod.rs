//! The configuration of the service: tables of host files, with `mode` and classes.

pub(super) mod keys;
pub(super) mod read;
mod slots;
