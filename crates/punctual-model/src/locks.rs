//! Locks that the tasks of a guest share: resources, their protocols, and the critical sections of tasks.
//!
//! A resource is a mutex as POSIX describes it (`pthread_mutexattr_setprotocol`). One task holds it at a
//! time; a task that wants it meanwhile waits, and does not execute. An unlocked resource goes to the most
//! urgent task that waits for it, of equals to that which waited first.

use punctual_sched::Duration;
use punctual_sched::registry::{PolicyInfo, SchedulabilityTest};

/// A lock of a guest (`[domain.NAME.resource.NAME]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name, unique within its domain.
    pub name: String,
    /// What happens to the urgency of the task that holds it.
    pub protocol: Protocol,
}

/// What a lock does to the urgency of the task that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Nothing (`PTHREAD_PRIO_NONE`).
    #[default]
    None,
    /// The holder is at least as urgent as every task that waits for the lock, also through other locks
    /// (`PTHREAD_PRIO_INHERIT`; Sha, Rajkumar, Lehoczky, IEEE Trans. Computers 39(9), 1990).
    Inherit,
    /// The holder is at least as urgent as every task that uses the lock (`PTHREAD_PRIO_PROTECT`, the
    /// immediate ceiling; Baker, Real-Time Systems 3(1), 1991). In a guest with EDF the holder's deadline is
    /// at the latest the shortest relative deadline of these tasks after it took the lock (Burns, Gutierrez,
    /// Aldea Rivas, Gonzalez Harbour, IEEE Trans. Computers 64(5), 2015).
    Ceiling,
}

impl Protocol {
    /// The names in the host file, in the order of the variants.
    pub const NAMES: [&str; 3] = ["none", "inherit", "ceiling"];

    const ALL: [Protocol; 3] = [Protocol::None, Protocol::Inherit, Protocol::Ceiling];

    /// Its name in the host file.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Protocol> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// A part of each job during which its task holds a resource. The times are execution times of a job of the
/// greatest cost; in a shorter job they are shorter in proportion. Two sections of a task are apart, or one
/// is inside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalSection {
    /// The resource, by its place among those of the domain.
    pub resource: usize,
    /// What the job executes before it.
    pub after: Duration,
    /// What the job executes in it, sections inside it included.
    pub length: Duration,
}

impl CriticalSection {
    /// What the job has executed at its end.
    pub fn end(&self) -> Duration {
        self.after + self.length
    }

    /// Is `other`, a later one of the same task, inside this one?
    pub fn contains(&self, other: &CriticalSection) -> bool {
        other.end() <= self.end() && other.after < self.end()
    }
}

/// A point of a job at which its task locks or unlocks a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockStep {
    /// What a job of the greatest cost has executed until then.
    pub at: Duration,
    /// The resource, by its place among those of the domain.
    pub resource: usize,
    /// Does it lock the resource, or unlock it?
    pub locks: bool,
}

impl LockStep {
    /// What a job of this cost has executed until then, where the greatest cost is `cost_max`.
    pub fn at_of(&self, job: Duration, cost_max: Duration) -> Duration {
        let whole = u128::from(cost_max.as_ns().max(1));
        let scaled = u128::from(self.at.as_ns()) * u128::from(job.as_ns()) / whole;
        Duration::from_ns(u64::try_from(scaled).unwrap_or(u64::MAX)).min(job)
    }
}

/// What orders the tasks of a guest, where something does that a lock can lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestOrder {
    /// Fixed priorities.
    Priority,
    /// Deadlines of jobs.
    Deadline,
}

/// What orders tasks under this policy, where that can be lent; `None`: its guests have no resources.
pub fn guest_order(policy: &PolicyInfo) -> Option<GuestOrder> {
    match policy.test {
        SchedulabilityTest::FixedPriority => Some(GuestOrder::Priority),
        SchedulabilityTest::Edf => Some(GuestOrder::Deadline),
        _ => None,
    }
}
