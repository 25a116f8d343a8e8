//! Requests on their way, calls, and the distributions of response times.

use punctual_model::Histogram;
use punctual_model::results::{HostPart, Segment};
use punctual_sched::Duration;

/// Number of parts.
pub(crate) const PARTS: usize = HostPart::ALL.len();

/// A request on its way.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) instance: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u32,
    pub(crate) reply_bytes: u32,
    /// It is in the response times.
    pub(crate) counts: bool,
    /// The call that it belongs to.
    pub(crate) call: Option<u32>,
    /// When it came to the card.
    pub(crate) arrived: u64,
    /// Up to here its time is accounted for.
    pub(crate) mark: u64,
    pub(crate) parts: [u64; PARTS],
}

/// A call under way.
#[derive(Clone, Copy)]
pub(crate) struct OpenCall {
    pub(crate) instance: usize,
    /// The group that was sent last.
    pub(crate) group: usize,
    /// Its requests that are not answered.
    pub(crate) unanswered: u32,
}

/// Response times of a server, with their segments and parts.
pub(crate) struct Times {
    pub(crate) latency: Histogram,
    pub(crate) segments: Vec<(Segment, Histogram)>,
    pub(crate) parts: Vec<Histogram>,
}

impl Times {
    pub(crate) fn new() -> Self {
        Times {
            latency: Histogram::new(),
            segments: Segment::HOST.map(|segment| (segment, Histogram::new())).into(),
            parts: vec![Histogram::new(); PARTS],
        }
    }

    pub(crate) fn record(&mut self, request: &Request, latency: u64) {
        self.latency.record(Duration::from_ns(latency));
        for (segment, histogram) in &mut self.segments {
            let own = HostPart::ALL.into_iter().filter(|part| part.segment() == *segment);
            let sum = own.map(|part| request.parts[part as usize]).sum();
            histogram.record(Duration::from_ns(sum));
        }
        for (histogram, &part) in self.parts.iter_mut().zip(&request.parts) {
            histogram.record(Duration::from_ns(part));
        }
    }
}

/// A step: what it costs, refilling the cache apart, and what both are called in the breakdown of a request.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) cost: u64,
    pub(crate) refill: u64,
    pub(crate) part: HostPart,
    /// Waiting before the step and in between.
    pub(crate) wait: HostPart,
}
