//! The command line: thin, it reads arguments, calls the other crates and prints. What it does with published
//! papers is a module of its own.

#![forbid(unsafe_code)]

pub mod cli;
pub mod reproduce;
