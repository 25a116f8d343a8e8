//! What on a Linux machine adds latency, and the changes that cure it.
//!
//! Checks read a machine and report findings ([`doctor`]); a host stack's plan says which interrupts, threads
//! and settings of network cards a host file asks for ([`host_stack`]). Enforcement, runs and the command
//! line may depend on this crate. Nothing here changes the machine: a change is plain data, and a session
//! applies it and records it in its journal.

#![forbid(unsafe_code)]

pub mod doctor;
pub mod host_stack;
