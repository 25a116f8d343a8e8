//! Curves, box plots, bars with their range and timelines as SVG for documents.
//!
//! The SVG is written here and not by a plotting crate because it must be the same bytes on every machine
//! and readable on a light and a dark page: colours follow the page (`prefers-color-scheme`), text is text,
//! and every coordinate is a whole number.

mod curves;
mod document;
mod gantt;
mod ranges;

pub use curves::{Axis, Chart, Series, svg};
pub use gantt::gantt;
pub use ranges::{RangeChart, RangeColumn, ranges};
