//! What user space and the scheduler tell each other. Layouts are those of `bpf/punctual.bpf.c`.

use std::io;

/// Units at most.
pub const UNITS_MAX: usize = 64;

/// What user space decides: for each unit an absolute amount of charged time up to which it may run, and who
/// is before whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The units that may run, the most urgent first.
    pub order: Vec<u32>,
    /// By unit: it may run while [`UnitState::used_ns`] is less. `u64::MAX / 4` and more is no limit.
    pub limits_ns: [u64; UNITS_MAX],
}

impl Default for Table {
    fn default() -> Table {
        Table { order: Vec::new(), limits_ns: [0; UNITS_MAX] }
    }
}

/// A unit as the scheduler sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitState {
    /// Everything that it was charged, in ns.
    pub used_ns: u64,
    /// Threads of it that want to run or do.
    pub runnable: u32,
}

/// Why the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejected {
    /// The kernel's number of the kind of exit (`enum scx_exit_kind`).
    pub kind: u32,
    /// What it says, perhaps nothing.
    pub message: String,
}

/// What the scheduler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// By unit; what it runs at the moment is charged up to now.
    pub units: [UnitState; UNITS_MAX],
    /// Set once the kernel has ended it. Threads are in the fair class from then on.
    pub ejected: Option<Ejected>,
}

/// A scheduler that runs units by rank, each up to its limit.
pub trait Mechanism: Send {
    /// What units were charged up to `now_ns` of the monotonic clock, and which have work.
    ///
    /// # Errors
    /// The kernel does not say.
    fn read(&mut self, now_ns: u64) -> io::Result<State>;

    /// Gives units other ranks and limits, from now on.
    ///
    /// # Errors
    /// The kernel does not take them.
    fn decide(&mut self, table: &Table) -> io::Result<()>;

    /// Makes the group of threads with this id unit `unit`.
    ///
    /// # Errors
    /// The kernel does not take it.
    fn add(&mut self, unit: u32, group: u64) -> io::Result<()>;

    /// The group is no unit any more.
    fn remove(&mut self, group: u64);
}
