//! A host carried out in guests of a Xen hypervisor.
//!
//! The command line and the experiments of papers may depend on this crate. It prints nothing and knows no
//! arguments.

#![forbid(unsafe_code)]
// Not for others: a field is documented where its name does not say all.
#![allow(missing_docs)]

pub mod xen;
