//! What user space and the scheduler tell each other. Layouts are those of `bpf/punctual.bpf.c`.

use std::io;

/// Units at most.
pub const UNITS_MAX: usize = 64;

/// A time that never comes.
pub const NEVER_NS: u64 = u64::MAX;

/// What happens to a replenishment that is due while its unit has no work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asleep {
    /// It takes place.
    #[default]
    Replenished,
    /// It takes place, and the budget is lost at once, as at every other sleep.
    Discarded,
    /// It takes place when the unit wakes up; periods stay as they are.
    Waits,
    /// It takes place when the unit wakes up, and a period begins then.
    Restarts,
}

/// What user space decides about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The smaller is the more urgent.
    pub key: u64,
    /// It may run while [`UnitState::used_ns`] is less: an absolute amount of charged time. `u64::MAX / 4`
    /// and more is no limit.
    pub limit_ns: u64,
    /// When its budget comes back next, by the monotonic clock; [`NEVER_NS`] where user space says when.
    pub next_ns: u64,
    /// From then to the next time.
    pub period_ns: u64,
    /// What comes back.
    pub budget_ns: u64,
    /// What happens then if it has no work.
    pub asleep: Asleep,
    /// [`UnitState::replenished`] as far as user space knows it. A decision with another number is not taken.
    pub replenished: u32,
}

impl Default for Decision {
    /// A unit that may not run.
    fn default() -> Decision {
        Decision {
            key: u64::MAX,
            limit_ns: 0,
            next_ns: NEVER_NS,
            period_ns: 0,
            budget_ns: 0,
            asleep: Asleep::Replenished,
            replenished: 0,
        }
    }
}

/// What user space decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The units that may run, now or once their budget is back, the most urgent first.
    pub order: Vec<u32>,
    /// By unit.
    pub units: [Decision; UNITS_MAX],
    /// The more urgent unit is the one whose next replenishment comes first, and not that with the smaller
    /// key.
    pub by_deadline: bool,
    /// The budget of the most urgent unit that has some idles away while it has no work, and no other one
    /// runs.
    pub idles_away: bool,
    /// User space is woken when a unit used up its time, woke up or fell asleep. Otherwise it reads that
    /// later.
    pub wakes: bool,
}

impl Default for Table {
    fn default() -> Table {
        let units = [Decision::default(); UNITS_MAX];
        Table { order: Vec::new(), units, by_deadline: false, idles_away: false, wakes: true }
    }
}

/// A unit as the scheduler sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitState {
    /// Everything that it was charged, in ns.
    pub used_ns: u64,
    /// What of that it did not run, because its budget idled away.
    pub idled_ns: u64,
    /// Up to what it may be charged.
    pub limit_ns: u64,
    /// When its budget comes back next.
    pub next_ns: u64,
    /// How often it has come back so far.
    pub replenished: u32,
    /// Threads of it that want to run or do.
    pub runnable: u32,
}

/// What happened to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// To which unit.
    pub unit: u32,
    /// Did it use up its time?
    pub is_exhaustion: bool,
    /// The unit after it.
    pub state: UnitState,
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
    /// By unit; what it runs or idles away at the moment is charged up to now.
    pub units: [UnitState; UNITS_MAX],
    /// Events that were not written down, because user space did not read those before.
    pub lost: u32,
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

    /// Moves what happened since the last call to the end of `events`, in order.
    fn take_events(&mut self, events: &mut Vec<Event>);

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
