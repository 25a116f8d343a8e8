//! Scheduling policies enforced on threads of a Linux host.
//!
//! A [`session`] adopts threads, writes down how they were ([`journal`]), lets enforcers carry out what
//! policies decide ([`enforcer`], [`driver`]), and puts everything back; a [`guardian`] does so where the
//! session was killed. [`blame`] says what units were at, and [`calibrate`] measures what a machine costs.
//!
//! Runs, experiments and the command line may depend on this crate. Nothing here starts a guest, and nothing
//! of a thread, control group or interface is changed before the journal says how to undo it.

#![forbid(unsafe_code)]
// Not for others: a field is documented where its name does not say all.
#![allow(missing_docs)]

pub mod backend;
pub mod blame;
pub mod calibrate;
pub mod clock;
pub mod driver;
pub mod enforcer;
pub mod guardian;
pub mod journal;
pub mod launch;
pub mod notice;
pub mod session;
mod spans;
pub mod unit;
