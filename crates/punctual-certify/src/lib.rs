//! A go/no-go test of a host and its VMs that a customer can check.
//!
//! `fingerprint` describes the machine; `measure` measures it beside loads of its own (`load`), and guests
//! by the same code (`guest`); `causes` names who had the processor during the longest latencies. All of it
//! is a [`Certificate`], which [`verdict`] judges by a limits file, [`page`] shows, and [`compare`] holds
//! against an earlier one. The last four are pure: the same certificate gives the same answer anywhere.
//!
//! The loops that measure are in `punctual_guest::latency`, because guests run them too. Nothing here prints.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod causes;
pub mod certificate;
pub mod compare;
mod digest;
pub mod file;
mod fingerprint;
mod guest;
mod hwlat;
pub mod load;
#[cfg(test)]
mod made_up;
mod measure;
pub mod page;
mod run;
pub mod verdict;

pub use certificate::Certificate;
pub use guest::{AgentError, Guest, GuestError, Port, Reach};
pub use run::{CertifyError, Plan, Talk, run};
