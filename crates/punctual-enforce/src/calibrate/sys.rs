//! Clock, sleep, placement and priority of the threads that measure.

use std::io;
use std::thread;

use rustix::thread::ClockId;
use rustix::time::Timespec;

use punctual_linux::os::sched::{self, Attributes};

/// The calling thread's id.
pub(super) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Lets a thread (0: the calling one) run on one processor only.
pub(super) fn pin(tid: i32, processor: usize) -> io::Result<()> {
    sched::set_affinity(tid, &[processor])
}

/// Makes a thread (0: the calling one) a SCHED_FIFO thread of that priority.
pub(super) fn set_fifo(tid: i32, priority: u32) -> io::Result<()> {
    sched::set_attributes(tid, &Attributes::fifo(priority))
}

/// Sleeps until `at_ns` on CLOCK_MONOTONIC, or until a signal comes.
pub(super) fn sleep_until(at_ns: u64) {
    let at = Timespec {
        tv_sec: i64::try_from(at_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    // A signal only ends this one sample early.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// CLOCK_MONOTONIC, in ns, as enforcers read it.
#[inline]
pub(super) fn monotonic_ns() -> u64 {
    crate::clock::now().as_ns()
}

/// Lets the calling thread run on one processor only, and with `priority` as a SCHED_FIFO thread.
pub(super) fn place(processor: usize, priority: Option<u32>) -> io::Result<()> {
    pin(0, processor)?;
    priority.map_or(Ok(()), |priority| set_fifo(0, priority))
}

/// Runs `body` on a thread of its own on one processor, so that the caller stays as it is. With `priority`
/// the thread is a SCHED_FIFO thread.
pub(super) fn on_processor<T: Send, E: From<io::Error> + Send>(
    processor: usize,
    priority: Option<u32>,
    body: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    thread::scope(|scope| {
        let work = move || {
            place(processor, priority)?;
            body()
        };
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(panicked().into()))
    })
}

/// The error of a thread that panicked.
pub(super) fn panicked() -> io::Error {
    io::Error::other("a measuring thread panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_placed_without_moving_its_caller() {
        let before = sched::affinity(0).expect("an affinity");
        let there = on_processor(before[0], None, || sched::affinity(0)).expect(
            "it may run where this one \
                                                                                 may",
        );
        assert_eq!(there, [before[0]]);
        assert_eq!(sched::affinity(0).expect("an affinity"), before);
    }
}
