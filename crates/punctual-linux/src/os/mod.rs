//! The parts of Linux that enforcement touches. Everything that is read from `/proc` and `/sys` is parsed by
//! pure functions.

pub mod cgroup;
pub mod hypercall;
pub mod kvm;
pub mod load;
pub mod net;
pub mod proc;
pub mod sched;
pub mod signal;
pub mod socket;
pub mod stack;
pub mod switches;
pub mod tracepoints;
pub mod tsc;
pub mod users;
