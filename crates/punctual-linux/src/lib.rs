//! The operating system as the rest of Punctual uses it.
//!
//! Here are the calls of Linux: threads and their scheduling, `/proc`, control groups, interfaces, child
//! processes, sockets with time limits, hypercalls, and what must be true of a machine before its threads can
//! be scheduled. Other programs' threads are told apart here too ([`vmm`]).
//!
//! Every crate of the live half may depend on this one; it depends on `punctual-sched` for its types of time.
//! It is the only crate of the live half with `unsafe`. It knows no host, no policy and no run.

pub mod channel;
pub mod child;
pub mod cpuset;
pub mod machine;
pub mod os;
pub mod partition;
pub mod preflight;
pub mod vmm;

pub use channel::Stop;
