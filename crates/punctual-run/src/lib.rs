//! A host carried out on this machine, from its description to its results.
//!
//! The command line and the experiments of papers may depend on this crate. It prints nothing and knows no
//! arguments.

#![forbid(unsafe_code)]

pub mod run;
pub mod status;
