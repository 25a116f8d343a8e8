//! Counters of an uplink, written by its thread and read by others.

use std::sync::atomic::AtomicU64;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Frames that the wire did not accept.
    pub(crate) lost: AtomicU64,
    pub(crate) wakeups: AtomicU64,
    /// Processor time of the thread when it last slept.
    pub(crate) processor_ns: AtomicU64,
}
