//! The observer that writes traces: from the machine's events to those of a [`TraceSink`].

use punctual_model::Host;
use punctual_model::index::{TaskIx, VcpuIx};
use punctual_model::trace::{self, Entity, TraceEvent, TraceSink};
use punctual_sched::{Duration, Instant};

use crate::observe::{Event, Observer, Occupant, ProcessorIx, Scheduler, UnitIx};

/// Tells a sink what happens.
pub struct Tracer<'t, T> {
    sink: &'t mut T,
    /// Events that lie in the future: the end of a context switch.
    later: Vec<(Instant, TraceEvent)>,
    /// Budgets last reported, by unit.
    budgets: Vec<Option<Duration>>,
    processors: usize,
    vcpus: usize,
}

impl<'t, T: TraceSink> Tracer<'t, T> {
    /// For a machine that simulates `host`.
    pub fn new(host: &Host, sink: &'t mut T) -> Self {
        Tracer {
            sink,
            later: Vec::new(),
            budgets: vec![None; host.vcpus.len() + host.tasks.len()],
            processors: host.processors,
            vcpus: host.vcpus.len(),
        }
    }

    fn entity(&self, unit: UnitIx) -> Entity {
        match unit.index().checked_sub(self.vcpus) {
            Some(task) => Entity::Task(TaskIx(task)),
            None => Entity::Vcpu(VcpuIx(unit.index())),
        }
    }

    fn occupant(&self, occupant: Occupant) -> trace::Occupant {
        match (occupant.runs(), occupant.charged()) {
            (Some(unit), _) => trace::Occupant::Unit(self.entity(unit)),
            (None, Some(unit)) => trace::Occupant::IdleFor(self.entity(unit)),
            (None, None) => trace::Occupant::Idle,
        }
    }

    /// Tells what was waiting for its time to come.
    fn flush(&mut self, until: Instant) {
        self.later.sort_by_key(|(at, _)| *at);
        let due = self.later.partition_point(|(at, _)| *at <= until);
        for (at, event) in self.later.drain(..due) {
            self.sink.event(at, event);
        }
    }

    fn tell_budgets(&mut self, now: Instant, scheduler: &Scheduler<'_>) {
        for (id, &unit) in scheduler.units.iter().enumerate() {
            let left = scheduler.policy.account(punctual_sched::UnitId(id as u32)).left;
            if left != self.budgets[unit.index()] {
                self.budgets[unit.index()] = left;
                if let Some(left) = left {
                    self.sink.event(now, TraceEvent::Budget { unit: self.entity(unit), left });
                }
            }
        }
    }

    fn tell_decision(
        &mut self,
        now: Instant,
        processor: ProcessorIx,
        occupant: Occupant,
        changed: bool,
        start: Instant,
    ) {
        let occupant = self.occupant(occupant);
        let processor = processor.index();
        if let Some(vcpu) = processor.checked_sub(self.processors) {
            if changed {
                self.sink.event(now, TraceEvent::Vcpu { vcpu: VcpuIx(vcpu), occupant });
            }
        } else if start > now {
            let overhead = trace::Occupant::Overhead;
            self.sink.event(now, TraceEvent::Processor { processor, occupant: overhead });
            self.later.push((start, TraceEvent::Processor { processor, occupant }));
        } else if changed {
            self.sink.event(now, TraceEvent::Processor { processor, occupant });
        }
    }
}

impl<T: TraceSink> Observer for Tracer<'_, T> {
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        let event = match event {
            Event::Instant => return self.flush(now),
            Event::Called { scheduler } => return self.tell_budgets(now, &scheduler),
            Event::Dispatched { processor, occupant, changed, start } => {
                return self.tell_decision(now, processor, occupant, changed, start);
            }
            Event::Adjusted { event, .. } | Event::Replaced { event, .. } => TraceEvent::Changed { event },
            Event::Wake { unit, .. } => TraceEvent::Wake { unit: self.entity(unit) },
            Event::Sleep { unit, .. } => TraceEvent::Sleep { unit: self.entity(unit) },
            Event::Release { task, job, deadline, .. } => TraceEvent::Release { task, job, deadline },
            Event::Finish { task, job, release, deadline } => {
                TraceEvent::Completion { task, job, response: now.since(release), missed: now > deadline }
            }
            Event::KernelBusy { unit } => {
                TraceEvent::Vcpu { vcpu: VcpuIx(unit.index()), occupant: trace::Occupant::Network }
            }
            Event::KernelIdle { unit, occupant } => {
                TraceEvent::Vcpu { vcpu: VcpuIx(unit.index()), occupant: self.occupant(occupant) }
            }
            Event::Step { domain, step, packet, began } => {
                TraceEvent::Network { domain, step, packet, began }
            }
            _ => return,
        };
        self.sink.event(now, event);
    }
}
