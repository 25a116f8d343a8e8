//! Schedulability of a host without running it.
//!
//! [`analyse`] takes a validated [`Host`](punctual_model::Host) and says for every task whether all its
//! deadlines are guaranteed, with how much slack, and what the greatest part of its response time is.
//! [`answers`] says the same with types. `docs/analysis.md` explains each test with its source and its
//! limits.
//!
//! A guarantee holds for every release pattern that the arrivals permit: tasks start at any offset, are
//! released at their period or separation or less often, and each job takes up to its greatest cost. (Only a
//! periodic task whose releases all coincide with its server's replenishments is taken at its offset.) All
//! arithmetic is on whole nanoseconds and exact fractions. A test that is only sufficient never refutes: it
//! says "unknown" and why.
//!
//! # Floors
//!
//! Each module uses those above it in this list, never those below, and hands values down:
//!
//! 1. *Bounds*: what is asked for ([`demand`]), what is supplied ([`supply`]), and what
//!    scheduling itself takes ([`overhead`]).
//! 2. *Tests*, on plain demands and supplies: [`fixed_priority`], [`edf`], [`global_fixed_priority`],
//!    [`global_edf`], [`several_vcpus`], [`resource`], [`packet_path`].
//! 3. *Inputs*: the host, which unit belongs to which scheduler, and what networks add (`inputs`).
//! 4. *Answers*: reasons ([`Reason`]), the answer for a task or a budget ([`Answer`]), and what the tests
//!    found out (`findings`).
//! 5. *Guests*: the tasks inside a unit, given what the unit supplies (`guest`).
//! 6. *Pools*: which test applies to a policy, and what each unit gets (`pool`).
//! 7. *Networks*: when packets are where, given what pools give their domains (`network`).
//! 8. [`analyse`]: pools and networks in turn until nothing changes; with it, `warnings` and `needs`, what
//!    a host promises.
//! 9. Searches that ask again and again: [`sensitivity`], [`synthesize`].
//!
//! A Linux host with its network stack has an analysis of its own, in `punctual-host-stack`.

#![forbid(unsafe_code)]

mod analyse;
mod answer;
pub mod demand;
pub mod edf;
mod findings;
pub mod fixed_priority;
pub mod global_edf;
pub mod global_fixed_priority;
mod guest;
mod inputs;
mod needs;
mod network;
pub mod overhead;
pub mod packet_path;
mod pool;
mod reason;
pub mod resource;
pub mod sensitivity;
pub mod several_vcpus;
pub mod supply;
pub mod synthesize;
mod warnings;
pub mod watch;

pub use analyse::{analyse, answers};
pub use answer::{Answer, Answers, FirstRelease, Pattern, Refutation, TaskAnswer, Test, VcpuAnswer};
pub use reason::{ChainReason, PacketReason, Reason};
pub use warnings::{FairServer, enforcement_warnings, fair_server_warnings, lock_warnings, vcpu_warnings};
