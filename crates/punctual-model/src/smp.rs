//! Guests whose vCPUs wait for each other, as those of a real guest do: for a lock, for the answer to an
//! interprocessor interrupt, at a barrier, for a message.
//!
//! Every vCPU repeats rounds. What it executes while it only waits (it spins) is lost, and how much that is
//! depends on how the host schedules the vCPUs.

use punctual_sched::Duration;

/// What the vCPUs of a domain do together (`[domain.NAME.smp]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmpWork {
    /// What they wait for.
    pub kind: SmpKind,
    /// What a vCPU executes in a round, besides what the kind adds.
    pub cost: Duration,
}

/// What the vCPUs of a domain wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmpKind {
    /// A spinlock that any vCPU that executes may take when it is free (Linux: `virt_spin_lock`, and locks of
    /// programs that test and set a word). Waiting vCPUs spin.
    Spinlock {
        /// What a round executes while it holds the lock.
        held: Duration,
    },
    /// A mutex made of a futex: waiting vCPUs are idle. It is free when it is unlocked; one of those that
    /// wait is woken and tries again.
    Mutex {
        /// What a round executes while it holds the lock.
        held: Duration,
    },
    /// The answers of all other vCPUs to an interprocessor interrupt (Linux: `smp_call_function_many` with
    /// `wait`, as for TLB shootdowns and `membarrier`). The caller spins, and answers others meanwhile.
    Interrupt {
        /// What each of the others executes to answer, ahead of everything else.
        answer: Duration,
        /// How many vCPUs send interrupts, the first ones; the others repeat `cost`.
        callers: usize,
    },
    /// All others at a barrier: waiting vCPUs spin.
    Barrier,
    /// A byte in a pipe: a vCPU sends it to the next one, and is idle until it comes round again.
    Pipe,
}

impl SmpKind {
    /// The names in the host file, in the order of the variants.
    pub const NAMES: [&str; 5] = ["spinlock", "mutex", "interrupt", "barrier", "pipe"];

    /// Its name in the host file.
    pub const fn name(self) -> &'static str {
        let variant = match self {
            SmpKind::Spinlock { .. } => 0,
            SmpKind::Mutex { .. } => 1,
            SmpKind::Interrupt { .. } => 2,
            SmpKind::Barrier => 3,
            SmpKind::Pipe => 4,
        };
        Self::NAMES[variant]
    }
}
