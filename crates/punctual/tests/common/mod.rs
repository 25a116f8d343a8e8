//! Shared by tests of the program. Each test program uses a part of it.
#![allow(dead_code)]

pub mod faults;
pub mod live;
pub mod scopes;
