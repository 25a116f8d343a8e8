//! The command line: thin, it reads arguments, calls the other crates and prints.

#![forbid(unsafe_code)]

pub mod cli;
