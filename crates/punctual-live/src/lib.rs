//! Scheduling policies on a real Linux host.

pub mod driver;
pub mod enforcer;
pub mod guardian;
pub mod journal;
pub mod os;
pub mod preflight;
pub mod session;
pub mod unit;
