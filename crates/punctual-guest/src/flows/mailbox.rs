//! A queue between threads of different priorities.
//!
//! The standard library's channels do not fit: a receiver that finds a half-written message yields until the
//! message is whole. A real-time receiver spins there without end while the sender has a lower priority.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Messages in order.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    messages: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let inner = Inner { messages: VecDeque::with_capacity(64), is_closed: false };
        Mailbox { inner: Mutex::new(inner), changed: Condvar::new() }
    }
}

impl<T> Mailbox<T> {
    /// The lock is never poisoned: nothing that could panic runs while it is held.
    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message.
    pub(crate) fn put(&self, message: T) {
        self.inner().messages.push_back(message);
        self.changed.notify_one();
    }

    /// The next message, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.inner().messages.pop_front()
    }

    /// Waits for the next message; `None` when the mailbox is closed and empty.
    pub(crate) fn wait(&self) -> Option<T> {
        let mut inner = self.inner();
        loop {
            if let Some(message) = inner.messages.pop_front() {
                return Some(message);
            }
            if inner.is_closed {
                return None;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the wait of receivers once the mailbox is empty.
    pub(crate) fn close(&self) {
        self.inner().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_the_last_one_before_the_end() {
        let mailbox = Mailbox::default();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| std::iter::from_fn(|| mailbox.wait()).collect::<Vec<u32>>());
            (0..1000).for_each(|n| mailbox.put(n));
            mailbox.close();
            assert_eq!(taken.join().expect("taken"), (0..1000).collect::<Vec<u32>>());
        });
        assert_eq!((mailbox.take(), mailbox.wait()), (None, None));
    }
}
