//! The system calls that the standard library does not have.

use std::io;

/// The monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the monotonic clock says `at_ns`; not at all when it already does.
pub fn sleep_until(at_ns: u64) {
    let time = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    loop {
        // SAFETY: `time` is a valid timespec. The pointer for the remaining time may be null.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Puts the calling thread under `SCHED_FIFO` with that priority (1 to 99, greater is more urgent), or, for
/// 0, back into the fair class.
///
/// # Errors
/// What Linux says; `EPERM` without `CAP_SYS_NICE`.
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    // SAFETY: an all-zero sched_param is a valid one, on C libraries with more fields too.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` is a valid sched_param; 0 means the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, policy, &param) })
}

/// Brings all memory that the process has now into RAM and locks it there. Memory allocated later is not
/// locked: with a low limit on locked memory, allocations would fail.
///
/// # Errors
/// What Linux says; `ENOMEM` or `EPERM` when the limit on locked memory is too low.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: takes flags only.
    checked(unsafe { libc::mlockall(libc::MCL_CURRENT) })
}

/// Undoes [`lock_memory`].
pub fn unlock_memory() {
    // SAFETY: takes nothing, and has no way to fail.
    unsafe { libc::munlockall() };
}

/// Gives the calling thread, and those that it creates, the least timer slack. With the usual slack, the
/// kernel wakes threads of the fair class up to 50 us late.
pub fn set_timer_slack_min() {
    // SAFETY: takes an integer; 1 ns is the least slack, 0 would mean the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
