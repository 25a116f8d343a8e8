//! Shared by tests of the program. Each test program uses a part of it.
#![allow(dead_code)]

pub(crate) mod faults;
pub(crate) mod live;
pub(crate) mod scopes;
