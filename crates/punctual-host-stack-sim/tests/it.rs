//! The simulated stack of a Linux host. One program, because linking one for each file takes longer than
//! running the tests.

mod bounds;
mod machine;
