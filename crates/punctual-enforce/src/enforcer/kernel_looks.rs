//! Looks of a pool whose units a scheduler in the kernel runs ([`super::kernel`]).

use punctual_sched::{CpuId, Duration, Instant};
use punctual_scx::{Ejected, Event, Mechanism, State, UNITS_MAX, UnitState};

use super::account::Account;
use super::history::{Entry, short};
use super::kernel::Said;
use super::pool::{Pool, SLEEP_MAX};
use crate::clock::now;
use crate::driver::Judgement;
use crate::notice::Notice;
use crate::unit;

/// How often a look asks whether units have ended.
const ENDED_INTERVAL: Duration = Duration::from_ms(50);

impl Pool {
    /// Puts a unit under the scheduler in the kernel, where there is one.
    pub(super) fn add_to_kernel(&mut self, number: usize) -> Result<(), unit::Error> {
        let (Some(kernel), Some(unit)) = (&mut self.kernel, &self.units[number]) else { return Ok(()) };
        kernel.add(number, unit).map_err(unit::Error::Kernel)
    }

    /// One look at the units that the kernel runs. `None` where the kernel has ended its scheduler: then the
    /// freezer has the units from the next look on.
    pub(super) fn look_at_kernel(
        &mut self,
        cpu: CpuId,
        at: Instant,
        account: &mut Account,
    ) -> Option<Instant> {
        let kernel = self.kernel.as_mut()?;
        let state = match kernel.scheduler.read(at.as_ns()) {
            Ok(State { ejected: Some(reason), .. }) => return self.fall_back(&reason),
            Ok(state) => state,
            Err(error) => {
                let reason = Ejected { kind: 0, message: error.to_string() };
                return self.fall_back(&reason);
            }
        };
        let due = self.due[cpu.index()].min(at);
        self.last_look[cpu.index()] = at;
        // Only for the evidence: what was late here delays no unit but one that waits for a budget.
        account.judge(at.since(due));
        self.driver.set_lateness(at.since(due), &Judgement::default());
        self.replay_events(cpu, &state);
        self.observe_kernel(&state, at);
        let settled = self.kernel.as_ref().map_or(at, |kernel| kernel.decided.settled(&state, at));
        let mut next = self.driver.observe(settled, cpu, &self.observed);
        if !self.tell_kernel(&state) {
            next = at;
        }
        let end = now();
        self.due[cpu.index()] = next.min(end + SLEEP_MAX);
        self.write_history(cpu, cpu, due, at, end);
        Some(next)
    }

    /// Replays to the policy what happened in the kernel since the last look, instant by instant.
    fn replay_events(&mut self, cpu: CpuId, state: &State) {
        let Some(kernel) = &mut self.kernel else { return };
        kernel.scheduler.take_events(&mut kernel.events);
        kernel.decided.learn_all(state);
        let events = std::mem::take(&mut kernel.events);
        let replays = kernel.decided.replays();
        for events in events.chunk_by(|one, other| one.at_ns == other.at_ns) {
            let at = Instant::from_ns(events[0].at_ns);
            self.observed.clear();
            for event in events {
                self.observe_event(event);
            }
            if !self.observed.is_empty() {
                self.driver.replay_event(at, cpu, &self.observed);
                self.write_history(cpu, cpu, at, at, at);
            } else if replays {
                self.write_exhaustions(cpu, at, events);
            }
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.events = events;
            kernel.events.clear();
        }
    }

    /// Reads what an event says. The end of a budget changes nothing but what the unit may do, so the policy
    /// learns of it with the next event.
    fn observe_event(&mut self, event: &Event) {
        let number = event.unit as usize;
        let (Some(kernel), Some(Some(_))) = (&mut self.kernel, self.units.get(number)) else { return };
        if number >= UNITS_MAX {
            return;
        }
        kernel.decided.learn(event);
        if !kernel.decided.replays() {
            return;
        }
        if !event.is_exhaustion {
            self.observed.push((number, kernel.decided.observe(number, &event.state)));
        }
        self.write_ran(number, &event.state);
    }

    /// Notes what a unit ran.
    fn write_ran(&mut self, number: usize, state: &UnitState) {
        let (Some(kernel), Some(Some(unit))) = (&mut self.kernel, self.units.get_mut(number)) else { return };
        let ran = kernel.decided.ran(number, state);
        unit.add_ran(ran);
        if !ran.is_zero() {
            let (ran_ns, waited_ns, arrivals) = (short(ran), 0, 1);
            self.history.push(Entry::Ran { unit: number as u32, ran_ns, waited_ns, arrivals });
        }
    }

    /// Reads what units ran, and releases those that ended.
    fn observe_kernel(&mut self, state: &State, at: Instant) {
        let Some(kernel) = &mut self.kernel else { return };
        let asks = at.since(kernel.asked) >= ENDED_INTERVAL;
        if asks {
            kernel.asked = at;
        }
        self.observed.clear();
        let mut ended = Vec::new();
        for number in 0..self.units.len().min(UNITS_MAX) {
            let (Some(kernel), Some(unit)) = (&mut self.kernel, &self.units[number]) else { continue };
            if asks && unit.has_ended() {
                ended.push((number, unit.name.clone()));
            }
            let state = &state.units[number];
            self.observed.push((number, kernel.decided.observe(number, state)));
            self.write_ran(number, state);
        }
        self.observed.retain(|(number, _)| ended.iter().all(|(gone, _)| gone != number));
        for (number, name) in ended {
            self.lose(number, name, unit::Error::Gone);
        }
    }

    /// Gives the kernel what the policy decided, and its threads to new units. False when a unit was lost.
    fn tell_kernel(&mut self, state: &State) -> bool {
        for number in 0..self.units.len() {
            if self.units[number].is_some() {
                self.publish(number, self.driver.order(number));
            }
        }
        let driver = &self.driver;
        let Some(kernel) = &mut self.kernel else { return true };
        kernel.said.clear();
        let numbers = self.units.iter().enumerate().filter(|(_, unit)| unit.is_some());
        kernel.said.extend(numbers.map(|(number, _)| Said::of(driver, number)));
        if let Some(table) = kernel.decided.table(state, &kernel.said, driver.idles_away()) {
            // A kernel that does not take it has ended the scheduler, which the next look finds.
            let _ = kernel.scheduler.decide(table);
        }
        let mut lost = Vec::new();
        for (number, unit) in self.units.iter_mut().enumerate() {
            let Some(unit) = unit else { continue };
            if let Err(error) = unit.hand_to_kernel() {
                lost.push((number, unit.name.clone(), error));
            }
        }
        let all_there = lost.is_empty();
        for (number, name, error) in lost {
            self.lose(number, name, error);
        }
        all_there
    }

    /// The kernel has ended its scheduler: threads are in the fair class. The freezer takes over.
    fn fall_back(&mut self, reason: &Ejected) -> Option<Instant> {
        self.kernel = None;
        self.driver.look_for_all();
        for unit in self.units.iter_mut().flatten() {
            unit.forget_priority();
            unit.resume_account();
        }
        self.must_read.fill(true);
        let reason = match reason.message.as_str() {
            "" => format!("kind {}", reason.kind),
            message => message.to_owned(),
        };
        self.notify(Notice::Ejected { reason });
        None
    }
}
