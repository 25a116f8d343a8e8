//! Scheduling policies on a real Linux host.

pub mod blame;
pub mod cache;
pub mod calibrate;
mod channel;
pub mod child;
pub mod doctor;
pub mod driver;
pub mod enforcer;
pub mod guardian;
pub mod host_stack;
pub mod image;
pub mod journal;
mod machine;
pub mod notice;
pub mod os;
mod periods;
pub mod preflight;
pub mod qemu;
pub mod run;
pub mod session;
pub mod status;
pub mod unit;
pub mod vmm;
pub mod workload;
pub mod xen;

pub use channel::Stop;
