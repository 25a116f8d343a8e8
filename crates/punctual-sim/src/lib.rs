//! The deterministic machine: a discrete-event simulation of hierarchical schedulers.
//!
//! A scheduler maps units to processors. A pool's scheduler has physical processors; a guest's has vCPUs,
//! which are units of the scheduler above. There is no other kind of thing, so any number of levels works:
//! hypervisor and guest, a host and its containers (one level fewer), a VM inside a VM (one more).
//!
//! Time is integer nanoseconds. At each instant at which something happens, the machine first ends what
//! ends then (slices, jobs), then runs due timers of policies, then releases jobs, and only then lets
//! schedulers decide, guests before the pools under them. The same host gives the same results, bit for
//! bit, on any machine and however many simulations run beside it.
//!
//! A Linux host with its network stack has a machine of its own (`punctual-host-stack-sim`).
//!
//! Every simulation is watched by a [`Checker`]; a broken invariant stops the run with a description of what
//! happened. Further observers get the same events ([`observe`]).

#![forbid(unsafe_code)]

mod arrivals;
mod batch;
mod blame;
mod build;
mod change;
mod checker;
mod engine;
mod error;
mod index;
mod job_log;
mod locking;
mod locks;
mod machine;
mod min_tree;
mod names;
mod net;
pub mod observe;
mod outcome;
mod packet_log;
mod replay;
mod rounds;
mod simulate;
mod slice_log;
mod smp;
mod tracer;

pub use batch::simulate_all;
pub use blame::Blamer;
pub use checker::Checker;
pub use error::Error;
pub use job_log::JobLog;
pub use packet_log::PacketLog;
pub use replay::simulate_disturbed;
pub use simulate::{
    simulate, simulate_blamed, simulate_observed, simulate_traced, simulate_wrapped,
    simulate_wrapped_observed,
};
pub use slice_log::SliceLog;
pub use tracer::Tracer;
