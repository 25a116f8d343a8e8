//! `[host_stack]`: a Linux host with its network stack.

/// The key whose table describes a Linux host with its network stack; a file without it describes pools.
pub(crate) const HOST_STACK: &str = "host_stack";

pub(crate) mod keys;
mod read;
pub(crate) mod write;

pub(crate) use read::{StackHead, read};
