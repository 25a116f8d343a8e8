//! Tests of the host's side of socket outsourcing.

mod calls;
mod header;
mod model;
