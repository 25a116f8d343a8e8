//! The loop of a plane that reads the clock between its steps, for [`crate::costs`].

use punctual_net::{Discipline, Next};
use punctual_sched::Instant;

use super::step_times::{PublishTime, StepTimes};
use super::{Outcome, Plane};
use crate::mailbox::Command;

impl<D: Discipline> Plane<D> {
    /// As [`Plane::run`], and records what the steps take.
    pub(super) fn run_timed(mut self, published: &PublishTime) -> (Outcome, StepTimes) {
        let mut times = StepTimes::default();
        // Each stage is measured by itself.
        self.cuts_through = false;
        loop {
            while let Some(command) = self.mailbox.try_recv() {
                if matches!(command, Command::Exit) {
                    return (self.finish(), times);
                }
                self.command(command);
            }
            self.now = self.shared.now();
            if let Some(since) = published.take_elapsed() {
                times.wake.record(since);
            }
            let until = self.run_until_idle(&mut times);
            self.idle(until);
        }
    }

    /// Runs steps until no packet is ready. Returns when the next one will be.
    fn run_until_idle(&mut self, times: &mut StepTimes) -> Option<Instant> {
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
        let has_deliveries = self.pending.has_deliveries();
        self.notify();
        if has_deliveries {
            times.notify.record(self.shared.now().since(start));
        }
        let start = self.shared.now();
        times.clock.record(self.shared.now().since(start));
        until
    }
}
