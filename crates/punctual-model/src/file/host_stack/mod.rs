//! `[host_stack]`: a Linux host with its network stack.

pub(crate) mod keys;
mod read;
pub(crate) mod write;

pub(crate) use read::read;
