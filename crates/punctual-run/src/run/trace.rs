//! What happened in a live run, in the vocabulary of traces: from what enforcers saw and guests told.
//!
//! A look says how long each unit ran since the look before, not when ([`punctual_enforce::blame`] lays that
//! into the time between). A guest does not say which of its tasks executes: on its single vCPU the most
//! urgent one with a job does; of guests with several it is not known. Whether a vCPU has budget left is
//! known, not how much: its budget is shown as all or nothing.

use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::{PoolIx, TaskIx, VcpuIx};
use punctual_model::trace::{Entity, Occupant, TraceEvent};
use punctual_sched::{Duration, Instant};

use super::blame::guest;
use super::measure::{Measurement, Told};
use punctual_enforce::blame::{self, Job, PoolGuest, Span, State};
use punctual_enforce::session::{PoolReport, Report};

/// Events in order of time.
pub type Trace = Vec<(Instant, TraceEvent)>;

/// What happened in the pools that were under enforcement, since the start of the tasks.
///
/// Of a pool with several processors and one queue it is not known which processor a unit had: such a pool
/// has jobs and budgets only.
pub(super) fn trace(host: &Host, pools: &[PoolIx], report: &Report, measurement: &Measurement) -> Trace {
    let start_ns = measurement.start.as_ns();
    let window = (start_ns, start_ns + measurement.length.as_ns());
    let mut events = Events { window, all: Vec::new() };
    for (event, about) in host.events.iter().enumerate().filter(|(_, about)| about.at < measurement.length) {
        events.add(start_ns + about.at.as_ns(), END, TraceEvent::Changed { event });
    }
    for (pool, done) in pools.iter().zip(&report.pools) {
        let is_here = |told: &&Told| host.pool_of(Parent::Domain(told.domain)) == *pool;
        let told: Vec<&Told> = measurement.told.iter().filter(is_here).collect();
        let guests: Vec<PoolGuest> = told.iter().map(|told| guest(host, told, window)).collect();
        add_supply(host, done, &guests, &mut events);
        for (told, guest) in told.iter().zip(&guests) {
            add_jobs(host, told, guest, &mut events);
        }
    }
    events.sorted()
}

fn overlap(a: Span, b: Span) -> bool {
    a.0 < b.1 && a.1 > b.0
}

/// Events of the window; those of one instant in the order of the number.
struct Events {
    window: Span,
    all: Vec<(Instant, u8, TraceEvent)>,
}

/// What ends.
const END: u8 = 0;
/// What begins.
const BEGIN: u8 = 1;

impl Events {
    /// Adds an event at an instant of CLOCK_MONOTONIC, moved into the window.
    fn add(&mut self, at_ns: u64, order: u8, event: TraceEvent) {
        let at_ns = at_ns.clamp(self.window.0, self.window.1) - self.window.0;
        self.all.push((Instant::from_ns(at_ns), order, event));
    }

    /// In order of time; of one instant, what ends comes before what begins.
    fn sorted(mut self) -> Trace {
        self.all.sort_by_key(|(at, order, _)| (*at, *order));
        self.all.into_iter().map(|(at, _, event)| (at, event)).collect()
    }

    /// A processor executes something over a span, and nothing after it.
    fn occupy(&mut self, processor: usize, span: Span, occupant: Occupant) {
        if overlap(span, self.window) {
            self.add(span.0, BEGIN, TraceEvent::Processor { processor, occupant });
            self.add(span.1, END, TraceEvent::Processor { processor, occupant: Occupant::Idle });
        }
    }
}

/// The budget that a vCPU has at an instant of a run that began at `start_ns`.
fn budget_at(host: &Host, vcpu: VcpuIx, at_ns: u64, start_ns: u64) -> Option<Duration> {
    let elapsed = Duration::from_ns(at_ns.saturating_sub(start_ns));
    let happened = host.events.partition_point(|event| event.at <= elapsed);
    host.vcpu_params_after(vcpu, happened).budget
}

/// What the units of a pool got, looks, and times in which its processors were away.
fn add_supply(host: &Host, done: &PoolReport, guests: &[PoolGuest], events: &mut Events) {
    let Some(observed) = done.observations.as_ref() else { return };
    let supply = blame::supply_of(observed, &with_silent(guests, &observed.names, events.window));
    let are_places_known = !observed.shared_queue || done.processors.len() == 1;
    let vcpu_of = |name: &String| host.vcpus.iter().position(|vcpu| vcpu.name == *name).map(VcpuIx);
    let mut looks: Vec<(usize, Span)> = Vec::new();
    for ((name, pieces), &queue) in observed.names.iter().zip(&supply.pieces).zip(&supply.queues) {
        let Some(vcpu) = vcpu_of(name) else { continue };
        let unit = Entity::Vcpu(vcpu);
        let processor = done.processors.get(queue).copied().filter(|_| are_places_known);
        let mut had_budget = None;
        let window = events.window;
        for piece in pieces.iter().filter(|piece| overlap(piece.span, window)) {
            match (piece.state, processor) {
                (State::Ran, Some(processor)) => events.occupy(processor, piece.span, Occupant::Unit(unit)),
                (State::Look, Some(processor)) => looks.push((processor, piece.span)),
                _ => {}
            }
            let has_budget = !matches!(piece.state, State::NoBudget | State::LookLate);
            let is_new = had_budget != Some(has_budget) && piece.state != State::Look;
            if let Some(budget) = is_new.then(|| budget_at(host, vcpu, piece.span.0, window.0)).flatten() {
                had_budget = Some(has_budget);
                let left = if has_budget { budget } else { Duration::ZERO };
                events.add(piece.span.0, BEGIN, TraceEvent::Budget { unit, left });
            }
        }
    }
    // Every unit has the looks of its processor.
    looks.sort_unstable();
    looks.dedup();
    for (processor, span) in looks {
        events.occupy(processor, span, Occupant::Overhead);
    }
    for (taken, &processor) in supply.taken.iter().zip(&done.processors) {
        for &(span, state) in taken {
            events.occupy(processor, span, Occupant::Away { by_thread: state == State::OtherThread });
        }
    }
}

/// The guests, and one that always has work for each unit whose guest reports no jobs.
fn with_silent(guests: &[PoolGuest], names: &[String], window: Span) -> Vec<PoolGuest> {
    let tells = |name: &String| {
        guests.iter().any(|guest| !guest.jobs.is_empty() && guest.vcpus.iter().any(|(vcpu, _)| vcpu == name))
    };
    let always = Job {
        task: 0,
        number: 0,
        release_ns: window.0,
        end_ns: window.1,
        cost_ns: 0,
        missed: false,
        late_ns: 0,
    };
    let silent = names.iter().filter(|name| !tells(name)).map(|name| PoolGuest {
        jobs: vec![always],
        vcpus: vec![(name.clone(), None)],
        ..PoolGuest::default()
    });
    guests.iter().cloned().chain(silent).collect()
}

/// The jobs that a guest reported, and what its single vCPU executes when it runs.
fn add_jobs(host: &Host, told: &Told, guest: &PoolGuest, events: &mut Events) {
    let window = events.window;
    for job in &guest.jobs {
        let ix = told.tasks[job.task].0;
        let deadline = host.tasks[ix.0].deadline().unwrap_or_default();
        let due = Instant::from_ns(job.release_ns.saturating_sub(window.0)) + deadline;
        if job.release_ns >= window.1 {
            continue;
        }
        events.add(job.release_ns, BEGIN, TraceEvent::Release { task: ix, job: job.number, deadline: due });
        // One that never finished ends with the window.
        if job.end_ns < window.1 {
            let response = Duration::from_ns(job.end_ns - job.release_ns);
            let missed = job.end_ns - window.0 > due.as_ns();
            let completion = TraceEvent::Completion { task: ix, job: job.number, response, missed };
            events.add(job.end_ns, END, completion);
        }
    }
    let vcpus = host.domains[told.domain.0].vcpus.clone();
    if vcpus.len() == 1 {
        add_tasks(host, told, guest, VcpuIx(vcpus.start), events);
    }
}

/// On a single vCPU, the most urgent task with a job executes, or else one that always has work.
fn add_tasks(host: &Host, told: &Told, guest: &PoolGuest, vcpu: VcpuIx, events: &mut Events) {
    let hog =
        told.tasks.iter().map(|(ix, _)| *ix).find(|ix| matches!(host.tasks[ix.0].work, Work::Hog { .. }));
    let mut changes: Vec<(u64, u8, usize)> = Vec::new();
    for (number, job) in guest.jobs.iter().enumerate() {
        changes.push((job.release_ns, BEGIN, number));
        changes.push((job.end_ns.max(job.release_ns + 1), END, number));
    }
    changes.sort_unstable();
    let mut open: std::collections::BTreeSet<(u32, usize)> = std::collections::BTreeSet::new();
    let occupant = |task: Option<TaskIx>| match task {
        Some(task) => Occupant::Unit(Entity::Task(task)),
        None => Occupant::Idle,
    };
    let mut shown = hog;
    events.add(events.window.0, BEGIN, TraceEvent::Vcpu { vcpu, occupant: occupant(hog) });
    for (at_ns, order, number) in changes {
        let job = &guest.jobs[number];
        let urgency = (guest.tasks[job.task].priority, number);
        if order == BEGIN {
            open.insert(urgency)
        } else {
            open.remove(&urgency)
        };
        let first = open.first().map(|(_, number)| told.tasks[guest.jobs[*number].task].0);
        if shown != first.or(hog) {
            shown = first.or(hog);
            events.add(at_ns, order, TraceEvent::Vcpu { vcpu, occupant: occupant(shown) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_lie_in_the_window_and_what_ends_comes_before_what_begins() {
        let mut events = Events { window: (1_000, 2_000), all: Vec::new() };
        let unit = Occupant::Unit(Entity::Vcpu(VcpuIx(0)));
        events.occupy(1, (500, 1_200), unit);
        events.occupy(1, (1_200, 1_300), Occupant::Overhead);
        events.occupy(1, (100, 900), unit);
        events.occupy(1, (2_000, 2_100), unit);
        let sorted: Vec<_> = events
            .sorted()
            .into_iter()
            .map(|(at, event)| match event {
                TraceEvent::Processor { occupant, .. } => (at.as_ns(), occupant),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [(0, unit), (200, Occupant::Idle), (200, Occupant::Overhead), (300, Occupant::Idle)];
        assert_eq!(sorted, expected);
    }
}
