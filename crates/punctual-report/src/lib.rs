//! Everything that leaves Punctual for a reader: terminal [`table`]s, versioned [`json`], [`html`] pages,
//! [`plot`]s, Perfetto [`trace`]s, and files for other programs ([`records`] as CSV, `parquet` with
//! the feature of this name, [`hdr`]).
//!
//! Nothing here measures or decides; it shows a [`punctual_model::Results`] or takes note of trace events.

#![forbid(unsafe_code)]

mod column;
pub mod comparison;
pub mod disturbance;
pub mod format;
pub mod hdr;
pub mod headline;
pub mod html;
mod job_rows;
pub mod jobs;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod perfetto;
pub mod plot;
pub mod records;
pub mod table;
pub mod timeline;
pub mod trace;

pub use column::Column;
