//! Times of a plane's steps, for [`crate::costs`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_net::{Stage, Step};
use punctual_sched::Duration;

use crate::narrow::nanos;
use crate::stats::Histogram;

/// Frames of this length count as long here.
const LONG_BYTES: u32 = 1_024;

/// Times of steps, each including one read of the clock.
#[derive(Debug, Default)]
pub(crate) struct StepTimes {
    /// From before a driver publishes the first frame of a burst until the plane is awake.
    pub(crate) wake: Histogram,
    /// By stage, of short frames.
    pub(crate) stages: [Histogram; 3],
    /// Stage RX of long frames.
    pub(crate) long: Histogram,
    pub(crate) notify: Histogram,
    /// Between two reads of the clock.
    pub(crate) clock: Histogram,
}

impl StepTimes {
    pub(super) fn record(&mut self, step: &Step, took: Duration) {
        if step.packet.bytes < LONG_BYTES {
            self.stages[step.stage as usize].record(took);
        } else if step.stage == Stage::Rx {
            self.long.record(took);
        }
    }
}

/// When a driver published frames to a sleeping plane. Clones share the value.
#[derive(Clone, Debug)]
pub(crate) struct PublishTime {
    start: std::time::Instant,
    /// Nanoseconds since `start`; [`u64::MAX`]: the plane has taken the time.
    at_ns: Arc<AtomicU64>,
}

impl PublishTime {
    pub(crate) fn new() -> PublishTime {
        PublishTime { start: std::time::Instant::now(), at_ns: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    fn elapsed_ns(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// A driver is about to publish frames.
    pub(crate) fn set_now(&self) {
        self.at_ns.store(self.elapsed_ns(), Ordering::Release);
    }

    /// The time since the frames were published, once.
    pub(super) fn take_elapsed(&self) -> Option<Duration> {
        let at_ns = self.at_ns.swap(u64::MAX, Ordering::AcqRel);
        (at_ns != u64::MAX).then(|| Duration::from_ns(self.elapsed_ns().saturating_sub(at_ns)))
    }
}
