//! Shared by tests of the program.

pub mod live;
