//! Event descriptors, clocks, and mapped memory. The submodules have the only `unsafe` of this crate.

mod fault;
mod mapping;
mod peer_event;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use punctual_sched::Duration;
use rustix::event::{EventfdFlags, eventfd as new_eventfd};
use rustix::time::{ClockId, Timespec, clock_gettime};

pub(crate) use self::fault::{Watched, faults};
pub(crate) use self::mapping::{GuestArray, GuestCell, GuestRegion};
pub(crate) use self::peer_event::{accept_eventfd, prepare_signals, signal_peer};

/// A non-blocking eventfd.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    Ok(new_eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Adds one to an eventfd of this process. One that is full is signalled already. Those of front-ends take
/// [`signal_peer`].
pub(crate) fn signal(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// How often a kick event was signalled since it was made: nobody reads kick events, they only wake epoll.
pub(crate) fn kick_count(kick: &OwnedFd) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", kick.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
    count.and_then(|count| u64::from_str_radix(count.trim(), 16).ok()).unwrap_or_default()
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    let ns = time.as_ns();
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// The processor time of the calling thread.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
