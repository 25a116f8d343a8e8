//! Tests of placement: against an exhaustive search, properties, and one fleet's plan in full.

mod exhaustive;
mod golden;
mod properties;
mod random;
