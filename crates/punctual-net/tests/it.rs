//! Disciplines, limits and event channels. One program, because linking one for each file takes longer than
//! running the tests. `tests/allocation.rs` counts what is allocated, so it is a program of its own.

mod common;
mod cut_through;
mod disciplines;
mod event_channel;
mod golden;
mod properties;
mod rtca_exhaustive;
