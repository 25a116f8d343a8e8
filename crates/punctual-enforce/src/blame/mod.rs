//! Why jobs of a live run were late, computed after the run.
//!
//! Three sources are put on one time line: the looks of enforcers (`supply.rs`), the jobs that guests
//! reported (`jobs.rs`), and the observer's samples of other threads (`scans.rs`). The parts of a job's
//! response time add up to it; time without a known cause is called unknown.

mod jobs;
mod scans;
mod supply;

use std::collections::HashMap;

use punctual_model::results::{Cause, Disturbance, DisturbedInterval, DisturbedJobs, JobBlame, TaskBlame};

use crate::enforcer::{Observations, Occupants, Sample};

pub use crate::spans::{Span, Spans};
pub use jobs::{Guest, Job, Task, Vcpu};
pub use supply::{Builder, Piece, Seen, State, Supply, UnitWork};

use scans::Place;

/// What was observed of a pool under enforcement.
#[derive(Debug)]
pub struct PoolObservations {
    /// What its enforcers and its observer saw.
    pub observations: Observations,
    /// The name of each unit that there was, by its number.
    pub names: Vec<String>,
    /// How many processors it has.
    pub processors: usize,
    /// Does one enforcer decide for all of them?
    pub shared_queue: bool,
    /// Does a unit lose budget while it has no work?
    pub budget_idles_away: bool,
    /// Does the kernel know what a hypervisor below takes?
    pub kernel_knows_stolen: bool,
}

impl PoolObservations {
    /// What its units got, and why looks were late.
    pub fn supply(&self, units: &[UnitWork]) -> Supply {
        let above = |processor: usize, span: Span| {
            let of_processor = self.occupants(Some(processor)).into_iter();
            let above =
                of_processor.flat_map(|known| known.within(span)).filter(|occupant| occupant.is_above);
            Spans::union(above.map(|occupant| occupant.span).collect())
        };
        let may_have_stood_still = |processor: usize, span: Span| {
            !self.kernel_knows_stolen || scans::may_be_stolen(&self.observations.samples, processor, span)
        };
        let seen = Seen { may_have_stood_still: &may_have_stood_still, above: &above };
        let builder = Builder::new(units, self.processors, self.shared_queue, seen);
        builder.build(self.observations.history.entries())
    }

    /// Which other threads had a processor, or the pool's only one, where context switches were read.
    fn occupants(&self, processor: Option<usize>) -> Option<&Occupants> {
        let only = (self.processors == 1).then_some(0);
        processor.or(only).and_then(|processor| self.observations.occupants.get(processor))
    }
}

/// What is found out of a pool.
#[derive(Debug, Default)]
pub struct Explanation {
    /// By guest and task.
    pub tasks: Vec<Vec<TaskExplanation>>,
    /// By processor of the pool.
    pub disturbances: Vec<Disturbance>,
}

/// What is found out of a task.
#[derive(Clone, Debug, Default)]
pub struct TaskExplanation {
    /// Why its jobs took as long as they did.
    pub blame: TaskBlame,
    /// Those that met a disturbance.
    pub disturbed: DisturbedJobs,
}

/// A guest of the pool: its tasks and jobs, and the names and budgets of its vCPUs.
#[derive(Clone, Debug, Default)]
pub struct PoolGuest {
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Its jobs, by release.
    pub jobs: Vec<Job>,
    /// By job: was it due within the run?
    pub due: Vec<bool>,
    /// Its vCPUs: the unit's name, and its budget and period, where it has them.
    pub vcpus: Vec<(String, Option<(u64, u64)>)>,
}

/// Explains the jobs of a pool's guests in a run that filled `window`.
pub fn explain(pool: &PoolObservations, guests: &[PoolGuest], window: Span) -> Explanation {
    let supply = supply_of(pool, guests);
    let samples: Vec<&Sample> = pool.observations.samples.iter().collect();
    let on_processor = |(processor, taken): (usize, &Vec<(Span, State)>)| {
        taken_by(taken, pool.occupants(Some(processor)), &samples)
    };
    let mut found: Vec<Vec<Found>> = supply.taken.iter().enumerate().map(on_processor).collect();
    let mut explained = Vec::new();
    for guest in guests {
        let mut with_supply =
            Guest { tasks: guest.tasks.clone(), jobs: guest.jobs.clone(), vcpus: Vec::new() };
        for (name, budget) in &guest.vcpus {
            let vcpu = supplied_vcpu(pool, &supply, name, *budget, &samples);
            let queue = pool.names.iter().position(|known| known == name).map_or(0, |at| supply.queues[at]);
            if let Some(found) = found.get_mut(queue) {
                found.extend(vcpu_disturbances(&vcpu));
            }
            with_supply.vcpus.push(vcpu);
        }
        explained.push(with_supply);
    }
    let disturbances: Vec<Disturbance> =
        found.into_iter().map(|found| Disturbance::of(intervals(found, window))).collect();
    let taken = Spans::union(
        disturbances
            .iter()
            .flat_map(|of| &of.intervals)
            .map(|interval| (interval.from_ns + window.0, interval.until_ns + window.0))
            .collect(),
    );
    let tasks = explained
        .iter()
        .zip(guests)
        .map(|(with_supply, guest)| task_explanations(with_supply, guest, &pool.names, &taken, window))
        .collect();
    Explanation { tasks, disturbances }
}

/// What the units of a pool got, whose guests had these jobs.
pub fn supply_of(pool: &PoolObservations, guests: &[PoolGuest]) -> Supply {
    let ready = ready_by_name(guests);
    let work = |name: &String| UnitWork { ready: ready.get(name.as_str()).cloned() };
    let units: Vec<UnitWork> = pool.names.iter().map(work).collect();
    pool.supply(&units)
}

/// By unit, when its guest had jobs.
fn ready_by_name(guests: &[PoolGuest]) -> HashMap<&str, Spans> {
    let mut ready = HashMap::new();
    for guest in guests.iter().filter(|guest| !guest.jobs.is_empty()) {
        let spans = Spans::union(guest.jobs.iter().map(|job| (job.release_ns, job.end_ns)).collect());
        for (name, _) in &guest.vcpus {
            ready.insert(name.as_str(), spans.clone());
        }
    }
    ready
}

/// A vCPU with what its units got; one whose thread was replaced was several units.
fn supplied_vcpu(
    pool: &PoolObservations,
    supply: &Supply,
    name: &str,
    budget: Option<(u64, u64)>,
    samples: &[&Sample],
) -> Vcpu {
    let mut vcpu = Vcpu { budget, budget_idles_away: pool.budget_idles_away, ..Vcpu::default() };
    let mut queue = 0;
    for unit in (0..pool.names.len()).filter(|unit| pool.names[*unit] == name) {
        vcpu.pieces.extend(&supply.pieces[unit]);
        queue = supply.queues[unit];
    }
    vcpu.pieces.sort_by_key(|piece| piece.span);
    let processor = (!pool.shared_queue).then_some(queue);
    let taken = supply.taken.get(queue).map_or(&[][..], Vec::as_slice);
    let place = Place { processor, taken, occupants: pool.occupants(processor) };
    scans::explain_waits(&mut vcpu, name, place, samples.iter().copied());
    vcpu
}

/// A disturbance: when, why, who.
type Found = (Span, Cause, Option<String>);

/// Times in which a processor was taken away before a look, with the threads that had it.
fn taken_by(taken: &[(Span, State)], occupants: Option<&Occupants>, samples: &[&Sample]) -> Vec<Found> {
    let pieces = taken.iter().map(|&(span, state)| Piece { span, state }).collect();
    let mut taken_as_pieces = Vcpu { pieces, ..Vcpu::default() };
    let place = Place { processor: None, taken, occupants };
    scans::explain_waits(&mut taken_as_pieces, "", place, samples.iter().copied());
    let of = |(piece, waited): (&Piece, &Option<(Cause, Option<String>)>)| match (piece.state, waited) {
        (State::OtherThread, Some((cause, by))) => (piece.span, *cause, by.clone()),
        (State::OtherThread, None) => (piece.span, Cause::OtherThread, None),
        _ => (piece.span, Cause::Standstill, None),
    };
    taken_as_pieces.pieces.iter().zip(&taken_as_pieces.waits).map(of).collect()
}

/// Disturbances between looks, as a vCPU met them.
fn vcpu_disturbances(vcpu: &Vcpu) -> impl Iterator<Item = Found> {
    let between_looks = |state: State| matches!(state, State::Waited | State::Asleep);
    vcpu.pieces.iter().zip(&vcpu.waits).filter_map(move |(piece, waited)| {
        let (cause, by) = waited.as_ref()?;
        (between_looks(piece.state) && cause.is_disturbance()).then(|| (piece.span, *cause, by.clone()))
    })
}

/// In order of time, without overlaps, since the start of the window.
fn intervals(mut found: Vec<Found>, window: Span) -> Vec<DisturbedInterval> {
    found.sort_by_key(|(span, ..)| *span);
    let mut intervals: Vec<DisturbedInterval> = Vec::new();
    for ((from, until), cause, by) in found {
        let known_until = intervals.last().map_or(0, |last| last.until_ns + window.0);
        let (from, until) = (from.max(window.0).max(known_until), until.min(window.1));
        if from >= until {
            continue;
        }
        let (from_ns, until_ns) = (from - window.0, until - window.0);
        match intervals.last_mut() {
            // One disturbance that two vCPUs met, or that goes on after a look.
            Some(last) if last.until_ns == from_ns && last.cause == cause && last.by == by => {
                last.until_ns = until_ns;
            }
            _ => intervals.push(DisturbedInterval { from_ns, until_ns, cause, by }),
        }
    }
    intervals.retain(|interval| interval.length_ns() >= MET_MIN_NS);
    intervals
}

/// A shorter disturbance takes no deadline, and is not counted.
const MET_MIN_NS: u64 = 100_000;

fn task_explanations(
    with_supply: &Guest,
    guest: &PoolGuest,
    names: &[String],
    taken: &Spans,
    window: Span,
) -> Vec<TaskExplanation> {
    let mut blames: Vec<Vec<JobBlame>> = vec![Vec::new(); guest.tasks.len()];
    for (task, mut blame) in with_supply.blame(names) {
        blame.release_ns = blame.release_ns.saturating_sub(window.0);
        blames[task].push(blame);
    }
    let mut explanations: Vec<TaskExplanation> = blames
        .into_iter()
        .map(|jobs| TaskExplanation { blame: TaskBlame::of_jobs(jobs), ..TaskExplanation::default() })
        .collect();
    // Jobs of a guest that overlap are one busy time: what disturbed the first of them delays the last, by
    // as much as it took.
    let busy = Spans::union(guest.jobs.iter().map(|job| (job.release_ns, job.end_ns)).collect());
    for (job, &is_due) in guest.jobs.iter().zip(&guest.due) {
        let since = busy.last_before(job.end_ns).map_or(job.release_ns, |span| span.0);
        let met = taken.within((job.release_ns, job.end_ns)).length() >= MET_MIN_NS;
        let inherited = taken.within((since, job.end_ns)).length() >= job.late_ns.max(MET_MIN_NS);
        if is_due && (met || inherited) {
            explanations[job.task].disturbed.due += 1;
            explanations[job.task].disturbed.missed += u64::from(job.missed);
        }
    }
    explanations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Order;
    use crate::enforcer::{Entry, Foreign};

    const MS: u64 = 1_000_000;

    /// A guest with two jobs of 1 ms every 10 ms; a thread above the enforcer has the processor for 8 ms.
    fn pool(name: &str) -> (PoolObservations, PoolGuest) {
        let look = |at_ns, late_ns| Entry::Look { at_ns, late_ns, took_ns: 0, cpu: 0 };
        let ran = |ran_ns| Entry::Ran { unit: 0, ran_ns, waited_ns: 0, arrivals: 1 };
        let mut entries = vec![
            look(0, 0),
            Entry::Order { unit: 0, order: Order::Ranked(0), has_budget: true },
            ran(0),
            Entry::Late { waited_ns: 8 * MS as u32, stolen_ns: 0, ran_on: false },
            look(18 * MS, 8 * MS as u32),
            ran(MS as u32),
            look(20 * MS, 0),
            ran(MS as u32),
            look(40 * MS, 0),
        ];
        let mut observations = Observations::default();
        observations.history.append(&mut entries);
        observations.samples.push_back(Sample {
            until_ns: 50 * MS,
            foreign: vec![Foreign {
                processor: 0,
                name: "spinner".into(),
                ran_ns: 8 * MS,
                is_real_time: true,
            }],
            ..Sample::default()
        });
        let job = |number: u64, release_ns, end_ns, missed| Job {
            task: 0,
            number,
            release_ns,
            end_ns,
            cost_ns: MS,
            missed,
            late_ns: u64::from(missed) * MS,
        };
        let guest = PoolGuest {
            tasks: vec![Task { name: "control".into(), priority: 1 }],
            jobs: vec![job(0, 10 * MS, 19 * MS, true), job(1, 30 * MS, 31 * MS, false)],
            due: vec![true, true],
            vcpus: vec![(name.into(), None)],
        };
        let names = vec!["vm.0".to_owned()];
        let pool = PoolObservations {
            observations,
            names,
            processors: 1,
            shared_queue: false,
            budget_idles_away: false,
            kernel_knows_stolen: false,
        };
        (pool, guest)
    }

    #[test]
    fn a_late_job_met_the_thread_that_had_its_processor() {
        let (pool, guest) = pool("vm.0");
        let explained = explain(&pool, &[guest], (0, 50 * MS));
        let task = &explained.tasks[0][0];
        assert_eq!(task.disturbed, DisturbedJobs { due: 1, missed: 1 });
        let worst = &task.blame.worst[0];
        assert!(worst.adds_up() && worst.missed);
        let (first, second) = (&worst.causes[0], &worst.causes[1]);
        assert_eq!(
            (first.cause, first.by.as_deref(), first.time_ns),
            (Cause::OtherThread, Some("spinner"), 8 * MS)
        );
        assert_eq!((second.cause, second.time_ns), (Cause::Executing, MS));
        let disturbance = &explained.disturbances[0];
        assert_eq!((disturbance.count, disturbance.time_ns, disturbance.longest_ns), (1, 8 * MS, 8 * MS));
        assert_eq!(disturbance.intervals[0].by.as_deref(), Some("spinner"));
        assert_eq!(task.blame.all.jobs, 2);
    }

    #[test]
    fn a_guest_whose_units_nobody_saw_has_no_blame() {
        let (pool, guest) = pool("other.0");
        let explained = explain(&pool, &[guest], (0, 50 * MS));
        assert_eq!(explained.tasks[0][0].blame, TaskBlame::default());
    }
}
