//! Task sets on real domains: the guest program, how to talk to it, and what its measurements mean.
//!
//! ```text
//! Process::start / qemu::Vm::start  ->  Client        one conversation with one guest
//! Client::calibrate                                   one guest after another, each on a quiet processor
//! Client::begin (all guests), Client::finish (all)    a run that starts everywhere at one instant
//! tasks::of_domain, tasks::job_stats                  from the host's task set, and back to results
//! ```

mod checks;
mod client;
mod error;
pub mod flows;
mod job_counter;
mod process;
pub mod tasks;

pub use checks::TaskJobs;
pub use client::{Client, GuestMeasurement, Progress};
pub use error::{ChannelError, ClientError, ProcessError, ProtocolError, TasksError};
pub use job_counter::{JobCounter, JobCounts};
pub use process::Process;
pub use punctual_guest::flows::bytes_of;

/// The guest program: a static executable, for VMs and for processes of the host.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/punctual-guest"));
