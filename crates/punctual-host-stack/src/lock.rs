//! The softirq lock of a processor: a mutex whose holder inherits the priority of its most urgent waiter.
//!
//! # Rules
//! PREEMPT_RT's `rt_mutex` (`kernel/locking/rtmutex.c`); O. F. Garcia Alvarado, Tsukuba 2019, s.3.2 and
//! 3.4.3.
//!
//! - A thread that finds the lock held waits. Waiters are in the order of their priority, equal ones in the
//!   order in which they came.
//! - The holder runs with the greater of its own priority and that of its most urgent waiter.
//! - On release the most urgent waiter becomes the holder, and the previous holder gets its own priority
//!   back.

use alloc::vec::Vec;

use crate::thread::{Priority, ThreadId};

/// A lock; see the module's rules.
#[derive(Clone, Debug)]
pub struct PiLock {
    holder: Option<ThreadId>,
    /// In the order in which they get the lock.
    waiters: Vec<(Priority, ThreadId)>,
}

/// The outcome of taking the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The thread holds it.
    Held,
    /// The thread waits for the holder, which runs with at least the thread's priority now.
    Waits {
        /// The holder.
        holder: ThreadId,
    },
}

impl PiLock {
    /// Free, for at most `threads` threads.
    pub fn new(threads: usize) -> Self {
        PiLock { holder: None, waiters: Vec::with_capacity(threads) }
    }

    /// The thread that holds the lock.
    pub fn holder(&self) -> Option<ThreadId> {
        self.holder
    }

    /// The priority that the holder inherits.
    pub fn inherited(&self) -> Priority {
        self.waiters.first().map_or(Priority::FAIR, |waiter| waiter.0)
    }

    /// The thread takes the lock or waits for it.
    pub fn take(&mut self, thread: ThreadId, priority: Priority) -> Taken {
        let Some(holder) = self.holder else {
            self.holder = Some(thread);
            return Taken::Held;
        };
        debug_assert!(holder != thread, "the lock is taken twice");
        debug_assert!(self.waiters.iter().all(|waiter| waiter.1 != thread), "the thread waits twice");
        let at = self.waiters.partition_point(|waiter| waiter.0 >= priority);
        self.waiters.insert(at, (priority, thread));
        Taken::Waits { holder }
    }

    /// The holder releases the lock. Returns the next holder.
    pub fn release(&mut self) -> Option<ThreadId> {
        debug_assert!(self.holder.is_some(), "a free lock is released");
        debug_assert!(self.waiters.is_sorted_by(|a, b| a.0 >= b.0), "waiters stand by priority");
        self.holder = (!self.waiters.is_empty()).then(|| self.waiters.remove(0).1);
        self.holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_get_the_lock_by_priority_then_in_order_and_the_holder_inherits() {
        let mut lock = PiLock::new(4);
        let [a, b, c, d] = [0, 1, 2, 3].map(ThreadId);
        assert_eq!(lock.take(a, Priority::FAIR), Taken::Held);
        assert_eq!(lock.inherited(), Priority::FAIR);
        assert_eq!(lock.take(b, Priority(48)), Taken::Waits { holder: a });
        assert_eq!(lock.take(c, Priority(50)), Taken::Waits { holder: a });
        assert_eq!(lock.take(d, Priority(48)), Taken::Waits { holder: a });
        assert_eq!(lock.inherited(), Priority(50));
        assert_eq!((lock.release(), lock.inherited()), (Some(c), Priority(48)));
        assert_eq!((lock.release(), lock.release(), lock.release()), (Some(b), Some(d), None));
        assert_eq!((lock.holder(), lock.inherited()), (None, Priority::FAIR));
    }
}
