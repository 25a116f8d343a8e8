//! A scheduler in the kernel (sched_ext) that carries out what policies decide in user space.
//!
//! [`Table`] is what user space says: who is how urgent, up to which charged time each may run, and when
//! budgets come back, where that is known ahead of time. [`State`] and [`Event`] are what the kernel says:
//! what each was charged, which have work, and when that changed. [`Mechanism`] is the interface of both,
//! [`Loaded`] the scheduler in the running kernel.
//!
//! The loader uses `libbpf-rs` without skeletons: they map variables of the scheduler as plain Rust data,
//! which both sides would change at the same time. Here system calls copy them, so the crate needs no
//! `unsafe`. A look costs one such call, a decision two more.

#![forbid(unsafe_code)]

mod interface;
#[cfg(has_object)]
mod loaded;
#[cfg(not(has_object))]
mod unloaded;

pub use interface::{
    Asleep, Decision, Ejected, Event, Mechanism, NEVER_NS, State, Table, UNITS_MAX, UnitState,
};
#[cfg(has_object)]
pub use loaded::{Error, Loaded};
#[cfg(not(has_object))]
pub use unloaded::{Error, Loaded};

/// Does this program contain the scheduler?
pub const HAS_OBJECT: bool = cfg!(has_object);
