//! Policies against the reference driver, and the registry. One program, because linking one for each file
//! takes longer than running the tests. `tests/allocation.rs` counts what is allocated, so it is a program of
//! its own.

mod background;
mod cbs;
mod chaos;
mod contract;
mod credit;
mod credit_of_xen;
mod drawings;
mod edf;
mod fixed_priority;
mod registry;
mod round_robin;
mod rtds;
mod sedf;
mod sedf_xen;
mod servers_properties;
mod servers_sporadic_defects;
mod servers_timelines;
mod turns;
mod vm_servers;
mod wrap;
