//! What scheduling costs on this machine, for the simulator's [`Overheads`](punctual_model::host::Overheads).
//!
//! Each cost is measured many times and kept as a distribution; the medians are what the simulator takes,
//! since it has one number for each. Threads that measure sleep and wake in turn and never spin, so that a
//! SCHED_FIFO one cannot hold a processor; the caller's own affinity and priority stay as they are. The
//! method for switches is that of McVoy & Staelin, *lmbench* (USENIX 1996, s.6.6): a round trip through pipes
//! less the cost of the calls.

mod decision;
mod session;
mod switching;
mod sys;

use std::time::Duration as Time;

use punctual_model::Recorder;
use punctual_sched::Duration;
use serde::Serialize;

pub use session::Error;
use session::Session;

/// How to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Where threads are switched, and where SCHED_FIFO is used.
    pub processor: usize,
    /// Where threads come from and go to that change the processor; `None` with a single processor.
    pub other: Option<usize>,
    /// What a migrating thread has in its cache.
    pub working_set_bytes: usize,
    /// How long to measure in all, about.
    pub time_ms: u64,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// Reading the clock.
    Clock,
    /// Reading threads' accounts.
    ThreadClocks,
    /// A policy's calls.
    Policy,
    /// Changing a thread's priority.
    PriorityChange,
    /// All three: a decision.
    Decision,
    /// A decision under a shared run queue's lock.
    Lock,
    /// System calls that switching needs.
    SystemCalls,
    /// A context switch between ordinary threads.
    SwitchNormal,
    /// A context switch between SCHED_FIFO threads.
    SwitchFifo,
    /// A wake-up of a more urgent thread on the same processor.
    WakeFifo,
    /// A wake-up from another processor.
    WakeRemote,
    /// A timer's lateness.
    Timer,
    /// Resuming on another processor.
    Migration,
}

impl Id {
    /// Each of them, in the order of reports.
    pub const ALL: [Id; 13] = [
        Id::Decision,
        Id::ThreadClocks,
        Id::Policy,
        Id::PriorityChange,
        Id::Lock,
        Id::SwitchFifo,
        Id::SwitchNormal,
        Id::SystemCalls,
        Id::Migration,
        Id::WakeFifo,
        Id::WakeRemote,
        Id::Timer,
        Id::Clock,
    ];

    /// For the row of a table.
    pub fn title(self) -> &'static str {
        match self {
            Id::Clock => "clock read",
            Id::ThreadClocks => "  reading five accounts",
            Id::Policy => "  the policy's calls",
            Id::PriorityChange => "  changing a priority",
            Id::Decision => "decision",
            Id::Lock => "lock held",
            Id::SystemCalls => "  a write and a read",
            Id::SwitchNormal => "context switch, ordinary",
            Id::SwitchFifo => "context switch, FIFO",
            Id::WakeFifo => "wake-up, same processor",
            Id::WakeRemote => "wake-up, other processor",
            Id::Timer => "timer",
            Id::Migration => "migration",
        }
    }

    /// How it is measured, in a sentence.
    pub fn method(self) -> &'static str {
        match self {
            Id::Clock => "Two reads of CLOCK_MONOTONIC in a row.",
            Id::ThreadClocks => "The accounts of five sleeping threads are read: schedstat in /proc.",
            Id::Policy => {
                "A deferrable server policy with five units that always have work: charge, due timers, pick, \
                 ranking."
            }
            Id::PriorityChange => "A sleeping thread gets another SCHED_FIFO priority by sched_setattr.",
            Id::Decision => {
                "What a live enforcer does at a decision: threads' accounts, the policy's calls, a change of \
                 priority."
            }
            Id::Lock => {
                "RTDS with five units on two processors: charge, due timers and pick for both, taking a lock \
                 that nobody else wants."
            }
            Id::SystemCalls => "A byte is written to a pipe and read back by the same thread.",
            Id::SwitchFifo => {
                "Two SCHED_FIFO threads on one processor, the woken one more urgent, wake each other through \
                 pipes: half a round trip, less the median of a write and a read."
            }
            Id::SwitchNormal => "The same between ordinary threads.",
            Id::WakeFifo => {
                "From before the write of a SCHED_FIFO thread to after the read of a more urgent one on its \
                 processor."
            }
            Id::WakeRemote => {
                "From before the write of a thread on another processor to after the read here."
            }
            Id::Timer => "How long after its time a clock_nanosleep of 500 us returns.",
            Id::Migration => {
                "A thread that slept passes over its working set: on another processor, less the median \
                 where it was before."
            }
        }
    }
}

/// A measured distribution.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Of what.
    pub id: Id,
    /// The times.
    pub times: Recorder,
}

/// What was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// What.
    pub id: Id,
    /// Why, in a phrase.
    pub reason: String,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// In the order of [`Id::ALL`].
    pub measurements: Vec<Measurement>,
    /// What this machine or this user's permissions left out.
    pub skipped: Vec<Skipped>,
}

impl Calibration {
    fn median(&self, id: Id) -> Option<Duration> {
        let measurement = self.measurements.iter().find(|measurement| measurement.id == id)?;
        Some(measurement.times.quantile_ppm(500_000))
    }

    /// The keys of `[machine.overheads]` that were measured, with their medians. `context_switch` is that
    /// between SCHED_FIFO threads where they were permitted.
    pub fn overheads(&self) -> Vec<(&'static str, Duration)> {
        let switch = self.median(Id::SwitchFifo).or_else(|| self.median(Id::SwitchNormal));
        let all = [
            ("decision", self.median(Id::Decision)),
            ("context_switch", switch),
            ("migration", self.median(Id::Migration)),
            ("lock", self.median(Id::Lock)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// How many steps [`calibrate`] reports to its `progress`.
pub const STEPS: usize = 9;

/// The processors that this process may use, ascending.
///
/// # Errors
/// When the system does not say.
pub fn processors() -> std::io::Result<Vec<usize>> {
    crate::os::sched::affinity(0)
}

/// Measures. `stop` is asked all the time whether to end early; `progress` is told how many steps are done.
///
/// # Errors
/// [`Error::Stopped`], or what the system refused, such as a processor that this process may not use.
pub fn calibrate(
    options: &Options,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Calibration, Error> {
    let each = Time::from_millis(options.time_ms / STEPS as u64);
    let mut session =
        Session { each, stop, progress, done: 0, measurements: Vec::new(), skipped: Vec::new() };
    switching::on(options.processor, false, || decision::measure(&mut session))?;
    switching::measure(&mut session, options)?;
    let Session { mut measurements, skipped, .. } = session;
    measurements.sort_by_key(|measurement| Id::ALL.iter().position(|id| *id == measurement.id));
    Ok(Calibration { measurements, skipped })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn options() -> Options {
        let processors = processors().expect("an affinity");
        let processor = *processors.last().expect("this runs somewhere");
        let other = processors.iter().copied().find(|cpu| *cpu != processor);
        Options { processor, other, working_set_bytes: 16 << 10, time_ms: 90 }
    }

    #[test]
    fn everything_is_measured_or_left_out_with_a_reason() {
        let steps = AtomicUsize::new(0);
        let done =
            calibrate(&options(), &|| false, &|n| steps.store(n, Ordering::Relaxed)).expect("measured");
        for id in Id::ALL {
            let measured = done.measurements.iter().find(|m| m.id == id).map(|m| m.times.count());
            let skipped = done.skipped.iter().find(|skipped| skipped.id == id);
            match (measured, skipped) {
                (Some(count), None) => assert!(count > 0, "{id:?}"),
                (None, Some(skipped)) => assert!(!skipped.reason.is_empty(), "{id:?}"),
                both => panic!("{id:?}: {both:?}"),
            }
            assert!(id.method().ends_with('.') && !id.method().contains("  "), "{id:?}");
        }
        assert!(done.overheads().iter().any(|(key, time)| *key == "context_switch" && !time.is_zero()));
        if done.skipped.is_empty() {
            assert_eq!(steps.into_inner(), STEPS);
        }
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) > 2;
        let ended = calibrate(&Options { time_ms: 600_000, ..options() }, &stop, &|_| {});
        assert!(matches!(ended, Err(Error::Stopped)), "{:?}", ended.err());
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        let nowhere = Options { processor: 1_000_000, ..options() };
        assert!(matches!(calibrate(&nowhere, &|| false, &|_| {}), Err(Error::Os(_))));
    }
}
