//! Who had a processor while others waited for it, added up once for all jobs that waited since the same
//! instant.
//!
//! Where a thousand vCPUs share a processor, each job waits for hundreds of them. The jobs of one instant
//! begin to wait together, and each waits a little longer than the one before: what the earlier one waited
//! for is part of what the later one waits for. Sums only grow, so the greatest of them are always known.

use punctual_sched::{Duration, Instant};

use super::log::{Log, Sight, ViewIx};
use crate::observe::UnitIx;

/// How many others a job names for a cause at most: those with the greatest times. The rest is one entry
/// without a name.
pub(super) const NAMED_MAX: usize = 8;

/// Sums take at most this many places of 8 bytes, unless eight spans need more.
const PLACES_MAX: usize = 1 << 21;

/// A time in which a unit waited.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub view: ViewIx,
    pub from: Instant,
    pub until: Instant,
}

impl Wait {
    pub(super) fn length(self) -> Duration {
        self.until.since(self.from)
    }
}

/// The spans that were used last, the latest first.
pub(super) struct Shared {
    spans: Vec<Span>,
    spans_max: usize,
    units: usize,
}

/// What processors of a view did from an instant on.
pub(super) struct Span {
    wait: Wait,
    /// By unit: how long it had them.
    sums: Vec<Duration>,
    units: Vec<UnitIx>,
    /// The greatest sums, and of equal ones those of the first units; [`NAMED_MAX`] at most.
    greatest: Vec<(Duration, UnitIx)>,
    /// How long no unit had them.
    pub idle: Duration,
}

impl Shared {
    pub(super) fn new(units: usize) -> Self {
        Shared { spans: Vec::new(), spans_max: (PLACES_MAX / units.max(1)).clamp(8, 128), units }
    }

    /// Nothing of it is needed any more.
    pub(super) fn forget(&mut self) {
        self.spans.clear();
    }

    /// What processors did while a unit waited; `None`: another unit that began to wait then has waited
    /// longer.
    pub(super) fn span(&mut self, wait: Wait, views: &Log<Sight>, explanation: u32) -> Option<&Span> {
        let begins_so = |span: &Span| (span.wait.view, span.wait.from) == (wait.view, wait.from);
        let place = match self.spans.iter().position(begins_so) {
            Some(place) if self.spans[place].wait.until > wait.until => return None,
            Some(place) => place,
            None if self.spans.len() < self.spans_max => {
                self.spans.push(Span::new(wait, self.units));
                self.spans.len() - 1
            }
            None => {
                self.spans.last_mut()?.begin(wait);
                self.spans.len() - 1
            }
        };
        self.spans[..=place].rotate_right(1);
        let span = &mut self.spans[0];
        let known = std::mem::replace(&mut span.wait.until, wait.until);
        let mut pieces = views.read(explanation, wait.view.0 as usize, known, wait.until);
        while let Some((from, until, sight)) = pieces.next(views) {
            match sight.occupant.charged() {
                Some(unit) => span.add(unit, until.since(from)),
                None => span.idle += until.since(from),
            }
        }
        Some(span)
    }
}

impl Span {
    fn new(wait: Wait, units: usize) -> Self {
        let mut span = Span {
            wait,
            sums: vec![Duration::ZERO; units],
            units: Vec::new(),
            greatest: Vec::with_capacity(NAMED_MAX + 1),
            idle: Duration::ZERO,
        };
        span.begin(wait);
        span
    }

    /// Starts over, with nothing.
    fn begin(&mut self, wait: Wait) {
        self.wait = Wait { until: wait.from, ..wait };
        self.units.drain(..).for_each(|unit| self.sums[unit.index()] = Duration::ZERO);
        self.greatest.clear();
        self.idle = Duration::ZERO;
    }

    fn add(&mut self, unit: UnitIx, time: Duration) {
        let sum = &mut self.sums[unit.index()];
        if sum.is_zero() {
            self.units.push(unit);
        }
        *sum += time;
        let sum = *sum;
        let comes_first = |other: &(Duration, UnitIx)| other.0 > sum || other.0 == sum && other.1 < unit;
        if self.greatest.len() == NAMED_MAX && self.greatest.last().is_some_and(comes_first) {
            return;
        }
        self.greatest.retain(|&(_, other)| other != unit);
        let place = self.greatest.partition_point(comes_first);
        self.greatest.insert(place, (sum, unit));
        self.greatest.truncate(NAMED_MAX);
    }

    /// How long the unit had the processors.
    pub(super) fn sum(&self, unit: UnitIx) -> Duration {
        self.sums[unit.index()]
    }

    pub(super) fn greatest(&self) -> impl Iterator<Item = UnitIx> {
        self.greatest.iter().map(|&(_, unit)| unit)
    }

    /// How long units had the processors.
    pub(super) fn total(&self) -> Duration {
        self.wait.length() - self.idle
    }
}
