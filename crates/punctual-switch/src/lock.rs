//! A lock whose holder inherits the priority of whoever waits for it.
//!
//! A thread of a less urgent plane may hold the receive ring of a port for one packet. Without inheritance an
//! urgent real-time thread on the same processor would wait for as long as others keep the holder from it.
//! The standard library's lock does not inherit, so the kernel's (`FUTEX_LOCK_PI`) stands in front of it, and
//! the standard library's is never contended.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::thread::futex;

/// Nobody holds the lock.
const FREE: u32 = 0;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(FREE) };
}

/// This thread's id.
fn thread_id() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == FREE {
            thread.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        thread.get()
    })
}

/// A value behind the lock.
#[derive(Debug, Default)]
pub struct PiMutex<T> {
    /// The holder's thread id, and a bit of the kernel's.
    word: AtomicU32,
    value: Mutex<T>,
}

impl<T> PiMutex<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        PiMutex { word: AtomicU32::new(FREE), value: Mutex::new(value) }
    }

    /// Does something with the value, which nobody else touches meanwhile. It does not nest.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _turn = Turn::take(&self.word);
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The right to the value, given back when it is dropped.
struct Turn<'a>(&'a AtomicU32);

impl<'a> Turn<'a> {
    #[inline]
    fn take(word: &'a AtomicU32) -> Self {
        if word.compare_exchange(FREE, thread_id(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            // An error leaves the order to the standard library's lock, without inheritance.
            while futex::lock_pi(word, futex::Flags::PRIVATE, None) == Err(rustix::io::Errno::INTR) {}
        }
        Turn(word)
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.compare_exchange(thread_id(), FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            // The kernel hands over; it refuses only when this thread does not hold the lock.
            let _ = futex::unlock_pi(self.0, futex::Flags::PRIVATE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_is_inside() {
        let gate = PiMutex::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        gate.with(|value| *value += 1);
                    }
                });
            }
        });
        assert_eq!(gate.with(|value| *value), 80_000);
        assert_eq!(gate.word.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn a_panic_inside_frees_the_lock() {
        let gate = PiMutex::<u64>::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            gate.with(|_| panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(gate.with(|value| *value), 0);
    }
}
