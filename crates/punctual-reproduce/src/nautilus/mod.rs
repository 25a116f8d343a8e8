//! RTDS on Nautilus: cyclictest and ping.

pub(crate) mod cyclictest;
pub(crate) mod ping;
