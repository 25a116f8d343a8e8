//! What the thread of an uplink counts.

use std::sync::atomic::AtomicU64;

/// What an uplink counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Frames that the wire did not take.
    pub(crate) lost: AtomicU64,
    /// How often the thread woke up.
    pub(crate) wakeups: AtomicU64,
    /// Processor time that it took, as of its last sleep.
    pub(crate) processor_ns: AtomicU64,
}
