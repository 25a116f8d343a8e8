//! A plane that looks at the clock between its steps: what [`crate::costs`] measures.

use punctual_net::{Discipline, Next};
use punctual_sched::Instant;

use super::step_times::{Shown, StepTimes};
use super::{Outcome, Plane};
use crate::mailbox::Command;

impl<D: Discipline> Plane<D> {
    /// As [`Plane::run`], with a clock between the steps.
    pub(super) fn run_timed(mut self, shown: &Shown) -> (Outcome, StepTimes) {
        let mut times = StepTimes::default();
        loop {
            while let Some(command) = self.mailbox.take() {
                if matches!(command, Command::End) {
                    return (self.finish(), times);
                }
                self.command(command);
            }
            self.now = self.shared.now();
            if let Some(since) = shown.see() {
                times.wake.record(since);
            }
            let until = self.work_timed(&mut times);
            self.rest(until);
        }
    }

    /// Carries packets until there are none. Returns when there will be.
    pub(super) fn work_timed(&mut self, times: &mut StepTimes) -> Option<Instant> {
        let until = loop {
            let start = self.shared.now();
            self.look();
            match self.discipline.next(self.now) {
                Next::Process(step) => {
                    self.carry(&step);
                    times.record(&step, self.shared.now().since(start));
                }
                Next::WaitUntil(until) => break Some(until),
                Next::Idle => break None,
            }
        };
        let start = self.shared.now();
        let tells = !self.untold.deliveries.is_empty();
        self.tell();
        if tells {
            times.tell.record(self.shared.now().since(start));
        }
        let start = self.shared.now();
        times.clock.record(self.shared.now().since(start));
        until
    }
}
