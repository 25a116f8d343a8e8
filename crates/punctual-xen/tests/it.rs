//! The C interface, called from Rust.

mod contract;
mod decisions;
mod late;
mod replay;
