//! What user space and the programs tell each other. Times are in ns of CLOCK_MONOTONIC.

use std::fmt::Debug;
use std::io;

/// Threads at most.
pub const THREADS_MAX: usize = 4096;
/// Buckets of latencies; the last one has no upper bound.
pub const BUCKETS: usize = 8;

/// How the programs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A wait that is as long is told, in ns.
    pub told_from_ns: u64,
    /// Upper bounds of the buckets of latencies, in ns.
    pub bounds_ns: [u64; BUCKETS - 1],
    /// So many parts of waits are told in a second at most; others are added up.
    pub told_max: u64,
}

/// Why a thread is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Off {
    /// It sleeps until it is woken.
    Asleep,
    /// It sleeps in the kernel, and no signal wakes it.
    Blocked,
    /// A signal or a debugger stopped it.
    Stopped,
    /// Its cgroup is frozen.
    Frozen,
}

impl Off {
    /// All of them, by their numbers.
    pub const ALL: [Off; 4] = [Off::Asleep, Off::Blocked, Off::Stopped, Off::Frozen];
}

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing has happened to it yet, or it has ended.
    #[default]
    Unknown,
    /// It has a processor.
    Running,
    /// It waits for one; was it woken, or preempted?
    Ready {
        /// It was woken.
        was_woken: bool,
    },
    /// It is not ready.
    Off(Off),
}

/// A part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// Who had the processor; 0 is the idle thread; `None`: nobody knows.
    pub occupant: Option<u32>,
    /// Its name, filled with 0; empty where it is not known.
    pub name: [u8; 16],
    /// The processor for which the thread waited.
    pub processor: u32,
}

/// A watched thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// What it does.
    pub state: State,
    /// Where it runs, waits, or was last.
    pub processor: u32,
    /// The number of what it does, and when that began.
    pub wait: u32,
    /// See `wait`.
    pub began_ns: u64,
    /// Up to when the time is in `ran_ns` or in `steps`.
    pub since_ns: u64,
    /// How long it ran on each processor.
    pub ran_ns: Vec<u64>,
    /// How long it was not ready, by reason, without sleeps, what was told, and what it does.
    pub off_ns: [u64; Off::ALL.len()],
    /// From wake-ups until it ran, by bucket, without waits that were told.
    pub latencies: [u64; BUCKETS],
    /// Their sum, and the greatest.
    pub latency_sum_ns: u64,
    /// See `latency_sum_ns`.
    pub latency_max_ns: u64,
    /// The wait that goes on, as far as it was not told.
    pub steps: Vec<Step>,
    /// How often it left a guest because it spun there; `None` where that is not counted.
    pub spins: Option<u64>,
}

/// A wait, or a part of it, that is told instead of added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Who waited, and the number of its wait.
    pub thread: u32,
    /// See `thread`.
    pub wait: u32,
    /// When the wait began.
    pub began_ns: u64,
    /// Up to when this tells.
    pub until_ns: u64,
    /// Why it was not ready; `None`: it was.
    pub off: Option<Off>,
    /// Did the wait follow a wake-up?
    pub was_woken: bool,
    /// Is the wait over?
    pub is_over: bool,
    /// Since the last part, in order; none of one that was not ready.
    pub steps: Vec<Step>,
}

/// How long a thread waited behind another one since the last time, in waits that were not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Who waited.
    pub thread: u32,
    /// Behind whom, see [`Step`].
    pub occupant: Option<u32>,
    /// See [`Step`].
    pub name: [u8; 16],
    /// How long, in ns.
    pub ns: u64,
}

/// What user space says of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// It has counted this wait up to `until_ns`; 0: it counted nothing.
    pub wait: u32,
    /// See `wait`.
    pub until_ns: u64,
    /// Longer waits than this are told, if they are the longest of the thread in a second, in ns.
    pub threshold_ns: u64,
}

/// Programs that add up.
pub trait Tally: Debug {
    /// Adds up what a thread does from now on.
    ///
    /// # Errors
    /// The kernel does not take it, or there are [`THREADS_MAX`].
    fn watch(&mut self, thread: u32) -> io::Result<()>;

    /// Forgets a thread.
    fn forget(&mut self, thread: u32);

    /// What is known of a thread; `None` of one that is not watched.
    ///
    /// # Errors
    /// The kernel does not say.
    fn thread(&mut self, thread: u32) -> io::Result<Option<Thread>>;

    /// Who has a processor; `None`: nobody knows.
    ///
    /// # Errors
    /// The kernel does not say.
    fn occupant(&mut self, processor: u32) -> io::Result<Option<u32>>;

    /// Says something of a thread.
    ///
    /// # Errors
    /// The kernel does not take it.
    fn mark(&mut self, thread: u32, mark: Mark) -> io::Result<()>;

    /// From now on sums go to another table, and [`Tally::sums`] hands over those up to now.
    ///
    /// # Errors
    /// The kernel does not take it.
    fn turn(&mut self) -> io::Result<()>;

    /// Hands over the stories since the last call, in the order in which they ended.
    ///
    /// # Errors
    /// The kernel does not say.
    fn stories(&mut self) -> io::Result<Vec<Story>>;

    /// Hands over the sums between the last two calls of [`Tally::turn`].
    ///
    /// # Errors
    /// The kernel does not say.
    fn sums(&mut self) -> io::Result<Vec<Sum>>;

    /// Why it is not counted how often vCPUs spin, if KVM is there.
    fn no_spins(&self) -> Option<&str>;

    /// How often a table was full: a wait was not told, or a time was not added up.
    fn lost(&self) -> u64;
}
