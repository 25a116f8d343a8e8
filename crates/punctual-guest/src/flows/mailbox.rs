//! A queue between threads of different priorities.
//!
//! The channels of the standard library are not for that: a receiver that finds a message half written yields
//! until it is whole. If the receiver has a real-time priority and the sender a lower one, that is forever.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Messages in order.
#[derive(Debug)]
pub struct Mailbox<T> {
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
    /// Nothing is called while it is held that could panic.
    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message.
    pub fn put(&self, message: T) {
        self.inner().messages.push_back(message);
        self.changed.notify_one();
    }

    /// The next message, if there is one.
    pub fn take(&self) -> Option<T> {
        self.inner().messages.pop_front()
    }

    /// Waits for the next message; `None` when there is none and none will come.
    pub fn wait(&self) -> Option<T> {
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

    /// No message will come any more.
    pub fn close(&self) {
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
