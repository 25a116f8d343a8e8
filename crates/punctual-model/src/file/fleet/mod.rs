//! The fleet file: hosts of some kinds and the VMs to place on them. Pools, classes' parameters, guests and
//! tasks are written and read as in a host file.

pub(crate) mod keys;
pub(crate) mod read;
