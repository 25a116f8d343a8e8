//! A mutex with priority inheritance.
//!
//! A thread of a less urgent plane may hold a port's RX ring for one packet. Without inheritance, an urgent
//! real-time thread on the same processor would wait for as long as other threads keep the holder from
//! running. The standard library's mutex does not inherit. So the kernel's lock (`FUTEX_LOCK_PI`) is taken
//! first, and the standard library's behind it is never contended.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::thread::futex;

const FREE: u32 = 0;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(FREE) };
}

fn thread_id() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == FREE {
            thread.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        thread.get()
    })
}

#[derive(Debug, Default)]
pub(crate) struct PiMutex<T> {
    /// The holder's thread id, and the kernel's `FUTEX_WAITERS` bit.
    word: AtomicU32,
    value: Mutex<T>,
}

impl<T> PiMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        PiMutex { word: AtomicU32::new(FREE), value: Mutex::new(value) }
    }

    /// Runs `work` with the lock held. It does not nest.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _guard = FutexGuard::take(&self.word);
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Holds the futex until it is dropped.
struct FutexGuard<'a>(&'a AtomicU32);

impl<'a> FutexGuard<'a> {
    #[inline]
    fn take(word: &'a AtomicU32) -> Self {
        if word.compare_exchange(FREE, thread_id(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            // After an error the standard library's mutex still excludes others, without inheritance.
            while futex::lock_pi(word, futex::Flags::PRIVATE, None) == Err(rustix::io::Errno::INTR) {}
        }
        FutexGuard(word)
    }
}

impl Drop for FutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.compare_exchange(thread_id(), FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            // The kernel passes the lock on. It fails only if this thread does not hold it.
            let _ = futex::unlock_pi(self.0, futex::Flags::PRIVATE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_it() {
        let mutex = PiMutex::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        mutex.with(|value| *value += 1);
                    }
                });
            }
        });
        assert_eq!(mutex.with(|value| *value), 80_000);
        assert_eq!(mutex.word.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn a_panic_inside_frees_the_lock() {
        let mutex = PiMutex::<u64>::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            mutex.with(|_| panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(mutex.with(|value| *value), 0);
    }
}
