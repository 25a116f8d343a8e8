//! What is measured: each cost with its method, and the distributions that were found.

use punctual_model::Histogram;
use punctual_sched::Duration;
use serde::Serialize;

/// Where and for how long to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Options {
    /// The processor on which threads are switched and SCHED_FIFO is used.
    pub processor: usize,
    /// The other processor of migrations and remote wake-ups; `None` on a machine with one processor.
    pub other: Option<usize>,
    /// The memory that a migrating thread has in its cache.
    pub working_set_bytes: usize,
    /// About how long all measurements take together.
    pub time_ms: u64,
}

/// A cost that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// Reading the clock.
    Clock,
    /// Reading the processor time of threads.
    ThreadClocks,
    /// A policy's calls.
    Policy,
    /// Changing a thread's priority.
    PriorityChange,
    /// A decision: all three.
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
    /// How much longer a thread takes on another processor than where its memory is cached.
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

    /// Its name in a table; indented if it is a part of the cost above it.
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
    /// What was measured.
    pub id: Id,
    /// The times.
    pub times: Histogram,
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
    /// What this machine or this user's permissions do not allow.
    pub skipped: Vec<Skipped>,
}

impl Calibration {
    fn median(&self, id: Id) -> Option<Duration> {
        let measurement = self.measurements.iter().find(|measurement| measurement.id == id)?;
        Some(measurement.times.quantile_ppm(500_000))
    }

    /// The keys of `[machine.overheads]` that were measured, with their medians. `context_switch` is the
    /// switch between SCHED_FIFO threads where these are permitted.
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
