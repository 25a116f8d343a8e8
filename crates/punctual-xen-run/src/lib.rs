//! A host run in guests of a Xen hypervisor, from its domain 0.
//!
//! [`run`] makes cpupools and guests, lets the guest program run the tasks, and puts Xen back. [`hypervisor`]
//! calls Xen, and knows its cpupools and domains by name; [`control`] sets policies and parameters, of
//! Punctual's scheduler or of Xen's own.
//!
//! The command line and the experiments of papers may depend on this crate. It reads no arguments and prints
//! nothing. The scheduler itself is in `xen/` and `punctual-xen`.

#![forbid(unsafe_code)]
// Not for others: a field is documented where its name does not say all.
#![allow(missing_docs)]

pub mod control;
pub mod error;
mod guest;
pub mod hypervisor;
mod own;
mod plan;
pub mod run;
mod tools;
