//! Clocks, sleep and placement of the threads that measure.

use std::io;

use rustix::thread::ClockId;
use rustix::time::Timespec;

use crate::os::sched::{self, Attributes};

/// The calling thread's id.
pub fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Lets a thread (0: the calling one) run on one processor only.
pub fn pin(tid: i32, processor: usize) -> io::Result<()> {
    sched::set_affinity(tid, &[processor])
}

/// Makes a thread (0: the calling one) a SCHED_FIFO thread of that priority.
pub fn set_fifo(tid: i32, priority: u32) -> io::Result<()> {
    sched::set_attributes(tid, &Attributes::fifo(priority))
}

/// Sleeps until `at_ns` on CLOCK_MONOTONIC, or until a signal comes.
pub fn sleep_until(at_ns: u64) {
    let at = Timespec {
        tv_sec: i64::try_from(at_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    // A signal only ends this one sample early.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// CLOCK_MONOTONIC, in ns, as enforcers read it.
#[inline]
pub fn monotonic_ns() -> u64 {
    crate::enforcer::now().as_ns()
}
