//! The simulated machine. One program, because linking one for each file takes longer than running the tests.
//! `tests/memory.rs` counts what is allocated, so it is a program of its own.

mod best_effort;
mod blame;
mod broken_engine;
mod broken_policies;
mod classical;
mod events;
mod locks;
mod logs;
mod machine;
mod network;
mod replay;
mod smp;
mod turns;
mod watch;
