//! A host carried out in guests of a Xen hypervisor.
//!
//! The command line and the experiments of papers may depend on this crate. It prints nothing and knows no
//! arguments.

#![forbid(unsafe_code)]

pub mod xen;
