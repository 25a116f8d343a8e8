//! RTDS on Nautilus: cyclictest and ping.

pub mod cyclictest;
pub mod ping;
