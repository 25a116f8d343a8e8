//! Everything that leaves Punctual for a reader: terminal [`table`]s, versioned [`json`], [`plot`]s and
//! Perfetto [`trace`]s.
//!
//! Nothing here measures or decides; it shows a [`punctual_model::Results`] or takes note of trace events.

#![forbid(unsafe_code)]

pub mod format;
pub mod json;
mod perfetto;
pub mod plot;
pub mod table;
pub mod trace;
