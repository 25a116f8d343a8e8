//! A plane that looks at the clock between its steps: what [`crate::costs`] measures.

use punctual_net::{Discipline, Next};
use punctual_sched::Instant;

use super::step_times::{PublishTime, StepTimes};
use super::{Outcome, Plane};
use crate::mailbox::Command;

impl<D: Discipline> Plane<D> {
    /// As [`Plane::run`], with a clock between the steps.
    pub(super) fn run_timed(mut self, shown: &PublishTime) -> (Outcome, StepTimes) {
        let mut times = StepTimes::default();
        loop {
            while let Some(command) = self.mailbox.try_recv() {
                if matches!(command, Command::Exit) {
                    return (self.finish(), times);
                }
                self.command(command);
            }
            self.now = self.shared.now();
            if let Some(since) = shown.see() {
                times.wake.record(since);
            }
            let until = self.work_timed(&mut times);
            self.idle(until);
        }
    }

    /// Carries packets until there are none. Returns when there will be.
    pub(super) fn work_timed(&mut self, times: &mut StepTimes) -> Option<Instant> {
        let until = loop {
            let start = self.shared.now();
            self.poll();
            match self.discipline.next(self.now) {
                Next::Process(step) => {
                    self.run_step(&step);
                    times.record(&step, self.shared.now().since(start));
                }
                Next::WaitUntil(until) => break Some(until),
                Next::Idle => break None,
            }
        };
        let start = self.shared.now();
        let tells = !self.pending.deliveries.is_empty();
        self.notify();
        if tells {
            times.tell.record(self.shared.now().since(start));
        }
        let start = self.shared.now();
        times.clock.record(self.shared.now().since(start));
        until
    }
}
