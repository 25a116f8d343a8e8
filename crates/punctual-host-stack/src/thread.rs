//! Threads of the host and how urgent they are.

/// Index of a thread of the host, given by the driver of these rules: `0..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How urgent a thread is: `SCHED_FIFO` with a priority from 1 to 99, or 0 for the fair class. Greater is
/// more urgent, as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(pub u8);

impl Priority {
    /// The fair class.
    pub const FAIR: Priority = Priority(0);
    /// The most urgent `SCHED_FIFO` priority.
    pub const MAX: Priority = Priority(99);

    /// Is it of the fair class?
    pub const fn is_fair(self) -> bool {
        self.0 == 0
    }
}
