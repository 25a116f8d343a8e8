//! What happened, as rows that a chart can show: the report's form of a trace.
//!
//! A [`Timeline`] is read from the Perfetto trace that [`crate::trace`] writes, whether from a file or while
//! it is written ([`Reader`] is a [`std::io::Write`]). So there is one place that knows how execution nests,
//! and simulated and live runs need nothing of their own. A row is a processor, a vCPU or a task: what
//! executes there, its budget, its jobs.

mod encode;
mod read;
mod rows;

pub use encode::{Encoded, RowHeader};
pub use read::{Error, Reader, Window, read};
pub use rows::{Job, Row, RowKind, Slice, Timeline, Use};

#[cfg(test)]
mod tests;
