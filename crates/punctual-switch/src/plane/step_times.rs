//! What steps took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_net::{Stage, Step};
use punctual_sched::Duration;

use crate::stats::Histogram;

/// Frames of so many bytes are long here.
const LONG_BYTES: u32 = 1_024;

/// What steps took, each with one look at the clock.
#[derive(Debug, Default)]
pub(crate) struct StepTimes {
    /// From before the first of some frames was shown until the plane is awake.
    pub(crate) wake: Histogram,
    /// By stage, of short frames.
    pub(crate) stages: [Histogram; 3],
    /// Stage RX of long frames.
    pub(crate) long: Histogram,
    /// Telling the VMs.
    pub(crate) tell: Histogram,
    /// Two looks at the clock in a row.
    pub(crate) clock: Histogram,
}

impl StepTimes {
    pub(super) fn record(&mut self, step: &Step, took: Duration) {
        match step.packet.bytes >= LONG_BYTES {
            true if step.stage == Stage::Rx => self.long.record(took),
            // What is not copied takes as long as for short frames.
            true => {}
            false => self.stages[step.stage as usize].record(took),
        }
    }
}

/// When a driver showed frames to a plane that slept. All copies are the same.
#[derive(Clone, Debug)]
pub(crate) struct PublishTime {
    start: std::time::Instant,
    /// In ns since `start`; [`u64::MAX`]: the plane has seen them.
    at_ns: Arc<AtomicU64>,
}

impl PublishTime {
    pub(crate) fn new() -> PublishTime {
        PublishTime { start: std::time::Instant::now(), at_ns: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    fn elapsed_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Frames are shown next.
    pub(crate) fn now(&self) {
        self.at_ns.store(self.elapsed_ns(), Ordering::Release);
    }

    /// For how long they have been shown, if they were not seen before.
    pub(super) fn see(&self) -> Option<Duration> {
        let at_ns = self.at_ns.swap(u64::MAX, Ordering::AcqRel);
        (at_ns != u64::MAX).then(|| Duration::from_ns(self.elapsed_ns().saturating_sub(at_ns)))
    }
}
