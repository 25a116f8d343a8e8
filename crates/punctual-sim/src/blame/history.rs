//! What happened, as far back as a job needs it, and where the time of a unit went.

use punctual_model::results::Cause;
use punctual_sched::{Duration, Instant};

use super::log::{Log, Sight, ViewIx};
use super::parts::Parts;
use super::shared::{Shared, Wait};
use crate::observe::{ProcessorIx, UnitIx};

/// What a unit with work is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Picked(ProcessorIx),
    Waits(ViewIx),
    /// It waits for a resource that this unit holds, beside the vCPU in view.
    Blocked(ViewIx, UnitIx),
    /// Its budget is used up. The unit that executed last before that: a task, or a vCPU for its kernel; none
    /// if the budget idled away.
    Broke(UnitIx),
}

/// What time counts as in which a processor executes.
#[derive(Clone, Copy)]
pub(super) enum Execution {
    Own,
    Other(UnitIx),
    /// A resource is missing, which this unit holds.
    Blocked(UnitIx),
    Kernel,
    Nothing,
}

/// Everything that happened since it last forgot.
pub(super) struct History {
    physical: usize,
    /// How often it was read from the end.
    explanations: u32,
    /// Do jobs share what they waited for?
    shares: bool,
    shared: Shared,
    pub units: Log<State>,
    pub views: Log<Sight>,
    /// By unit: when scheduling began to take its time on a physical processor, and until when it did.
    switches: Log<Instant>,
    /// By vCPU: does its guest's kernel work on the network?
    kernels: Log<bool>,
}

impl History {
    /// With room for this many changes.
    pub(super) fn new(
        (physical, vcpus, tasks): (usize, usize, usize),
        shared_min: usize,
        room: usize,
    ) -> Self {
        History {
            physical,
            explanations: 0,
            shares: vcpus + tasks >= shared_min,
            shared: Shared::new(vcpus + tasks),
            units: Log::new(vcpus + tasks, room),
            views: Log::new(physical + vcpus, room),
            switches: Log::new(vcpus + tasks, room),
            kernels: Log::new(vcpus, 0),
        }
    }

    /// How long it is: what units are at changes hardly more often than what processors do.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.views.len() + self.switches.len() + self.kernels.len()
    }

    /// Scheduling takes the time of a unit that is picked for a physical processor.
    #[inline]
    pub(crate) fn add_switch(&mut self, unit: UnitIx, now: Instant, until: Instant) {
        self.switches.write(unit.index(), now, until);
    }

    /// The kernel of the vCPU's guest has work from now on, or none.
    pub(crate) fn set_kernel(&mut self, vcpu: UnitIx, now: Instant, busy: bool) {
        if !self.kernels.knows(vcpu.index()) {
            self.kernels.write(vcpu.index(), Instant::ZERO, false);
        }
        self.kernels.write(vcpu.index(), now, busy);
    }

    /// Forgets everything but what lasts.
    pub(super) fn forget(&mut self) {
        self.units.forget();
        self.views.forget();
        self.switches.forget();
        self.kernels.forget();
        self.shared.forget();
    }

    /// Adds up what the time of a task from `from` until `until` went to. Where that is `all` there is to
    /// say of a job, those who had the processor while it waited longest need not all be named.
    pub(super) fn explain(
        &mut self,
        task: UnitIx,
        (from, until): (Instant, Instant),
        all: bool,
        parts: &mut Parts,
    ) {
        let (number, shares) = (self.next_number(), all && self.shares);
        let mut explanation = Explanation { number, history: self, task, parts, shares, longest: None };
        explanation.unit(task, from, until, Execution::Own);
        if let Some(wait) = explanation.longest {
            explanation.longest_wait(wait);
        }
    }

    fn next_number(&mut self) -> u32 {
        self.explanations = self.explanations.wrapping_add(1);
        self.explanations
    }
}

/// The breakdown of one job's time.
struct Explanation<'a> {
    history: &'a mut History,
    number: u32,
    task: UnitIx,
    parts: &'a mut Parts,
    /// Is what others had the processor shared with other jobs?
    shares: bool,
    /// The longest wait for a physical processor so far, which has not been added.
    longest: Option<Wait>,
}

impl Explanation<'_> {
    /// The time of a unit: the task itself, or a vCPU that it needs.
    fn unit(&mut self, unit: UnitIx, from: Instant, until: Instant, execution: Execution) {
        let mut pieces = self.history.units.read(self.number, unit.index(), from, until);
        while let Some((begin, end, state)) = pieces.next(&self.history.units) {
            match state {
                State::Picked(processor) => self.picked(unit, processor, (begin, end), execution),
                State::Waits(view) => self.waits(Wait { view, from: begin, until: end }),
                State::Blocked(view, holder) => self.blocked(holder, Wait { view, from: begin, until: end }),
                State::Broke(spender) => {
                    let (cause, by) = match spender {
                        UnitIx::NONE => (Cause::BudgetIdledAway, UnitIx::NONE),
                        spender if spender == self.task => (Cause::BudgetUsedBySelf, UnitIx::NONE),
                        spender => (Cause::BudgetUsedBySibling, spender),
                    };
                    self.parts.add(cause, by, end.since(begin));
                }
            }
        }
        self.history.units.leave(self.number, unit.index(), &pieces);
        // A vCPU that has not been awake yet.
        self.parts.add(Cause::ProcessorIdle, UnitIx::NONE, pieces.until.since(from));
    }

    /// The unit has a processor, which is a vCPU if it is a guest's.
    #[inline]
    fn picked(
        &mut self,
        unit: UnitIx,
        processor: ProcessorIx,
        (from, until): (Instant, Instant),
        execution: Execution,
    ) {
        if !self.history.kernels.knows(unit.index()) {
            return self.executes(unit, processor, (from, until), execution);
        }
        let mut pieces = self.history.kernels.read(self.number, unit.index(), from, until);
        while let Some((begin, end, busy)) = pieces.next(&self.history.kernels) {
            let execution = if busy { Execution::Kernel } else { execution };
            self.executes(unit, processor, (begin, end), execution);
        }
        self.history.kernels.leave(self.number, unit.index(), &pieces);
    }

    #[inline]
    fn executes(
        &mut self,
        unit: UnitIx,
        processor: ProcessorIx,
        (from, until): (Instant, Instant),
        execution: Execution,
    ) {
        if let Some(vcpu) = self.vcpu_of(processor) {
            return self.unit(vcpu, from, until, execution);
        }
        let overhead = self.scheduling(unit, from, until);
        self.parts.add(Cause::Overhead, UnitIx::NONE, overhead);
        let (cause, by) = match execution {
            Execution::Own => (Cause::Executing, UnitIx::NONE),
            Execution::Other(unit) => (Cause::PreemptedInGuest, unit),
            Execution::Blocked(holder) => (Cause::Lock, holder),
            Execution::Kernel => (Cause::GuestKernel, UnitIx::NONE),
            Execution::Nothing => (Cause::ProcessorIdle, UnitIx::NONE),
        };
        self.parts.add(cause, by, until.since(from) - overhead);
    }

    /// How much of the unit's time scheduling took.
    #[inline]
    fn scheduling(&mut self, unit: UnitIx, from: Instant, until: Instant) -> Duration {
        let mut taken = Duration::ZERO;
        let mut pieces = self.history.switches.read(self.number, unit.index(), from, until);
        while let Some((begin, end, over)) = pieces.next(&self.history.switches) {
            taken += over.min(end).since(begin);
        }
        self.history.switches.leave(self.number, unit.index(), &pieces);
        taken
    }

    /// A unit that waits looks at a view.
    fn waits(&mut self, wait: Wait) {
        let Wait { view, from, until } = wait;
        // All processors of a view are of the same scheduler.
        let is_guests = |sight: Sight| self.vcpu_of(sight.processor).is_some();
        if !self.history.views.last(view.0 as usize).is_some_and(is_guests) {
            return self.waits_for_processor(wait);
        }
        let mut pieces = self.history.views.read(self.number, view.0 as usize, from, until);
        while let Some((begin, end, sight)) = pieces.next(&self.history.views) {
            if let Some(vcpu) = self.vcpu_of(sight.processor) {
                let execution = sight.occupant.charged().map_or(Execution::Nothing, Execution::Other);
                self.unit(vcpu, begin, end, execution);
            }
        }
        self.history.views.leave(self.number, view.0 as usize, &pieces);
    }

    /// A task waits for a resource. Its vCPU sleeps where all tasks wait for each other.
    fn blocked(&mut self, holder: UnitIx, Wait { view, from, until }: Wait) {
        let mut pieces = self.history.views.read(self.number, view.0 as usize, from, until);
        while let Some((begin, end, sight)) = pieces.next(&self.history.views) {
            match (self.vcpu_of(sight.processor), sight.occupant.charged()) {
                (Some(vcpu), Some(_)) => self.unit(vcpu, begin, end, Execution::Blocked(holder)),
                _ => self.parts.add(Cause::Lock, holder, end.since(begin)),
            }
        }
        self.history.views.leave(self.number, view.0 as usize, &pieces);
    }

    /// A unit waits for a physical processor. The longest wait is kept for last.
    #[inline]
    fn waits_for_processor(&mut self, wait: Wait) {
        if !self.shares {
            return self.others(wait);
        }
        match self.longest {
            Some(longest) if longest.length() >= wait.length() => self.others(wait),
            shorter => {
                self.longest = Some(wait);
                if let Some(shorter) = shorter {
                    // What lies before it may have been read already.
                    self.number = self.history.next_number();
                    self.others(shorter);
                }
            }
        }
    }

    fn others(&mut self, Wait { view, from, until }: Wait) {
        let mut pieces = self.history.views.read(self.number, view.0 as usize, from, until);
        while let Some((begin, end, sight)) = pieces.next(&self.history.views) {
            let (cause, by) = match sight.occupant.charged() {
                Some(other) => (Cause::PreemptedByUnit, other),
                None => (Cause::ProcessorIdle, UnitIx::NONE),
            };
            self.parts.add(cause, by, end.since(begin));
        }
        self.history.views.leave(self.number, view.0 as usize, &pieces);
    }

    /// The longest wait, with what other jobs know of it.
    fn longest_wait(&mut self, wait: Wait) {
        self.number = self.history.next_number();
        match self.history.shared.span(wait, &self.history.views, self.number) {
            Some(span) => self.parts.add_span(span),
            None => self.others(wait),
        }
    }

    /// The vCPU that a processor is; `None`: it is a physical one.
    #[inline]
    fn vcpu_of(&self, processor: ProcessorIx) -> Option<UnitIx> {
        processor.index().checked_sub(self.history.physical).map(UnitIx::new)
    }
}
