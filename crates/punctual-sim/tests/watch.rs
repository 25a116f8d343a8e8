//! The observers of tests as one type. The machine is compiled for each type of observer, which took half of
//! the time to compile this program.

use punctual_model::{Host, Results};
use punctual_sched::Instant;
use punctual_sim::observe::{Event, Observer};
use punctual_sim::{Error, simulate_observed};

trait Watch {
    fn watch(&mut self, now: Instant, event: Event<'_>);
    fn has_seen_enough(&self) -> bool;
    fn judge(&mut self) -> Option<String>;
}

impl<O: Observer> Watch for O {
    fn watch(&mut self, now: Instant, event: Event<'_>) {
        self.observe(now, event);
    }

    fn has_seen_enough(&self) -> bool {
        self.stops()
    }

    fn judge(&mut self) -> Option<String> {
        self.verdict()
    }
}

struct Watched<'a>(&'a mut dyn Watch);

impl Observer for Watched<'_> {
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        self.0.watch(now, event);
    }

    fn stops(&self) -> bool {
        self.0.has_seen_enough()
    }

    fn verdict(&mut self) -> Option<String> {
        self.0.judge()
    }
}

/// As [`simulate_observed`].
pub(crate) fn simulate_watched(host: &Host, mut observer: impl Observer) -> Result<Results, Error> {
    simulate_observed(host, Watched(&mut observer))
}
